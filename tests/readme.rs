//! What the README and the manual say: their SQL is run as it stands there, what they name exists.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use tenure::{Config, Elector, LossCause, PostgresStore};
use tenure_testground::Postgres;

const README: &str = include_str!("../README.md");
const OPERATING: &str = include_str!("../src/docs/operating.rs");
const LIMIT: Duration = Duration::from_secs(60);

/// All blocks of SQL.
fn blocks(text: &str) -> Vec<String> {
    let text = text.replace("//! ", "");
    text.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

/// The one block of SQL that contains `word`.
fn sql_of(text: &str, word: &str) -> String {
    let mut found: Vec<String> = blocks(text).into_iter().filter(|block| block.contains(word)).collect();
    assert_eq!(found.len(), 1, "blocks with {word:?}");
    found.remove(0)
}

fn sql(word: &str) -> String {
    sql_of(README, word)
}

fn elector(store: &PostgresStore, label: &str) -> Elector {
    let config = Config::builder("invoice-reconciler")
        .label(label)
        .lease_duration(Duration::from_secs(3))
        .renew_interval(Duration::from_millis(500))
        .retry_period(Duration::from_millis(300))
        .operation_timeout(Duration::from_millis(600))
        .safety_margin(Duration::from_millis(500))
        .build()
        .unwrap();
    Elector::start(store.clone(), config).unwrap()
}

#[test]
fn the_table_of_the_readme_is_the_table_of_the_crate() {
    let database = Postgres::shared().database();
    database.execute(&sql("CREATE TABLE"));
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let words =
        |text: &str| text.replace(['"', ';', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let ours = words(&store.schema()).replace("public . leader_election", "leader_election");
    let ours = ours.replace("public.leader_election", "leader_election");
    assert_eq!(words(&sql("CREATE TABLE")), ours);
}

#[test]
fn an_operator_can_make_a_leader_step_down() {
    let database = Postgres::shared().database();
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let (first, second) = (elector(&store, "first"), elector(&store, "second"));
    let guard = first.wait_for_leadership().unwrap();
    let waiting = std::thread::spawn(move || {
        let guard = second.wait_for_leadership_timeout(LIMIT).unwrap();
        (guard.fence(), Instant::now())
    });
    let stepped_down_at = Instant::now();
    database.execute(&sql_of(OPERATING, "make the leader step down"));
    let lost = guard.lost().recv_timeout(LIMIT).unwrap();
    assert_eq!(lost.cause, LossCause::Superseded);
    let (fence, elected_at) = waiting.join().unwrap();
    assert!(fence > guard.fence());
    // The old leader might still have been inside its term: the successor waited out the whole lease.
    let waited = elected_at - stepped_down_at;
    assert!(waited > Duration::from_millis(2_900), "{waited:?}");
    assert!(waited < LIMIT);
}

#[test]
fn a_fenced_write_refuses_the_stale_leader() {
    let database = Postgres::shared().database();
    database.execute(
        "CREATE TABLE account (id int, balance bigint, fence bigint); INSERT INTO account VALUES (7, 0, 0)",
    );
    let mut client = database.client();
    let block = sql("UPDATE account");
    let statement = block.split("--").next().unwrap();
    let mut write = |fence: i64, balance: i64| client.execute(statement, &[&fence, &balance]).unwrap();
    assert_eq!(write(2, 200), 1);
    assert_eq!(write(1, 100), 0, "a stale leader");
    assert_eq!(write(2, 201), 1);
}

/// How many rows the statement for operators shows that contains `word`.
fn shown(client: &mut tenure_testground::postgres::Client, word: &str) -> usize {
    client.query(&sql_of(OPERATING, word), &[]).unwrap_or_else(|error| panic!("{word}: {error}")).len()
}

#[test]
fn what_operators_look_at_shows_what_it_says() {
    let database = Postgres::shared().database();
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let elector = elector(&store, "only");
    let guard = elector.wait_for_leadership().unwrap();
    let mut client = database.client();
    let row = client.query_one(&sql("AS live"), &[]).unwrap();
    assert_eq!((row.get::<_, i64>("fence"), row.get::<_, bool>("live")), (1, true));
    assert_eq!(sql("AS live"), sql_of(OPERATING, "AS live"), "the README and the manual say the same");
    assert_eq!(shown(&mut client, "nobody leads at the moment"), 0);
    assert_eq!(shown(&mut client, "leaders that renew late"), 0);
    assert_eq!(shown(&mut client, "the table itself"), 1);

    let mut holds = database.client();
    let mut transaction = holds.transaction().unwrap();
    transaction.execute("SELECT FROM leader_election FOR UPDATE", &[]).unwrap();
    tenure_testground::await_until(LIMIT, "the renewal waits and is shown", || {
        shown(&mut client, "who keeps the others waiting") > 0
    });
    drop(transaction);

    guard.resign().unwrap();
    let row = client.query_one(&sql_of(OPERATING, "nobody leads at the moment"), &[]).unwrap();
    assert_eq!((row.get::<_, i64>("fence"), row.get::<_, bool>("released")), (1, true));
    database.execute(
        "UPDATE leader_election SET expires_at = now() + interval '5 s', renewed_at = now() - interval '10 s'",
    );
    assert_eq!(shown(&mut client, "leaders that renew late"), 1);
}

#[test]
fn no_statement_for_operators_is_left_untried() {
    let tried = [
        "AS live",
        "make the leader step down",
        "nobody leads at the moment",
        "leaders that renew late",
        "who keeps the others waiting",
        "the table itself",
    ];
    for block in blocks(OPERATING) {
        assert_eq!(tried.iter().filter(|word| block.contains(**word)).count(), 1, "{block}");
    }
}

/// What the crate can say in its log.
fn sources() -> String {
    let sources = [
        include_str!("../src/event.rs"),
        include_str!("../src/event/line.rs"),
        include_str!("../src/guard.rs"),
        include_str!("../src/term.rs"),
        include_str!("../src/store/postgres/engine.rs"),
    ];
    // Texts that go on in the next line.
    let joined = sources.concat().replace("\\\n", "");
    joined.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The parts of a line of the log between what varies (in capitals, or an ellipsis), and after colons.
fn fixed_parts(line: &str) -> Vec<String> {
    let varies = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':']);
        word == "..." || word.chars().all(|c| c.is_ascii_uppercase())
    };
    let mut parts = vec![String::new()];
    for word in line.split(' ') {
        let part = parts.last_mut().unwrap();
        if !varies(word) {
            *part = format!("{part} {word}").trim_start().to_owned();
        }
        if varies(word) || word.ends_with(':') {
            parts.push(String::new());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[test]
fn the_lines_of_the_log_are_those_that_the_crate_writes() {
    let lines: Vec<&str> = OPERATING
        .lines()
        .filter(|line| ["| info |", "| warn |"].iter().any(|level| line.contains(level)))
        .map(|line| line.split('`').nth(1).unwrap())
        .collect();
    assert!(lines.len() >= 15, "{lines:#?}");
    let sources = sources();
    for line in lines {
        let parts = fixed_parts(line);
        assert!(!parts.is_empty() && parts.iter().all(|part| sources.contains(part)), "{line}: {parts:#?}");
    }
    assert!(!sources.contains("the leader is ill"), "everything would be found");
}

#[test]
fn every_page_of_the_manual_is_listed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let contents = std::fs::read_to_string(root.join("src/docs/mod.rs")).unwrap();
    let mut pages = 0;
    for entry in std::fs::read_dir(root.join("src/docs")).unwrap() {
        let path = entry.unwrap().path();
        let page = path.file_stem().unwrap().to_str().unwrap();
        if page != "mod" {
            pages += 1;
            assert!(README.contains(&format!("[`{page}`](src/docs/{page}.rs)")), "{page}");
            assert!(contents.contains(&format!("| [`{page}`] |")), "{page}");
        }
    }
    assert!(pages >= 8);
    // And what the README points to is there.
    for target in README.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if !target.starts_with('#') {
            assert!(root.join(target).exists(), "{target}");
        }
    }
}

/// What a heading is called in a link, on the pages of rustdoc and of forges alike.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// The anchors of the headings in `text`, whose lines begin with `before`.
fn anchors(text: &str, before: &str) -> Vec<String> {
    let heading =
        |line: &str| Some(line.strip_prefix(before)?.strip_prefix('#')?.trim_start_matches('#').to_owned());
    text.lines().filter_map(heading).map(|heading| anchor(heading.trim())).collect()
}

#[test]
fn every_link_to_a_heading_leads_to_one() {
    let pages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs");
    let page = |name: &str| std::fs::read_to_string(pages.join(format!("{name}.rs"))).unwrap();
    let (own, mut links) = (anchors(README, ""), 0);
    for target in README.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        links += 1;
        assert!(own.iter().any(|anchor| anchor == target), "README: {target} is not in {own:?}");
    }
    for entry in std::fs::read_dir(&pages).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for target in text.split("](super::").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((name, target)) = target.split_once('#') else { continue };
            links += 1;
            let there = anchors(&page(name), "//! ");
            assert!(there.iter().any(|anchor| anchor == target), "{name}: {target} is not in {there:?}");
        }
    }
    assert!(links >= 10, "only {links} links were found");
}

#[test]
fn every_example_is_named() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(README.contains(&format!("| `{name}` |")), "{name}");
    }
}
