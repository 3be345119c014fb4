//! Whether and how connections are encrypted: libpq's parameters, checked at construction.
//!
//! What they mean is libpq's word too, where it is not less than what it says: see `PostgresStore`. Encryption itself
//! is a connector's, the crate's own (feature `tls`) or the caller's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::builder::PostgresConfigError;

mod connector;
#[cfg(feature = "tls")]
mod files;
#[cfg(feature = "tls")]
mod own;
#[cfg(feature = "tls")]
mod verify;

pub(super) use connector::{Connector, Custom, Encryption, Failure, Secured, Stream};
#[cfg(feature = "tls")]
pub(super) use verify::alert;

/// A variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The options that mean something here, and the variables that stand in for them.
const KNOWN: [(&str, &str); 5] = [
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
];
/// libpq's other options that only make sense with TLS.
const UNSUPPORTED: [&str; 8] = [
    "sslpassword",
    "sslcrl",
    "sslcrldir",
    "sslsni",
    "sslcertmode",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "sslcompression",
];
/// Before `sslmode` there was this one.
const REQUIRES: &str = "requiressl";

/// Whether the driver must not see this option, which it would refuse or take for less than it means.
pub(super) fn is_ours(option: &str) -> bool {
    KNOWN.iter().any(|(known, _)| *known == option) || UNSUPPORTED.contains(&option) || option == REQUIRES
}

/// How much protection is asked for, from less to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

