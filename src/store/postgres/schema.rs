//! Creating the table, and checking the one that is there (rule 16).

use std::time::Instant;

use postgres::Row;

use super::engine::{Call, Engine, Kind, Parameter};
use super::error;
use super::table::Table;
use crate::store::StoreError;

/// $1 schema, $2 table. One row per column; none where there is no table. Operators are qualified as in `sql`.
pub(super) const INSPECT: &str = "
SELECT class.relkind::pg_catalog.text, class.relpersistence::pg_catalog.text,
       attribute.attname::pg_catalog.text,
       pg_catalog.format_type(attribute.atttypid, attribute.atttypmod),
       attribute.attnotnull,
       attribute.atthasdef OR attribute.attidentity OPERATOR(pg_catalog.<>) '',
       attribute.attgenerated OPERATOR(pg_catalog.<>) '',
       COALESCE(collation_.collisdeterministic, true),
       EXISTS (SELECT FROM pg_catalog.pg_index AS index
                WHERE index.indrelid OPERATOR(pg_catalog.=) class.oid
                  AND index.indisprimary AND index.indisvalid AND index.indimmediate
                  AND index.indnkeyatts OPERATOR(pg_catalog.=) 1
                  AND index.indkey[0] OPERATOR(pg_catalog.=) attribute.attnum)
  FROM pg_catalog.pg_class AS class
  JOIN pg_catalog.pg_namespace AS namespace
    ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
  LEFT JOIN pg_catalog.pg_attribute AS attribute
    ON attribute.attrelid OPERATOR(pg_catalog.=) class.oid
   AND attribute.attnum OPERATOR(pg_catalog.>) 0 AND NOT attribute.attisdropped
  LEFT JOIN pg_catalog.pg_collation AS collation_
    ON collation_.oid OPERATOR(pg_catalog.=) attribute.attcollation
 WHERE namespace.nspname OPERATOR(pg_catalog.=) $1 AND class.relname OPERATOR(pg_catalog.=) $2";

/// What is wrong with a table that a crash empties.
const UNLOGGED: &str = "it is UNLOGGED, so that a crash empties it and fences repeat";

/// Name, type, and whether it must be `NOT NULL` (or must not).
const COLUMNS: [(&str, &str, bool); 7] = [
    ("name", "text", true),
    ("holder", "text", true),
    ("fence", "bigint", true),
    ("acquired_at", "timestamp with time zone", true),
    ("renewed_at", "timestamp with time zone", true),
    ("expires_at", "timestamp with time zone", true),
    ("payload", "bytea", false),
];

/// Others may be creating the same table, and every kind of collision means: look again.
const LOOKS: usize = 8;

/// Looks, creates what is missing, and looks again.
pub(super) fn ensure(engine: &Engine, until: Instant) -> Result<(), StoreError> {
    let mut last = None;
    for _ in 0..LOOKS {
        if is_there(engine, until)? {
            return Ok(());
        }
        match last {
            Some(error) if !is_collision(&error) => return Err(explain(error, engine.table())),
            _ => last = engine.rows(&Call::new(Kind::CreateTable, Vec::new()), until).err(),
        }
    }
    Err(last.unwrap_or_else(|| {
        StoreError::retryable(format!("the table {} vanishes as soon as it is created", engine.table()))
    }))
}

fn is_there(engine: &Engine, until: Instant) -> Result<bool, StoreError> {
    match look(engine, until)? {
        Found::Nothing => Ok(false),
        Found::Fit => Ok(true),
        Found::Unfit(complaint) => Err(unfit(engine.table(), &complaint)),
    }
}

fn unfit(table: &Table, complaint: &str) -> StoreError {
    StoreError::fatal(format!("the table {table} can't carry elections: {complaint}"))
}

/// The table turned out to be one that a crash empties: an object of the wrong kind.
pub(super) fn unlogged(table: &Table) -> StoreError {
    unfit(table, UNLOGGED).with_sqlstate("42809")
}

/// What is there under the table's name.
pub(super) enum Found {
    Nothing,
    /// It can carry elections.
    Fit,
    /// It can't, for this reason.
    Unfit(String),
}

/// Looks into the catalog, which every role may read.
pub(super) fn look(engine: &Engine, until: Instant) -> Result<Found, StoreError> {
    let table = engine.table();
    let parameters = vec![Parameter::text(table.schema()), Parameter::text(table.name())];
    // The catalog's names are of a type of their own, which text is compared with as text.
    let rows = engine.rows(&Call::new(Kind::Inspect, parameters), until)?;
    let columns = rows.iter().map(Column::of).collect::<Result<Vec<_>, _>>()?;
    Ok(match complaint(&columns) {
        _ if columns.is_empty() => Found::Nothing,
        None => Found::Fit,
        Some(complaint) => Found::Unfit(complaint),
    })
}

/// Unique violation in the catalog; table, type or other object exists; and in rare cases "tuple concurrently
/// updated", which has no code of its own.
fn is_collision(error: &StoreError) -> bool {
    matches!(error.sqlstate(), Some("23505" | "42P07" | "42710" | "XX000"))
}

fn explain(error: StoreError, table: &Table) -> StoreError {
    let new = if error.is_fatal() { StoreError::fatal } else { StoreError::retryable };
    let schema = table.schema();
    let problem = match error.sqlstate() {
        Some("42501") => format!("the role lacks the CREATE privilege on the schema {schema:?}"),
        Some("3F000") => format!("the schema {schema:?} does not exist"),
        Some(error::READ_ONLY) => "the server is read-only at the moment".to_owned(),
        _ => return error,
    };
    let message = format!(
        "the table {table} does not exist and can't be created, because {problem}; \
         let a role that may create it run this: {}",
        table.ddl().split_whitespace().collect::<Vec<_>>().join(" ")
    );
    let code = error.sqlstate().unwrap_or_default().to_owned();
    new(message).with_sqlstate(code).with_source(error)
}

