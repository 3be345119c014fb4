//! Certificates that are made when a test needs them.

use crate::scene;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use std::path::{Path, PathBuf};

/// A certificate and its key, both in PEM form.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Credentials {
    /// A certificate for these names that nobody but itself has signed, of the kind that PostgreSQL's manual tells to
    /// make: it says of itself that it may sign others.
    pub fn self_signed(names: &[&str]) -> Credentials {
        let mut params = params(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Credentials::by_itself(&params)
    }

    /// The same, valid from the beginning of one year to that of another.
    pub fn self_signed_between(names: &[&str], from: i32, to: i32) -> Credentials {
        let mut params = params(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        Credentials::by_itself(&params)
    }

    fn by_itself(params: &CertificateParams) -> Credentials {
        let key = key();
        let certificate = params.self_signed(&key).expect("a certificate signed by itself");
        Credentials { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Puts both into files: `NAME.crt`, and `NAME.key` that nobody else may read. Gives their paths.
    pub fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let certificate = directory.join(format!("{name}.crt"));
        let key = directory.join(format!("{name}.key"));
        for (path, text, mode) in [(&certificate, &self.certificate, 0o644), (&key, &self.key, 0o600)] {
            std::fs::write(path, text).unwrap_or_else(|error| panic!("no {}: {error}", path.display()));
            scene::set_mode(path, mode);
        }
        (certificate, key)
    }

    /// The same for a server, whose user gets the files.
    pub(crate) fn write_for_server(&self, directory: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.write(directory, "server");
        scene::give_away(&certificate);
        scene::give_away(&key);
        (certificate, key)
    }
}

/// Somebody who signs certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one of this name.
    pub fn new(name: &str) -> Authority {
        Authority::with(name, params(&[]))
    }

    /// The same, its own certificate over since the year 2020.
    pub fn expired(name: &str) -> Authority {
        let mut params = params(&[]);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        Authority::with(name, params)
    }

    fn with(name: &str, mut params: CertificateParams) -> Authority {
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, key()).expect("an authority's certificate"))
    }

    /// Its own certificate.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Puts its certificate into a file, and gives the path.
    pub fn write(&self, directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, self.certificate())
            .unwrap_or_else(|error| panic!("no {}: {error}", path.display()));
        path
    }

    /// A certificate for a server with these names, host names or addresses.
    pub fn server(&self, names: &[&str]) -> Credentials {
        self.sign(&mut params(names), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// The same, over since the year 2020.
    pub fn expired_server(&self, names: &[&str]) -> Credentials {
        let mut params = params(names);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(&mut params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client, whose common name is that of its role.
    pub fn client(&self, role: &str) -> Credentials {
        let mut params = params(&[]);
        params.distinguished_name.push(DnType::CommonName, role);
        self.sign(&mut params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, params: &mut CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Credentials {
        params.extended_key_usages = vec![purpose];
        let key = key();
        let certificate = params.signed_by(&key, &self.0).expect("a signed certificate");
        Credentials { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names in ASCII");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
