//! What is only so on a terminal: `script` gives the command one.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure::Store;
use tenure_testground::Postgres;

use crate::{OP, TENURE, create, store};

/// On a terminal of 80 columns, with this typed in; what was shown, and the code.
fn on_a_terminal(url: &str, arguments: &str, typed: &str) -> (String, Option<i32>) {
    let inside = format!("stty cols 80 rows 24; exec {TENURE} {arguments}");
    let mut script = Command::new("script")
        .args(["-qec", &inside, "/dev/null"])
        .env("TENURE_STORE", url)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("can't run script(1), of util-linux: {error}"));
    script.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = script.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap().replace('\r', ""), output.status.code())
}

/// Without what makes words bold.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// Sentences are broken where the line ends.
fn joined(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let holder = format!("worker-of-the-reports-{}", "0123456789abcdef".repeat(2));
    create(&store, "the-invoice-reconciler-of-the-whole-company", &holder, Duration::from_secs(600));
    let mut commands: Vec<String> = ["status", "doctor", "--help"].map(str::to_owned).to_vec();
    for command in ["status", "watch", "resign", "doctor", "schema", "init", "completions"] {
        commands.extend([format!("{command} --help"), format!("{command} -h")]);
    }
    for command in commands {
        let (shown, code) = on_a_terminal(&database.dsn(), &command, "");
        // The server of the tests does not wait for its disk.
        assert_eq!(code, Some(i32::from(command == "doctor")), "{command}: {shown}");
        let plain = plain(&shown);
        assert!(plain.lines().count() > 1, "{command}: {shown}");
        for line in plain.lines() {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
    let (shown, _) = on_a_terminal(&database.dsn(), "status", "");
    assert!(shown.contains('…') && shown.contains("leading"), "cut: {shown}");
    for command in ["status", "watch", "resign", "doctor", "schema", "init", "completions"] {
        let (shown, _) = on_a_terminal(&database.dsn(), &format!("{command} --help"), "");
        assert!(shown.contains("Examples:\n  tenure "), "{command}: {shown}");
    }
}

#[test]
fn an_operator_is_asked() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let lease = create(&store, "n", "web-0", Duration::from_secs(600));
    for answer in ["n\n", "\n", "maybe\n"] {
        let (shown, code) = on_a_terminal(&database.dsn(), "resign --election n", answer);
        assert_eq!(code, Some(1), "{shown}");
        for words in ["web-0 leads \"n\" with fence 1. Make", "nothing was changed"] {
            assert!(joined(&shown).contains(words), "{shown}");
        }
        assert_eq!(store.observe("n", OP).unwrap().lease().unwrap().version(), lease.version());
    }
    let (shown, code) = on_a_terminal(&database.dsn(), "resign --election n", "y\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(joined(&shown).contains("about 10m 0s then. [y/N]"), "{shown}");
    assert_eq!(store.observe("n", OP).unwrap().lease().unwrap().fence().get(), 2);
}
