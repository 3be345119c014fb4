//! What was measured, printed after the tests.

use std::fmt::Display;

use parking_lot::Mutex;

static FIGURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(crate) fn figure(what: impl Display) {
    FIGURES.lock().push(what.to_string());
}

#[allow(clippy::print_stdout, reason = "what a test program is for")]
pub(crate) fn print() {
    let mut figures = FIGURES.lock();
    figures.sort();
    figures.iter().for_each(|figure| println!("figure: {figure}"));
}
