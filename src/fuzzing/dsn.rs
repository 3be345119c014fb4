//! Names and connection strings that other people wrote.

use std::error::Error;
use std::fmt::Write as _;

use super::bytes::Bytes;
use crate::store::postgres::PostgresStore;

/// Part of the password, and of nothing else.
const SECRET: &str = "S3cr3tW0rd";

/// Builds a store for a table of that name.
///
/// # Panics
/// If the statement names another table, or an error says nothing.
pub fn table(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (schema, table) = (bytes.text(1), bytes.text(1));
    let named = PostgresStore::builder("host=db").schema(schema.as_str()).table(table.as_str()).build();
    let usable = |name: &str| !name.is_empty() && name.len() <= 63 && !name.contains('\0');
    assert_eq!(named.is_ok(), usable(&schema) && usable(&table), "{schema:?} {table:?}");
    let Ok(store) = named else { return };
    let ddl = store.schema();
    let rest = ddl.strip_prefix("CREATE TABLE IF NOT EXISTS ").expect("a statement that creates a table");
    let (first, rest) = unquoted(rest).expect("a quoted schema");
    let (second, rest) = rest.strip_prefix('.').and_then(unquoted).expect("a quoted table");
    assert_eq!((first, second), (schema, table));
    assert!(rest.starts_with(" (\n"), "{ddl}");
}

/// A quoted identifier as PostgreSQL reads it, and what follows.
fn unquoted(sql: &str) -> Option<(String, &str)> {
    let mut rest = sql.strip_prefix('"')?;
    let mut name = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

/// Builds a store from a connection string that has the password in one of the ways that people write it.
///
/// # Panics
/// If any message or debugging output contains the password.
pub fn dsn(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let kind = bytes.choose(4);
    let password = format!("{}{SECRET}{}", bytes.text(1), bytes.text(1));
    let (before, behind) = (bytes.text(1), bytes.text(1));
    let dsn = match kind {
        0 => format!("postgres://{before}:{}@{behind}", encoded(&password)),
        // Not encoded, as people do: it is refused or understood, but it is never shown.
        1 => format!("postgresql://user:{password}@{behind}"),
        2 => format!("{before} password={} {behind}", quoted(&password)),
        _ => format!("postgres://user@host/db?{before}&password={}&{behind}", encoded(&password)),
    };
    if before.contains(SECRET) || behind.contains(SECRET) {
        return;
    }
    let mut shown = String::new();
    let builder = PostgresStore::builder(&dsn);
    let _ = write!(shown, "{builder:?}");
    match builder.build() {
        Ok(store) => {
            let _ = write!(shown, "{store:?}");
        }
        Err(error) => {
            let mut cause: Option<&dyn Error> = Some(&error);
            while let Some(error) = cause {
                let _ = write!(shown, "{error} {error:?}");
                cause = error.source();
            }
        }
    }
    assert!(!shown.contains(SECRET), "{dsn:?} is shown: {shown}");
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut sum, byte| {
        if byte.is_ascii_alphanumeric() {
            sum.push(char::from(byte));
        } else {
            let _ = write!(sum, "%{byte:02x}");
        }
        sum
    })
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
