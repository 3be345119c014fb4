//! The table: its name, its DDL, and whether one that is there can carry elections (rule 16).

use std::fmt;

use rusqlite::Connection;

use super::error::Failure;
use crate::store::StoreError;

pub(super) const DEFAULT_TABLE: &str = "leader_election";

/// Name, type, and whether it must be `NOT NULL` (or must not).
const COLUMNS: [(&str, &str, bool); 9] = [
    ("name", "TEXT", true),
    ("holder", "TEXT", true),
    ("fence", "INTEGER", true),
    ("boot", "TEXT", true),
    ("acquired_at", "INTEGER", true),
    ("renewed_at", "INTEGER", true),
    ("expires_at", "INTEGER", true),
    ("mark", "INTEGER", true),
    ("payload", "BLOB", false),
];

/// A table's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table(String);

impl Default for Table {
    fn default() -> Table {
        Table(DEFAULT_TABLE.to_owned())
    }
}

impl Table {
    pub(super) fn new(name: &str) -> Result<Table, StoreError> {
        let refused = |why: &str| Err(StoreError::fatal(format!("the table's name {name:?} {why}")));
        if name.is_empty() {
            return refused("is empty");
        }
        if name.contains('\0') {
            return refused("contains a NUL byte");
        }
        if name.to_ascii_lowercase().starts_with("sqlite_") {
            return refused("would be one of SQLite's own");
        }
        Ok(Table(name.to_owned()))
    }

    /// For migration tools and for us.
    pub(super) fn ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {self} (\n    \
             name        TEXT    NOT NULL PRIMARY KEY,\n    \
             holder      TEXT    NOT NULL,\n    \
             fence       INTEGER NOT NULL,\n    \
             boot        TEXT    NOT NULL,\n    \
             acquired_at INTEGER NOT NULL,\n    \
             renewed_at  INTEGER NOT NULL,\n    \
             expires_at  INTEGER NOT NULL,\n    \
             mark        INTEGER NOT NULL,\n    \
             payload     BLOB\n\
             ) STRICT, WITHOUT ROWID;\n"
        )
    }
}

/// As SQL: quoted.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// Whether there is such a table; an error where it can't carry elections. Only reads.
pub(super) fn is_there(connection: &Connection, table: &Table) -> Result<bool, Failure> {
    let columns = columns(connection, table)?;
    if columns.is_empty() {
        return Ok(false);
    }
    match complaint(&columns, &primary_key(connection, table)?) {
        None => Ok(true),
        Some(complaint) => {
            Err(Failure::fatal(format!("has a table {table} that can't carry elections: {complaint}")))
        }
    }
}

/// Whether there is a table of that name, whatever its shape. Only reads.
pub(super) fn exists(connection: &Connection, table: &Table) -> rusqlite::Result<bool> {
    Ok(!columns(connection, table)?.is_empty())
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    ty: String,
    not_null: bool,
    has_default: bool,
}

/// Those that can be written: generated ones are not among them.
fn columns(connection: &Connection, table: &Table) -> rusqlite::Result<Vec<Column>> {
    let sql = "SELECT name, type, \"notnull\", dflt_value IS NOT NULL FROM pragma_table_info(?1, 'main')";
    let mut statement = connection.prepare(sql)?;
    let columns = statement.query_map([&table.0], |row| {
        Ok(Column { name: row.get(0)?, ty: row.get(1)?, not_null: row.get(2)?, has_default: row.get(3)? })
    })?;
    columns.collect()
}

