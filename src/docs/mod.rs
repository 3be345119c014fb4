//! The manual.

pub mod doctor;
pub mod fencing;
pub mod rules;
