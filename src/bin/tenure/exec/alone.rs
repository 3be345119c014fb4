//! Tests that need a process of their own, since they have children: whose ends, or killing, concern the whole process.

use std::process::Command;

const ALONE: &str = "TENURE_TEST_ALONE";

/// Whether this is a process of the test's own. If not, it has run in one, and passed.
pub(super) fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut process = Command::new(std::env::current_exe().expect("its own path"));
    let output = process.args(["--exact", test]).env(ALONE, "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
