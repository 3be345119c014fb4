//! Whether and how connections are encrypted: libpq's parameters, checked at construction.
//!
//! What they mean is libpq's word too, where it is not less than what it says: see `PostgresStore`. Encryption itself
//! is a connector's, the crate's own (feature `tls`) or the caller's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use postgres::config::ChannelBinding;

use super::config_error::PostgresConfigError;

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
const MODE: (&str, &str) = ("sslmode", "PGSSLMODE");
const NEGOTIATION: (&str, &str) = ("sslnegotiation", "PGSSLNEGOTIATION");
const BINDING: (&str, &str) = ("channel_binding", "PGCHANNELBINDING");
const ROOT: (&str, &str) = ("sslrootcert", "PGSSLROOTCERT");
const CERT: (&str, &str) = ("sslcert", "PGSSLCERT");
const KEY: (&str, &str) = ("sslkey", "PGSSLKEY");
const KNOWN: [(&str, &str); 6] = [MODE, NEGOTIATION, BINDING, ROOT, CERT, KEY];

/// libpq's other options, with the variables that would protect more than is done here.
const UNSUPPORTED: [(&str, Option<&str>); 9] = [
    ("sslcrl", Some("PGSSLCRL")),
    ("sslcrldir", Some("PGSSLCRLDIR")),
    (MIN_VERSION, Some("PGSSLMINPROTOCOLVERSION")),
    ("ssl_max_protocol_version", None),
    ("sslpassword", None),
    ("sslsni", None),
    ("sslcertmode", None),
    ("sslcompression", None),
    ("requiressl", None),
];
const MIN_VERSION: &str = "ssl_min_protocol_version";
/// There is nothing older anyway.
const MET: [&str; 3] = ["TLSv1", "TLSv1.1", "TLSv1.2"];

/// Whether the driver must not see this option, which it would refuse or take for less than it means.
pub(super) fn is_ours(option: &str) -> bool {
    KNOWN.iter().any(|(known, _)| *known == option) || UNSUPPORTED.iter().any(|(known, _)| *known == option)
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
    binding: Option<Given>,
    root: Option<Given>,
    cert: Option<Given>,
    key: Option<Given>,
    /// The first option that nothing here can do, and who said it.
    unsupported: Option<(&'static str, &'static str)>,
    home: Option<PathBuf>,
}

impl Parameters {
    /// `options` are those of the connection string; of several with the same name the last one counts.
    pub(super) fn read(options: &[(&str, &str)], environment: Environment<'_>) -> Parameters {
        let last = |key: &str| options.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let given = |(option, name): (&'static str, &'static str)| match last(option) {
            // As with libpq, a file without a name is none.
            Some(value) if !value.is_empty() || [MODE, NEGOTIATION, BINDING].contains(&(option, name)) => {
                Some(Given { value: value.into(), origin: option })
            }
            _ => variable(name).map(|value| Given { value, origin: name }),
        };
        // Before `sslmode` there was another one, and libpq still listens to its variable.
        let requires = || variable("PGREQUIRESSL").filter(|value| value.to_string_lossy().starts_with('1'));
        let by_requires = || requires().map(|_| Given { value: "require".into(), origin: "PGREQUIRESSL" });
        let asks_for_more = |(option, name): &(&'static str, Option<&'static str>)| {
            let (value, origin) = match (last(option), name) {
                (Some(value), _) => (value.into(), *option),
                (None, Some(name)) => (variable(name)?, *name),
                (None, None) => return None,
            };
            let met = *option == MIN_VERSION && MET.iter().any(|version| value == *version);
            (!met).then_some((*option, origin))
        };
        let mode = given(MODE).or_else(by_requires);
        let disabled = mode.as_ref().is_some_and(|given| given.value == "disable");
        let (root, cert, key) = (given(ROOT), given(CERT), given(KEY));
        let all_named = root.is_some() && cert.is_some() && key.is_some();
        Parameters {
            // To ask for it may mean to ask the network.
            home: if disabled || all_named { None } else { variable("HOME").map(PathBuf::from) },
            mode,
            negotiation: given(NEGOTIATION),
            binding: given(BINDING),
            root,
            cert,
            key,
            unsupported: UNSUPPORTED.iter().find_map(asks_for_more),
        }
    }

    /// What connections are to do. Reads the files, if there is a server that can be reached by TCP.
    pub(super) fn security(
        self,
        connector: Option<Arc<dyn Connector>>,
        has_network: bool,
    ) -> Result<Security, PostgresConfigError> {
        let mode = self.mode(connector.is_some())?;
        let direct = self.direct(mode)?;
        let binding = self.binding()?;
        if mode == Mode::Disable && binding == ChannelBinding::Require {
            return Err(error("channel_binding", "is `require`, which takes TLS, and sslmode is disable"));
        }
        let connector = match connector {
            _ if mode == Mode::Disable => None,
            Some(connector) => {
                self.check_custom(mode)?;
                Some(connector)
            }
            None => self.own(mode, has_network)?,
        };
        Ok(Security { mode, direct, binding, connector })
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

    fn binding(&self) -> Result<ChannelBinding, PostgresConfigError> {
        let Some(given) = &self.binding else { return Ok(ChannelBinding::Prefer) };
        match given.value.to_str() {
            Some("disable") => Ok(ChannelBinding::Disable),
            Some("prefer") => Ok(ChannelBinding::Prefer),
            Some("require") => Ok(ChannelBinding::Require),
            _ => {
                let why =
                    format!("has an unknown value{}; there are disable, prefer and require", given.place());
                Err(error("channel_binding", why))
            }
        }
    }

    /// The first file, or option that nothing here can do, that the connection string itself names.
    fn in_string(&self) -> Option<&'static str> {
        let files = [&self.root, &self.cert, &self.key].into_iter().flatten().map(|given| given.origin);
        files.chain(self.unsupported.map(|(_, origin)| origin)).find(|origin| !origin.starts_with("PG"))
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
        // What the environment says is meant for those who have no connector.
        match self.in_string() {
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
        if let Some((option, origin)) = self.unsupported {
            let place = if origin == option { String::new() } else { format!(" (from {origin})") };
            return Err(error(option, format!("is not supported{place}: leave it out")));
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
        if let Some(option) = self.in_string() {
            return Err(needs_feature(option, "asks for TLS"));
        }
        if self.binding.as_ref().is_some_and(|given| given.value == "require") {
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

    /// The option, whoever said it.
    #[cfg(feature = "tls")]
    fn option(&self) -> &'static str {
        let of_variable = KNOWN.iter().find(|(_, variable)| *variable == self.origin);
        of_variable.map_or(self.origin, |(option, _)| option)
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
    /// Whether the log-in is to be bound to the encryption, which is the driver's to do.
    pub(super) binding: ChannelBinding,
    connector: Option<Arc<dyn Connector>>,
}

impl Security {
    /// Whether a certificate has to hold; `None` without encryption, and where it is the application's affair.
    pub(super) fn verifies(&self) -> Option<bool> {
        self.connector.as_ref()?.verifies()
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
