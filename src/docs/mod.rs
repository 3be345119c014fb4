//! The manual.
//!
//! | page | what is in it |
//! | --- | --- |
//! | [`guide`] | from nothing to a service in production: the work loop, timings, ending, testing |
//! | [`fencing`] | keeping the writes of a superseded leader out of the data |
//! | [`operating`] | who leads, forced hand-overs, drills, PgBouncer, monitoring, the log, backups |
//! | [`doctor`] | what `tenure doctor` says of a server, and how to read it |
//! | [`limits`] | what is outside any guarantee, and what is not done |
//! | [`rules`] | the eighteen rules that the promise rests on, by number |
//! | [`design`] | why there are never two leaders: the argument, the drafts that fell, what each layer of tests shows |
//! | [`failures`] | how other elections failed in the field, and why this one does not in the same way |
//! | [`comparison`] | other ways to elect a leader, measured under the same faults, and what to choose |
//!
//! Programs to read and to run are in the directory `examples` of the repository.

pub mod comparison;
pub mod design;
pub mod doctor;
pub mod failures;
pub mod fencing;
pub mod guide;
pub mod limits;
pub mod operating;
pub mod rules;
