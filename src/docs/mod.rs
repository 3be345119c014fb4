//! The manual.

pub mod rules;
