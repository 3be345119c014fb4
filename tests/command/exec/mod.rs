//! `tenure exec`: that what it runs never outlives the term, and that it is a well-behaved parent otherwise.

pub(crate) mod command;
pub(crate) mod deadline;
pub(crate) mod killed;
pub(crate) mod options;
mod place;
