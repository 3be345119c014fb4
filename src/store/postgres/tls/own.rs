//! The crate's own connector.

use std::sync::Arc;

use parking_lot::Mutex;
use postgres::Socket;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::config_error::PostgresConfigError;
use super::connector::{self, Connector, Failure, Handshake};
use super::files::{Files, Stamp};
use super::verify::{Check, Context, Verifier};
use super::{Mode, error};

/// rustls with what the parameters say.
pub(super) struct Rustls {
    files: Files,
    mode: Mode,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    stamp: Stamp,
    connector: MakeRustlsConnect,
}

impl Rustls {
    /// Reads the files.
    pub(super) fn new(mode: Mode, files: Files) -> Result<Rustls, PostgresConfigError> {
        // The process may have a default of its own, or none.
        let provider = Arc::new(ring::default_provider());
        let loaded = Mutex::new(load(mode, &files, &provider)?);
        Ok(Rustls { files, mode, provider, loaded })
    }

    /// For a new connection: read again if a file has changed. Two files can't be replaced at once, so a failure may
    /// pass; but what was replaced is not used any more.
    fn current(&self) -> Result<MakeRustlsConnect, Failure> {
        let mut loaded = self.loaded.lock();
        if loaded.stamp != self.files.stamp() {
            let read = load(self.mode, &self.files, &self.provider);
            *loaded = read.map_err(|error| Failure::retryable(error.to_string()).with_source(error))?;
        }
        Ok(loaded.connector.clone())
    }
}

fn load(mode: Mode, files: &Files, provider: &Arc<CryptoProvider>) -> Result<Loaded, PostgresConfigError> {
    // Before they are read: what changes meanwhile is noticed next time.
    let stamp = files.stamp();
    let contents = files.read()?;
    let check = Check::of(mode, &files.root);
    let verifier = Verifier::new(check, contents.roots, contents.root_certificates, provider);
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| error("sslmode", format!("can't be had: {why}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match contents.client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(|why| files.key_mismatch(&why))?
        }
    };
    // Servers that are spoken to without asking insist on it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    // Every connection is verified by itself.
    config.resumption = Resumption::disabled();
    Ok(Loaded { stamp, connector: MakeRustlsConnect::new(config) })
}

impl Connector for Rustls {
    fn verifies(&self) -> Option<bool> {
        Some(Check::of(self.mode, &self.files.root) != Check::Nothing)
    }

    fn handshake(&self, host: &str, socket: Socket) -> Handshake {
        let connector = self.current();
        let context = Context::new(self.mode, &self.files.root, host);
        let host = host.to_owned();
        Box::pin(async move {
            let handshake = connector::handshake(connector?, host, socket);
            handshake.await.map_err(|error| context.judge(error))
        })
    }
}
