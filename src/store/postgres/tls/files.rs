//! The files that the parameters name: which they are, what is in them, and whether they have changed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::super::config_error::PostgresConfigError;
use super::{Mode, Parameters, error};

/// Where the certificates come from that a server's own has to be signed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Nothing has to be signed by anybody.
    Nobody,
    /// Whomever the system trusts.
    System,
    File(PathBuf),
}

#[derive(Debug)]
pub(super) struct Files {
    pub(super) root: Root,
    /// Our own certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
}

/// What is in the files.
pub(super) struct Contents {
    pub(super) roots: RootCertStore,
    /// As they are in the file, so that a certificate can be recognised.
    pub(super) root_certificates: Vec<CertificateDer<'static>>,
    pub(super) client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// The state of a file: it changes with whatever is written to it, and when another one takes its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp(Vec<Option<([u64; 3], [i64; 4])>>);

const SYSTEM_TAKES: &str = "is `system`, with which anybody's certificate will do unless the name is checked too: it \
                            takes sslmode=verify-full";
const CA_TAKES: &str = "is missing, and sslmode=verify-ca needs to know whose signature counts: name a file, or use \
                        verify-full";

impl Files {
    /// As libpq, looks into the directory `.postgresql` at home for what is not named.
    pub(super) fn find(parameters: &Parameters, mode: Mode) -> Result<Files, PostgresConfigError> {
        for given in [&parameters.root, &parameters.cert, &parameters.key].into_iter().flatten() {
            // Some other clients take it so. It must not be shown as the name of a file that is not there.
            if given.value.to_string_lossy().contains("-----BEGIN") {
                let complaint = format!("is in PEM form itself{}: name a file that has it", given.place());
                return Err(error(given.option(), complaint));
            }
        }
        let at_home = |name: &str| parameters.home.as_ref().map(|home| home.join(".postgresql").join(name));
        let there = |name: &str| at_home(name).filter(|path| path.exists());
        let root = match &parameters.root {
            Some(given) if given.value == "system" && mode == Mode::VerifyFull => Root::System,
            Some(given) if given.value == "system" => return Err(error("sslrootcert", SYSTEM_TAKES)),
            Some(given) => Root::File(given.path()),
            None => match (there("root.crt"), mode) {
                (Some(path), _) => Root::File(path),
                (None, Mode::VerifyFull) => Root::System,
                (None, Mode::VerifyCa) => return Err(error("sslrootcert", CA_TAKES)),
                (None, _) => Root::Nobody,
            },
        };
        if let (Root::File(_), Some(path)) = (&root, there("root.crl")) {
            return Err(in_file("sslcrl", &path, "libpq would heed, and revocation lists are not supported"));
        }
        let cert = parameters.cert.as_ref().map(super::Given::path).or_else(|| there("postgresql.crt"));
        let key = parameters.key.as_ref().map(super::Given::path);
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(cert), None) => match there("postgresql.key") {
                Some(key) => Some((cert, key)),
                None => return Err(error("sslkey", "is missing, and sslcert is useless without it")),
            },
            (None, Some(_)) => return Err(error("sslcert", "is missing, and sslkey is useless without it")),
            (None, None) => None,
        };
        Ok(Files { root, client })
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let root = if let Root::File(path) = &self.root { Some(path) } else { None };
        let client = self.client.iter().flat_map(|(cert, key)| [cert, key]);
        root.into_iter().chain(client).map(PathBuf::as_path)
    }

    pub(super) fn stamp(&self) -> Stamp {
        // The size too: the kernel's times go on in steps, and a file may be read between two writes within one.
        let stamp = |m: Metadata| {
            ([m.dev(), m.ino(), m.len()], [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()])
        };
        Stamp(self.paths().map(|path| fs::metadata(path).ok().map(stamp)).collect())
    }

    /// Reads them all.
    pub(super) fn read(&self) -> Result<Contents, PostgresConfigError> {
        let root_certificates = match &self.root {
            Root::Nobody => Vec::new(),
            Root::System => system_roots()?,
            Root::File(path) => certificates("sslrootcert", path)?,
        };
        let mut roots = RootCertStore::empty();
        if let Root::File(path) = &self.root {
            for certificate in &root_certificates {
                roots
                    .add(certificate.clone())
                    .map_err(|why| in_file("sslrootcert", path, format!("has a bad certificate: {why}")))?;
            }
        } else {
            // A system may have some that are of no use.
            roots.add_parsable_certificates(root_certificates.iter().cloned());
        }
        let client = match &self.client {
            None => None,
            Some((cert, key)) => Some((certificates("sslcert", cert)?, private_key(key)?)),
        };
        Ok(Contents { roots, root_certificates, client })
    }

    pub(super) fn key_mismatch(&self, why: &rustls::Error) -> PostgresConfigError {
        let key = self.client.as_ref().map_or_else(PathBuf::new, |(_, key)| key.clone());
        in_file("sslkey", &key, format!("does not go with sslcert: {why}"))
    }
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, PostgresConfigError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        let complaint =
            format!("is missing, and this system has no certificates of its own{why}: name a file");
        return Err(error("sslrootcert", complaint));
    }
    Ok(found.certs)
}

fn in_file(option: &'static str, path: &Path, complaint: impl std::fmt::Display) -> PostgresConfigError {
    error(option, format!("names {}, which {complaint}", path.display()))
}

fn certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, PostgresConfigError> {
    let text = read(option, path)?;
    let certificates: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(in_file(option, path, "has no certificate in PEM form"))
        }
        Ok(certificates) => Ok(certificates),
        // Of a file that may be a key by mistake nothing is repeated.
        Err(_) => Err(in_file(option, path, "is not in PEM form")),
    }
}

/// The first key; none that others may read, as libpq.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PostgresConfigError> {
    let refused = |why: &str| in_file("sslkey", path, why);
    let metadata = regular("sslkey", path)?;
    let too_open = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & too_open != 0 {
        return Err(refused("others can get at: chmod 0600 (0640 will do if it belongs to root)"));
    }
    let text = read("sslkey", path)?;
    if text.windows(9).any(|window| window == b"ENCRYPTED") {
        return Err(refused("is encrypted, and passphrases are not supported"));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| refused("has no private key in PEM form"))
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, PostgresConfigError> {
    regular(option, path)?;
    fs::read(path).map_err(|why| unreadable(option, path, &why))
}

/// Whoever opens a pipe waits for a writer, and a device may never end.
fn regular(option: &'static str, path: &Path) -> Result<Metadata, PostgresConfigError> {
    let metadata = fs::metadata(path).map_err(|why| unreadable(option, path, &why))?;
    if metadata.is_file() { Ok(metadata) } else { Err(in_file(option, path, "is not a regular file")) }
}

fn unreadable(option: &'static str, path: &Path, why: &io::Error) -> PostgresConfigError {
    in_file(option, path, format!("can't be read: {why}"))
}
