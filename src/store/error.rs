//! What a store answers when it cannot say what happened.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A store's failure. Cheap to clone; never contains a password.
///
/// It says that the outcome of the call is unknown, and whether waiting can help: [`is_retryable`] or
/// [`is_fatal`], exactly one of which is true.
///
/// ```
/// use tenure::StoreError;
///
/// let busy = StoreError::retryable("the server is starting up").with_sqlstate("57P03");
/// assert!(busy.is_retryable() && !busy.is_fatal() && !busy.is_timeout());
/// assert_eq!(busy.sqlstate(), Some("57P03"));
/// assert_eq!(busy.to_string(), "the server is starting up (SQLSTATE 57P03)");
/// ```
///
/// [`is_retryable`]: StoreError::is_retryable
/// [`is_fatal`]: StoreError::is_fatal
#[derive(Clone)]
pub struct StoreError(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    message: String,
    sqlstate: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Timeout,
    Retryable,
    Fatal,
}

impl StoreError {
    fn new(kind: Kind, message: impl Into<String>) -> StoreError {
        StoreError(Arc::new(Inner { kind, message: message.into(), sqlstate: None, source: None }))
    }

    /// The call did not end in the time it was given. Retryable.
    #[must_use]
    pub fn timeout(message: impl Into<String>) -> StoreError {
        StoreError::new(Kind::Timeout, message)
    }

    /// Something that may pass by itself: no connection, a restart, a deadlock.
    #[must_use]
    pub fn retryable(message: impl Into<String>) -> StoreError {
        StoreError::new(Kind::Retryable, message)
    }

    /// Something that a person must mend: no table, no right, a wrong password.
    #[must_use]
    pub fn fatal(message: impl Into<String>) -> StoreError {
        StoreError::new(Kind::Fatal, message)
    }

    /// Adds the database's five-character code.
    #[must_use]
    pub fn with_sqlstate(self, sqlstate: impl Into<String>) -> StoreError {
        self.edit(|inner| inner.sqlstate = Some(sqlstate.into()))
    }

    /// Adds the cause. It must not print a password either.
    #[must_use]
    pub fn with_source(self, source: impl Error + Send + Sync + 'static) -> StoreError {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> StoreError {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Whether the same call may succeed later without anybody doing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind != Kind::Fatal
    }

    /// Whether a person has to mend something first.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.0.kind == Kind::Fatal
    }

    /// Whether the call ran out of time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.kind == Kind::Timeout
    }

    /// One word for it.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.0.kind {
            Kind::Timeout => "timeout",
            Kind::Retryable => "retryable",
            Kind::Fatal => "fatal",
        }
    }

    /// The same without its cause. A cause is foreign code as soon as it is dropped.
    pub(crate) fn without_source(&self) -> StoreError {
        let Inner { kind, message, sqlstate, .. } = &*self.0;
        let (message, sqlstate) = (message.clone(), sqlstate.clone());
        StoreError(Arc::new(Inner { kind: *kind, message, sqlstate, source: None }))
    }

    /// The database's five-character code, if it gave one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.sqlstate {
            Some(code) => write!(f, " (SQLSTATE {code})"),
            None => Ok(()),
        }
    }
}

/// Readable where a `main` returns it: the causes as they display themselves, without their fields.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{}]", self.kind_name())?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, "; caused by: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|e| &**e as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_was_given() {
        let e = StoreError::fatal("no table").with_sqlstate("42P01").with_source(std::io::Error::other("x"));
        assert!(e.is_fatal() && !e.is_retryable());
        assert_eq!(e.source().unwrap().to_string(), "x");
        assert_eq!(e.clone().sqlstate(), Some("42P01"));
        assert_eq!(format!("{e:?}"), "no table (SQLSTATE 42P01) [fatal]; caused by: x");
        let bare = e.without_source();
        assert!(bare.source().is_none() && bare.is_fatal() && bare.sqlstate() == Some("42P01"));
        assert_eq!(bare.to_string(), e.to_string());
        assert!(StoreError::timeout("t").is_retryable() && StoreError::timeout("t").is_timeout());
    }
}
