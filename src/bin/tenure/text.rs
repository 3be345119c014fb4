//! What others wrote, fit to be shown.
//!
//! Names, holders and payloads are whatever somebody wrote into the database. Escape sequences among them would be
//! obeyed by the terminal of whoever looks, so they are shown and not sent.

/// The text on one line, without anything that moves the cursor, changes colours or the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmless(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

/// Control characters, invisible and unassigned ones are what `Debug` escapes, beside three that are harmless.
pub(crate) fn is_harmless(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}
