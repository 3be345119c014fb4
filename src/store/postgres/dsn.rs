//! The connection string: parsed at construction, with an answer to everything that can be answered then.
//!
//! No message repeats any part of the string that could belong to the password.

use std::ffi::OsStr;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postgres::Config;
use postgres::config::{LoadBalanceHosts, SslMode, SslNegotiation};

use super::config_error::PostgresConfigError;
use super::tls::{self, Connector, Environment, Parameters, Security};

/// One server of the connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: Host,
    pub(super) port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    /// An address, and what to call it.
    Address(IpAddr, String),
    /// The directory of the socket.
    Unix(PathBuf),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) | Host::Address(_, name) if name.contains(':') => {
                write!(f, "[{name}]:{}", self.port)
            }
            Host::Name(name) | Host::Address(_, name) => write!(f, "{name}:{}", self.port),
            Host::Unix(directory) => write!(f, "{}", self.socket_in(directory).display()),
        }
    }
}

impl Server {
    /// Where the server listens whose sockets are in this directory.
    pub(super) fn socket_in(&self, directory: &Path) -> PathBuf {
        directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// A connection string, understood. Not `Debug`: it holds the password.
pub(super) struct Dsn {
    /// Never empty.
    pub(super) servers: Vec<Server>,
    /// Everything but the servers.
    pub(super) base: Config,
    pub(super) connect_timeout: Option<Duration>,
    /// Try the servers in a random order.
    pub(super) shuffled: bool,
    pub(super) security: Security,
}

impl Dsn {
    /// What the string does not say of TLS, and the password if it has none, comes from the environment
    /// (`PGPASSWORD` and so on). Reads the files that are named for TLS.
    pub(super) fn parse(
        dsn: &str,
        environment: Environment<'_>,
        connector: Option<Arc<dyn Connector>>,
    ) -> Result<Dsn, PostgresConfigError> {
        check_userinfo(dsn)?;
        check_environment(environment)?;
        let (rest, tls) = without_tls_options(dsn, environment)?;
        let config: Config = rest.parse().map_err(|error| invalid(&error))?;
        let servers = servers(&config)?;
        let mut base = copy_without_servers(&config);
        if let (None, Some(password)) = (config.get_password(), environment("PGPASSWORD")) {
            base.password(password.as_encoded_bytes());
        }
        for (field, text) in [
            ("user", config.get_user()),
            ("dbname", config.get_dbname()),
            ("options", config.get_options()),
            ("application_name", config.get_application_name()),
        ] {
            if text.is_some_and(|text| text.contains('\0')) {
                return Err(PostgresConfigError::new(field, "contains a NUL byte"));
            }
        }
        let has_network = servers.iter().any(|server| !matches!(server.host, Host::Unix(_)));
        let security = tls.security(connector, has_network)?;
        base.channel_binding(security.binding);
        Ok(Dsn {
            security,
            servers,
            base,
            connect_timeout: config.get_connect_timeout().copied(),
            shuffled: config.get_load_balance_hosts() == LoadBalanceHosts::Random,
        })
    }
}

/// The driver's setters only add hosts, and it sees one at a time.
fn copy_without_servers(config: &Config) -> Config {
    let mut base = Config::new();
    // Our connector is asked for in the guise of TLS; see `connection`.
    base.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    // The driver's own callback logs on the calling thread.
    base.notice_callback(|_| {});
    if let Some(user) = config.get_user() {
        base.user(user);
    }
    if let Some(password) = config.get_password() {
        base.password(password);
    }
    if let Some(dbname) = config.get_dbname() {
        base.dbname(dbname);
    }
    if let Some(options) = config.get_options() {
        base.options(options);
    }
    if let Some(name) = config.get_application_name() {
        base.application_name(name);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        base.tcp_user_timeout(*timeout);
    }
    base.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        base.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        base.keepalives_retries(retries);
    }
    base.target_session_attrs(config.get_target_session_attrs());
    base
}

fn servers(config: &Config) -> Result<Vec<Server>, PostgresConfigError> {
    use postgres::config::Host as Named;
    let (names, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = names.len().max(addresses.len());
    if count == 0 {
        return Err(PostgresConfigError::new("host", "is missing from the connection string"));
    }
    if !names.is_empty() && !addresses.is_empty() && names.len() != addresses.len() {
        let complaint = format!("names {} addresses for {} hosts", addresses.len(), names.len());
        return Err(PostgresConfigError::new("hostaddr", complaint));
    }
    if ports.len() > 1 && ports.len() != count {
        let complaint = format!("names {} ports for {count} hosts", ports.len());
        return Err(PostgresConfigError::new("port", complaint));
    }
    let server = |i: usize| {
        let host = match (addresses.get(i), names.get(i)) {
            (Some(address), Some(Named::Tcp(name))) => Host::Address(*address, checked(name)?),
            (Some(address), _) => Host::Address(*address, address.to_string()),
            (None, Some(Named::Unix(directory))) => Host::Unix(directory.clone()),
            (None, Some(Named::Tcp(name))) => Host::Name(checked(name)?),
            (None, None) => return Err(PostgresConfigError::new("host", "is missing")),
        };
        let port = ports.get(i).or_else(|| ports.first()).copied().unwrap_or(5432);
        Ok(Server { host, port })
    };
    (0..count).map(server).collect()
}

/// A stray piece of a password that was not percent-encoded must not become a host that messages name.
fn checked(name: &str) -> Result<String, PostgresConfigError> {
    let fits = |c: char| c.is_alphanumeric() || ".-_:%".contains(c);
    if name.is_empty() {
        Err(PostgresConfigError::new("host", "is empty"))
    } else if name.chars().all(fits) {
        Ok(name.to_owned())
    } else {
        let complaint = "contains a character that no host name has; in a URL, special characters of the \
                         password must be percent-encoded";
        Err(PostgresConfigError::new("host", complaint))
    }
}

/// The driver takes everything up to the first `@` for user and password.
fn check_userinfo(dsn: &str) -> Result<(), PostgresConfigError> {
    let Some((userinfo, rest)) = url_rest(dsn).and_then(|rest| rest.split_once('@')) else { return Ok(()) };
    // What follows the first `@` may be the rest of a password, and hosts are shown.
    let complaint = if rest.contains('@') {
        "has more than one '@'"
    } else if userinfo.contains(['/', '?']) {
        "has an '@' behind a '/' or a '?'"
    } else {
        return Ok(());
    };
    let advice = "in a URL such characters must be percent-encoded in names, passwords and values";
    Err(PostgresConfigError::new("dsn", format!("{complaint}; {advice}")))
}

/// What libpq insists on where the environment says so, and the driver can't: a log-in of this kind only (no password
/// in plain text to whoever asks for it), a server of this user, GSSAPI.
fn check_environment(environment: Environment<'_>) -> Result<(), PostgresConfigError> {
    let variables =
        [("PGREQUIREAUTH", "require_auth"), ("PGREQUIREPEER", "requirepeer"), ("PGGSSENCMODE", "gssencmode")];
    for (variable, field) in variables {
        let content_without =
            |value: &OsStr| value.is_empty() || (field == "gssencmode" && value != "require");
        if environment(variable).is_some_and(|value| !content_without(&value)) {
            return Err(PostgresConfigError::new(
                field,
                format!("is not supported (from {variable}): unset it"),
            ));
        }
    }
    Ok(())
}

fn url_rest(dsn: &str) -> Option<&str> {
    dsn.strip_prefix("postgres://").or_else(|| dsn.strip_prefix("postgresql://"))
}

/// Takes out what concerns TLS: the driver knows only part of it.
fn without_tls_options(
    dsn: &str,
    environment: Environment<'_>,
) -> Result<(String, Parameters), PostgresConfigError> {
    let options = if url_rest(dsn).is_some() { url_options(dsn) } else { keyword_options(dsn) };
    if options.iter().any(|option| option.key.is_empty()) {
        // The driver would take it for the end of the string.
        return Err(PostgresConfigError::new("dsn", "has a value without a keyword"));
    }
    let pairs: Vec<_> = options.iter().map(|option| (&*option.key, &*option.value)).collect();
    let parameters = Parameters::read(&pairs, environment);
    let mut rest = dsn.to_owned();
    for option in options.iter().rev().filter(|option| tls::is_ours(&option.key)) {
        rest.replace_range(option.place.clone(), "");
    }
    Ok((rest, parameters))
}

/// What libpq or other clients take, and the driver does not.
const FOREIGN: [&str; 20] = [
    "client_encoding",
    "connection_limit",
    "currentSchema",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "krbsrvname",
    "lock_timeout",
    "max_protocol_version",
    "min_protocol_version",
    "passfile",
    "pgbouncer",
    "pool_size",
    "replication",
    "require_auth",
    "schema",
    "search_path",
    "service",
    "statement_timeout",
];

/// The driver's complaint; it names options, and sometimes a character of what it could not read.
fn invalid(error: &postgres::Error) -> PostgresConfigError {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let complaint = match (cause.strip_prefix("invalid value for option "), cause.strip_prefix("unknown option ")) {
        (Some(option), _) => format!("has an invalid value for the option {option}"),
        (_, Some(option)) => {
            // What it takes for the name of an option may be a part of a password in which something is not escaped.
            let known = FOREIGN.into_iter().find(|foreign| *foreign == option.trim_matches('`'));
            let named = known.map_or(" that is not known".to_owned(), |name| format!(", {name}, that is not supported"));
            format!("has a parameter{named}: leave it out, or escape what is not meant as one (& in a URL is %26)")
        }
        _ => "is neither a URL (postgres://user:password@host/database) nor a list of keyword=value pairs that the driver \
              can read"
            .to_owned(),
    };
    PostgresConfigError::new("dsn", complaint)
}

/// An option of the string and its place there, separator included.
struct OptionPlace {
    key: String,
    value: String,
    place: Range<usize>,
}

fn url_options(dsn: &str) -> Vec<OptionPlace> {
    let Some(query) = dsn.find('?') else { return Vec::new() };
    let mut start = query + 1;
    let mut options = Vec::new();
    for pair in dsn[start..].split('&') {
        let end = (start + pair.len() + 1).min(dsn.len());
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        options.push(OptionPlace {
            key: percent_decoded(key),
            value: percent_decoded(value),
            place: start..end,
        });
        start = end;
    }
    options
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Stops at the first thing that it can't read; the driver will complain about that.
fn keyword_options(dsn: &str) -> Vec<OptionPlace> {
    let mut options = Vec::new();
    let mut at = skip_spaces(dsn, 0);
    while let Some(equals) = dsn[at..].find('=').map(|offset| at + offset) {
        let key = dsn[at..equals].trim_end();
        let (value, end) = keyword_value(dsn, skip_spaces(dsn, equals + 1));
        options.push(OptionPlace { key: key.to_owned(), value, place: at..end });
        at = skip_spaces(dsn, end);
    }
    options
}

fn skip_spaces(dsn: &str, at: usize) -> usize {
    dsn.len() - dsn[at..].trim_start().len()
}

/// The value that starts at `at`, in quotes or up to a space, and where it ends.
fn keyword_value(dsn: &str, at: usize) -> (String, usize) {
    let quoted = dsn[at..].starts_with('\'');
    let mut value = String::new();
    let mut escaped = false;
    for (offset, c) in dsn[at..].char_indices().skip(usize::from(quoted)) {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '\'' if quoted => return (value, at + offset + 1),
            c if c.is_whitespace() && !quoted => return (value, at + offset),
            c => value.push(c),
        }
    }
    (value, dsn.len())
}

#[cfg(test)]
#[path = "dsn_tests.rs"]
mod tests;