/// One row of [`INSPECT`].
#[derive(Clone, Debug)]
struct Column {
    relation_kind: String,
    persistence: String,
    /// Empty in a table without columns, as the rest is.
    name: String,
    ty: String,
    not_null: bool,
    has_default: bool,
    generated: bool,
    deterministic: bool,
    primary_key: bool,
}

impl Column {
    fn of(row: &Row) -> Result<Column, StoreError> {
        let read = || {
            Ok(Column {
                relation_kind: row.try_get(0)?,
                persistence: row.try_get(1)?,
                name: row.try_get::<_, Option<_>>(2)?.unwrap_or_default(),
                ty: row.try_get::<_, Option<_>>(3)?.unwrap_or_default(),
                not_null: row.try_get::<_, Option<_>>(4)?.unwrap_or_default(),
                has_default: row.try_get::<_, Option<_>>(5)?.unwrap_or_default(),
                generated: row.try_get::<_, Option<_>>(6)?.unwrap_or_default(),
                deterministic: row.try_get(7)?,
                primary_key: row.try_get(8)?,
            })
        };
        read().map_err(error::wrong_shape)
    }

    /// A column that our statements know nothing of must fill itself.
    fn blocks_inserts(&self) -> bool {
        self.not_null && !self.has_default && !self.generated
    }
}

/// The first thing that is wrong with the table; there is at least one row.
fn complaint(columns: &[Column]) -> Option<String> {
    let table = columns.first()?;
    if table.relation_kind != "r" {
        return Some(format!("it is {}, not a plain table", relation(&table.relation_kind)));
    }
    match table.persistence.as_str() {
        "p" => {}
        "u" => return Some(UNLOGGED.to_owned()),
        _ => return Some("it is temporary".to_owned()),
    }
    for (name, ty, not_null) in COLUMNS {
        let Some(column) = columns.iter().find(|column| column.name == name) else {
            return Some(format!("the column {name} is missing"));
        };
        if column.ty != ty {
            return Some(format!("the column {name} is of type {}, not {ty}", column.ty));
        }
        if column.not_null != not_null {
            let should = if not_null { "must be NOT NULL" } else { "must allow NULL" };
            return Some(format!("the column {name} {should}"));
        }
        if column.generated {
            return Some(format!("the column {name} is generated"));
        }
    }
    let name = columns.iter().find(|column| column.name == "name")?;
    if !name.primary_key {
        return Some("the primary key is not exactly (name), checked at once".to_owned());
    }
    if !name.deterministic {
        return Some("the column name has a collation that takes different names for the same".to_owned());
    }
    let is_ours = |column: &Column| COLUMNS.iter().any(|(name, ..)| *name == column.name);
    let other = columns.iter().find(|column| !is_ours(column) && column.blocks_inserts())?;
    Some(format!("the additional column {} is NOT NULL and has no default", other.name))
}

fn relation(kind: &str) -> &'static str {
    match kind {
        "v" => "a view",
        "m" => "a materialized view",
        "f" => "a foreign table",
        "p" => "a partitioned table",
        "i" | "I" => "an index",
        "S" => "a sequence",
        "c" => "a composite type",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Vec<Column> {
        let column = |(name, ty, not_null): (&str, &str, bool)| Column {
            relation_kind: "r".into(),
            persistence: "p".into(),
            name: name.into(),
            ty: ty.into(),
            not_null,
            has_default: false,
            generated: false,
            deterministic: true,
            primary_key: name == "name",
        };
        COLUMNS.map(column).to_vec()
    }

    fn wrong(change: impl Fn(&mut Vec<Column>)) -> String {
        let mut columns = right();
        change(&mut columns);
        complaint(&columns).expect("a complaint")
    }

    #[test]
    fn rule_16_the_shape_is_checked_by_name() {
        assert_eq!(complaint(&right()), None);
        assert!(wrong(|c| c[0].relation_kind = "v".into()).contains("a view"));
        assert!(wrong(|c| c[0].persistence = "u".into()).contains("UNLOGGED"));
        assert!(wrong(|c| c[3].ty = "timestamp without time zone".into()).contains("acquired_at"));
        assert!(wrong(|c| c[1].not_null = false).contains("holder must be NOT NULL"));
        assert!(wrong(|c| c[6].not_null = true).contains("payload must allow NULL"));
        assert!(wrong(|c| c[5].generated = true).contains("expires_at is generated"));
        assert!(wrong(|c| c[0].primary_key = false).contains("primary key"));
        assert!(wrong(|c| c[0].deterministic = false).contains("collation"));
        assert!(wrong(|c| c.truncate(6)).contains("payload is missing"));
    }

    #[test]
    fn other_columns_may_be_there_if_they_fill_themselves() {
        let other = |not_null, has_default| {
            let mut columns = right();
            let mut extra = columns[6].clone();
            (extra.name, extra.not_null, extra.has_default) = ("extra".into(), not_null, has_default);
            columns.push(extra);
            complaint(&columns)
        };
        assert_eq!(other(false, false), None);
        assert_eq!(other(true, true), None);
        assert!(other(true, false).unwrap().contains("extra"));
    }
}
