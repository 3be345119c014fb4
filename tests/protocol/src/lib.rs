//! The lease protocol as a model, apart from the code that implements it: what a design says can be checked before,
//! and independently of, what the code does.
//!
//! Time is discrete. Participants do whatever the rules allow, whenever: there are no timers in here, so a
//! participant that is frozen is one that does nothing for a while. Requests and replies are separate steps; a
//! request whose sender has given up may still land at any later time. The database's clock, its record and the
//! participants' clocks do what [`Bounds`] allow them.
//!
//! [`explore`] visits every state within the bounds. [`Script`] walks one path.

mod database;
mod explore;
mod memory;
mod model;
mod participant;
mod rules;
mod script;

pub use explore::{Found, explore};
pub use model::{Action, Bounds, Model, World};
pub use rules::{Anchor, Names, Own, Rules, Timelines, Wait};
pub use script::Script;

/// Time, in whatever unit the bounds choose.
pub type Ticks = i16;
