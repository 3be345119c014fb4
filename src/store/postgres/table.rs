//! The table's name: checked, quoted, and always with its schema.

use std::fmt;

use super::config_error::PostgresConfigError;

/// Where a schema is not named. Never left to `search_path`: behind a transaction pooler that may be whatever
/// another client has left there.
pub(super) const DEFAULT_SCHEMA: &str = "public";
pub(super) const DEFAULT_TABLE: &str = "leader_election";

/// PostgreSQL cuts longer identifiers off with a mere notice, so that two long names could become one table.
const MAX_IDENTIFIER_BYTES: usize = 63;

/// A schema-qualified table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    schema: String,
    name: String,
}

impl Default for Table {
    fn default() -> Table {
        Table { schema: DEFAULT_SCHEMA.to_owned(), name: DEFAULT_TABLE.to_owned() }
    }
}

impl Table {
    pub(super) fn new(schema: &str, name: &str) -> Result<Table, PostgresConfigError> {
        check_identifier("schema", schema)?;
        check_identifier("table", name)?;
        Ok(Table { schema: schema.to_owned(), name: name.to_owned() })
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The DDL, for migration tools and for us.
    pub(super) fn ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {self} (\n    \
             name        text        PRIMARY KEY,\n    \
             holder      text        NOT NULL,\n    \
             fence       bigint      NOT NULL,\n    \
             acquired_at timestamptz NOT NULL,\n    \
             renewed_at  timestamptz NOT NULL,\n    \
             expires_at  timestamptz NOT NULL,\n    \
             payload     bytea\n\
             ) WITH (fillfactor = 70);\n"
        )
    }
}

/// As SQL: both parts quoted.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quote(&self.schema), quote(&self.name))
    }
}

fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

fn check_identifier(field: &'static str, identifier: &str) -> Result<(), PostgresConfigError> {
    let complaint = if identifier.is_empty() {
        "is empty".to_owned()
    } else if identifier.len() > MAX_IDENTIFIER_BYTES {
        format!("is {} bytes long; PostgreSQL's names end after {MAX_IDENTIFIER_BYTES}", identifier.len())
    } else if identifier.contains('\0') {
        "contains a NUL byte".to_owned()
    } else {
        return Ok(());
    };
    Err(PostgresConfigError::new(field, complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let table = Table::new("we ird.x", "My\"Tab").unwrap();
        assert_eq!(table.to_string(), r#""we ird.x"."My""Tab""#);
        assert!(table.ddl().starts_with(r#"CREATE TABLE IF NOT EXISTS "we ird.x"."My""Tab" ("#));
    }

    #[test]
    fn names_that_cannot_be_are_refused_by_field() {
        let long = "x".repeat(64);
        for (schema, name, field) in
            [("", "t", "schema"), ("s", "", "table"), ("s", &*long, "table"), ("a\0", "t", "schema")]
        {
            assert_eq!(Table::new(schema, name).unwrap_err().field(), field);
        }
        assert!(Table::new("s", &"é".repeat(32)).is_err(), "64 bytes in 32 characters");
        assert!(Table::new("s", &"x".repeat(63)).is_ok());
    }
}