const MODES: [(&str, Mode); 6] = [
    ("disable", Mode::Disable),
    ("allow", Mode::Allow),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

impl Mode {
    fn name(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

/// What one option says, and which of the two said it.
#[derive(Clone, Debug)]
struct Given {
    value: OsString,
    /// The option, or the variable.
    origin: &'static str,
}

/// What the connection string says about TLS, and the environment where the string is silent.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    mode: Option<Given>,
    negotiation: Option<Given>,
    root: Option<Given>,
    cert: Option<Given>,
    key: Option<Given>,
    /// The first of the string's options that nothing here can do.
    unsupported: Option<&'static str>,
    home: Option<PathBuf>,
    binding_required: bool,
}

impl Parameters {
    /// `options` are those of the connection string; of several with the same name the last one counts.
    pub(super) fn read(options: &[(&str, &str)], environment: Environment<'_>) -> Parameters {
        let last = |key: &str| options.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let given = |i: usize| {
            let (option, variable) = KNOWN[i];
            // As with libpq, a file without a name is none.
            let in_string = last(option).filter(|value| i < 2 || !value.is_empty());
            match in_string {
                Some(value) => Some(Given { value: value.into(), origin: option }),
                None => environment(variable)
                    .filter(|value| !value.is_empty())
                    .map(|value| Given { value, origin: variable }),
            }
        };
        let unsupported = UNSUPPORTED.iter().chain([&REQUIRES]).find(|option| last(option).is_some());
        Parameters {
            mode: given(0),
            negotiation: given(1),
            root: given(2),
            cert: given(3),
            key: given(4),
            unsupported: unsupported.copied(),
            home: environment("HOME").filter(|home| !home.is_empty()).map(PathBuf::from),
            binding_required: false,
        }
    }

    /// `channel_binding=require`, which the driver sees to.
    pub(super) fn binding_required(self, binding_required: bool) -> Parameters {
        Parameters { binding_required, ..self }
    }

    /// What connections are to do. Reads the files, if there is a server that can be reached by TCP.
    pub(super) fn security(
        self,
        connector: Option<Arc<dyn Connector>>,
        has_network: bool,
    ) -> Result<Security, PostgresConfigError> {
        let mode = self.mode(connector.is_some())?;
        let direct = self.direct(mode)?;
        if mode == Mode::Disable {
            return match self.binding_required {
                true => {
                    Err(error("channel_binding", "is `require`, which takes TLS, and sslmode is disable"))
                }
                false => Ok(Security::plain()),
            };
        }
        let connector = match connector {
            Some(connector) => {
                self.check_custom(mode)?;
                Some(connector)
            }
            None => self.own(mode, has_network)?,
        };
        Ok(Security { mode, direct, connector })
    }

    fn mode(&self, custom: bool) -> Result<Mode, PostgresConfigError> {
        let Some(given) = &self.mode else {
            return Ok(match &self.root {
                // Whoever brings a connector wants it used.
                _ if custom => Mode::Require,
                Some(root) if root.value == "system" => Mode::VerifyFull,
                _ => Mode::Prefer,
            });
        };
        let mode = MODES.iter().find(|(name, _)| given.value == *name);
        mode.map(|(_, mode)| *mode).ok_or_else(|| {
            let names = MODES.map(|(name, _)| name).join(", ");
            error("sslmode", format!("has an unknown value{}; there are {names}", given.place()))
        })
    }

    fn direct(&self, mode: Mode) -> Result<bool, PostgresConfigError> {
        let Some(given) = &self.negotiation else { return Ok(false) };
        match given.value.to_str() {
            Some("postgres") => Ok(false),
            Some("direct") if (Mode::Allow..Mode::Require).contains(&mode) => {
                let why = format!(
                    "is `direct`{}, which leaves the server no choice, and sslmode={} does: it takes require, \
                     verify-ca or verify-full",
                    given.place(),
                    mode.name()
                );
                Err(error("sslnegotiation", why))
            }
            Some("direct") => Ok(true),
            _ => {
                let why = format!("has an unknown value{}; there are postgres and direct", given.place());
                Err(error("sslnegotiation", why))
            }
        }
    }

    /// What a connector of the caller's does not take from the connection string.
    fn check_custom(&self, mode: Mode) -> Result<(), PostgresConfigError> {
        if mode > Mode::Require {
            let given = self.mode.as_ref().map_or_else(String::new, Given::place);
            let why = format!(
                "is {}{given}, and what a connector of the application's verifies is its own affair: set it up to \
                 verify, and ask for sslmode=require",
                mode.name()
            );
            return Err(error("sslmode", why));
        }
        let given = [&self.root, &self.cert, &self.key].into_iter().flatten();
        // What the environment says is meant for those who have no connector.
        let in_string = given.map(|given| given.origin).find(|origin| origin.starts_with("ssl"));
        match in_string.or(self.unsupported) {
            Some(option) => Err(error(
                option,
                "is in the connection string, and the application brings a connector of its own",
            )),
            None => Ok(()),
        }
    }

    /// The crate's own connector; none where no connection can use it.
    #[cfg(feature = "tls")]
    fn own(self, mode: Mode, has_network: bool) -> Result<Option<Arc<dyn Connector>>, PostgresConfigError> {
        if let Some(option) = self.unsupported {
            return Err(error(option, "is not supported: leave it out"));
        }
        if !has_network {
            return Ok(None);
        }
        Ok(Some(Arc::new(own::Rustls::new(mode, files::Files::find(&self, mode)?)?)))
    }

    /// Refuses what asks for TLS. What only prefers it is content without.
    #[cfg(not(feature = "tls"))]
    fn own(self, mode: Mode, _has_network: bool) -> Result<Option<Arc<dyn Connector>>, PostgresConfigError> {
        let _ = &self.home;
        let place = self.mode.as_ref().map_or_else(String::new, Given::place);
        if mode > Mode::Prefer {
            let option = if self.mode.is_some() { "sslmode" } else { "sslrootcert" };
            return Err(needs_feature(option, &format!("asks for TLS (sslmode={}{place})", mode.name())));
        }
        let given = [&self.root, &self.cert, &self.key].into_iter().flatten();
        let in_string = given.map(|given| given.origin).find(|origin| origin.starts_with("ssl"));
        if let Some(option) = in_string.or(self.unsupported) {
            return Err(needs_feature(option, "asks for TLS"));
        }
        if self.binding_required {
            return Err(needs_feature("channel_binding", "is `require`, which takes TLS"));
        }
        Ok(None)
    }
}

impl Given {
    /// Where an error is to be mended, if not in the connection string.
    fn place(&self) -> String {
        if self.origin.starts_with("PG") { format!(" (from {})", self.origin) } else { String::new() }
    }

    #[cfg(feature = "tls")]
    fn path(&self) -> PathBuf {
        PathBuf::from(&self.value)
    }
}

#[cfg(not(feature = "tls"))]
fn needs_feature(option: &'static str, what: &str) -> PostgresConfigError {
    let why = format!(
        "{what}, and this build lacks the feature `tls`; without it, and without a connector of the application's, \
         only plain connections are possible (sslmode=disable or prefer)"
    );
    error(option, why)
}

fn error(field: &'static str, complaint: impl Into<String>) -> PostgresConfigError {
    PostgresConfigError::new(field, complaint)
}

/// What a connection by TCP does for its protection. Unix-domain sockets have none, as with libpq.
pub(super) struct Security {
    mode: Mode,
    direct: bool,
    connector: Option<Arc<dyn Connector>>,
}

impl Security {
    fn plain() -> Security {
        Security { mode: Mode::Disable, direct: false, connector: None }
    }

    /// The ways to a server, the first one first; `None` is the plain one.
    pub(super) fn ways(&self) -> Vec<Option<Encryption>> {
        let Some(connector) = &self.connector else { return vec![None] };
        let optional = self.mode == Mode::Prefer;
        let encryption = Encryption { connector: Arc::clone(connector), optional, direct: self.direct };
        match self.mode {
            Mode::Allow => vec![None, Some(encryption)],
            _ => vec![Some(encryption)],
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