/// The columns of the primary key, each with how its texts are compared.
fn primary_key(connection: &Connection, table: &Table) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = "SELECT part.name, part.coll
                 FROM pragma_index_list(?1, 'main') AS keys, pragma_index_xinfo(keys.name, 'main') AS part
                WHERE keys.origin = 'pk' AND part.key";
    let mut statement = connection.prepare(sql)?;
    let parts = statement.query_map([&table.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    parts.collect()
}

/// The first thing that is wrong.
fn complaint(columns: &[Column], primary_key: &[(String, String)]) -> Option<String> {
    for (name, ty, not_null) in COLUMNS {
        let Some(column) = columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)) else {
            return Some(format!("the column {name} is missing"));
        };
        if !column.ty.eq_ignore_ascii_case(ty) {
            return Some(format!("the column {name} is of type {}, not {ty}", column.ty));
        }
        if column.not_null != not_null {
            let should = if not_null { "must be NOT NULL" } else { "must allow NULL" };
            return Some(format!("the column {name} {should}"));
        }
    }
    match primary_key {
        [(name, _)] if !name.eq_ignore_ascii_case("name") => {
            return Some(format!("the primary key is {name}, not name"));
        }
        [(_, collation)] if collation != "BINARY" => {
            return Some(format!(
                "the column name has the collation {collation}, which takes names for the same"
            ));
        }
        [_] => {}
        _ => return Some("the primary key is not exactly (name)".to_owned()),
    }
    let is_ours = |column: &Column| COLUMNS.iter().any(|(name, ..)| column.name.eq_ignore_ascii_case(name));
    let other = columns.iter().find(|column| !is_ours(column) && column.not_null && !column.has_default)?;
    Some(format!("the additional column {} is NOT NULL and has no default", other.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ddl: &str) -> Result<bool, String> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(ddl).unwrap();
        let shown = |failure: Failure| failure.into_store_error("/x".as_ref(), &Table::default()).to_string();
        is_there(&connection, &Table::default()).map_err(shown)
    }

    /// With this in the place of that.
    fn wrong(that: &str, this: &str) -> String {
        let ddl = Table::default().ddl();
        assert!(ddl.contains(that), "{that}");
        found(&ddl.replace(that, this)).expect_err(this)
    }

    #[test]
    fn rule_16_the_shape_is_checked_by_name() {
        assert_eq!(found(""), Ok(false));
        assert_eq!(found(&Table::default().ddl()), Ok(true));
        assert_eq!(found(&Table::default().ddl().replace("TEXT ", "text ")), Ok(true));
        assert!(wrong("fence       INTEGER", "fence TEXT").contains("fence is of type TEXT"));
        assert!(wrong("mark        INTEGER NOT NULL,\n", "").contains("mark is missing"));
        assert!(wrong("boot        TEXT    NOT NULL", "boot TEXT").contains("boot must be NOT NULL"));
        assert!(wrong("BLOB", "BLOB NOT NULL").contains("payload must allow NULL"));
        assert!(wrong("NOT NULL PRIMARY KEY", "NOT NULL COLLATE NOCASE PRIMARY KEY").contains("NOCASE"));
        assert!(wrong("BLOB", "BLOB, extra TEXT NOT NULL").contains("extra"));
        assert!(wrong("BLOB", "BLOB GENERATED ALWAYS AS (x'00')").contains("payload is missing"));
        let keyless = |key: &str| {
            let ddl =
                Table::default().ddl().replace(" PRIMARY KEY", "").replace("BLOB", &format!("BLOB{key}"));
            found(&ddl.replace(", WITHOUT ROWID", ""))
        };
        assert!(keyless("").unwrap_err().contains("not exactly (name)"));
        assert!(keyless(", PRIMARY KEY (name, boot)").unwrap_err().contains("not exactly (name)"));
        assert!(keyless(", PRIMARY KEY (holder)").unwrap_err().contains("is holder"));
        assert!(found("CREATE VIEW leader_election AS SELECT 1 AS name").is_err());
    }

    #[test]
    fn other_columns_may_be_there_if_they_fill_themselves() {
        let with = |extra: &str| found(&Table::default().ddl().replace("BLOB", &format!("BLOB, {extra}")));
        assert_eq!(with("extra TEXT"), Ok(true));
        assert_eq!(with("extra TEXT NOT NULL DEFAULT ''"), Ok(true));
    }

    #[test]
    fn names_are_quoted() {
        let table = Table::new("my \"ta.ble").unwrap();
        assert_eq!(table.to_string(), "\"my \"\"ta.ble\"");
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&table.ddl()).unwrap();
        assert!(is_there(&connection, &table).unwrap());
    }
}
