//! The manual.

pub mod fencing;
pub mod rules;
