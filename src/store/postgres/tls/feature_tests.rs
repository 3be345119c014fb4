//! What the parameters come to where the crate has a connector of its own.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error as TlsError, RootCertStore};
use tempfile::TempDir;
use tenure_testground::Credentials;
use x509_cert::der::{Decode, Encode};
use x509_cert::{Certificate, Version};

use super::files::{Files, Root};
use super::verify::{Check, Context, Verifier};
use super::*;

/// A home with a certificate and its key.
struct Home(TempDir, Credentials);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap(), Credentials::self_signed(&["h"]));
        home.write("key.pem", &home.1.key, 0o600);
        home.write("cert.pem", &home.1.certificate, 0o644);
        home
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// With `@` for this directory.
    fn ways(&self, dsn: &str, variables: &[(&str, &str)]) -> Result<Vec<&'static str>, PostgresConfigError> {
        let here = |text: &str| text.replace('@', self.0.path().to_str().unwrap());
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, here(value))).collect();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
        ways(&here(dsn), &variables)
    }
}

/// Of another certificate.
fn other_key() -> String {
    Credentials::self_signed(&["h"]).key
}

#[test]
fn each_mode_has_its_ways() {
    let home = Home::new();
    for (dsn, variables, expected) in [
        ("host=h", &[][..], &["preferred"][..]),
        ("host=h sslmode=allow", &[], &["plain", "required"]),
        ("host=h sslmode=prefer sslrootcert=@/cert.pem", &[], &["preferred"]),
        ("host=h sslmode=require", &[], &["required"]),
        ("host=h sslmode=verify-ca sslrootcert=@/cert.pem", &[], &["required"]),
        ("host=h sslmode=verify-full sslrootcert=@/cert.pem", &[], &["required"]),
        ("host=h sslmode=verify-full", &[], &["required"]),
        ("host=h sslrootcert=system", &[], &["required"]),
        ("host=h sslmode=require sslnegotiation=direct", &[], &["direct"]),
        ("host=h sslmode=require sslcert=@/cert.pem sslkey=@/key.pem", &[], &["required"]),
        ("host=h", &[("PGSSLMODE", "require")], &["required"]),
        ("host=h sslmode=prefer", &[("PGSSLMODE", "require")], &["preferred"]),
        ("host=h sslmode=verify-ca", &[("PGSSLROOTCERT", "@/cert.pem")], &["required"]),
        ("host=h sslmode=require", &[("PGSSLNEGOTIATION", "direct")], &["direct"]),
        ("host=h", &[("PGSSLCERT", "@/cert.pem"), ("PGSSLKEY", "@/key.pem")], &["preferred"]),
        ("host=h channel_binding=require", &[], &["preferred"]),
        ("host=h ssl_min_protocol_version=TLSv1.2", &[], &["preferred"]),
        ("host=h", &[("PGREQUIRESSL", "1"), ("PGSSLMINPROTOCOLVERSION", "TLSv1.1")], &["required"]),
        ("host=h", &[("PGREQUIRESSL", "0")], &["preferred"]),
        ("host=h sslmode=prefer", &[("PGREQUIRESSL", "1")], &["preferred"]),
        // A socket is never encrypted, and nothing is read for it.
        ("host=/run sslmode=verify-full sslrootcert=/nonexistent", &[], &["plain"]),
        ("host=/run,h sslmode=require", &[], &["required"]),
    ] {
        let ways = home.ways(dsn, variables).unwrap_or_else(|error| panic!("{dsn} {variables:?}: {error}"));
        assert_eq!(ways, expected, "{dsn} {variables:?}");
    }
}

#[test]
fn what_protects_less_than_it_says_is_refused_by_name() {
    let home = Home::new();
    for (dsn, variables, field, text) in [
        ("host=h sslmode=require sslrootcert=system", &[][..], "sslrootcert", "takes sslmode=verify-full"),
        (
            "host=h sslmode=verify-ca",
            &[("PGSSLROOTCERT", "system")],
            "sslrootcert",
            "takes sslmode=verify-full",
        ),
        ("host=h sslmode=verify-ca", &[], "sslrootcert", "name a file, or use verify-full"),
        ("host=h sslcert=@/cert.pem", &[], "sslkey", "is missing"),
        ("host=h", &[("PGSSLKEY", "@/key.pem")], "sslcert", "is missing"),
        ("host=h sslcrl=@/crl.pem", &[], "sslcrl", "is not supported"),
        ("host=h sslpassword=S3cr3t", &[], "sslpassword", "is not supported"),
        ("host=h ssl_min_protocol_version=TLSv1.3", &[], "ssl_min_protocol_version", "is not supported"),
        ("host=h", &[("PGSSLCRL", "/nonexistent")], "sslcrl", "not supported (from PGSSLCRL)"),
        ("host=h", &[("PGSSLCRLDIR", "/nonexistent")], "sslcrldir", "not supported (from PGSSLCRLDIR)"),
        ("host=/run requiressl=1", &[], "requiressl", "is not supported"),
    ] {
        let error = home.ways(dsn, variables).unwrap_err();
        assert_eq!(error.field(), field, "{dsn}: {error}");
        assert!(error.to_string().contains(text) && !error.to_string().contains("S3cr3t"), "{dsn}: {error}");
    }
}

#[test]
fn files_that_are_no_good_are_refused_by_name() {
    let home = Home::new();
    home.write("open.pem", &other_key(), 0o644);
    home.write("other.pem", &other_key(), 0o600);
    home.write("empty.pem", "", 0o600);
    home.write("words.pem", "S3cr3t", 0o600);
    home.write("garbled.pem", "-----BEGIN CERTIFICATE-----\nS3cr3t%\n-----END CERTIFICATE-----\n", 0o600);
    home.write("short.pem", "-----BEGIN CERTIFICATE-----\nTUFE\n-----END CERTIFICATE-----\n", 0o600);
    home.write("sealed.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nTUFE\n", 0o600);
    let root = |name| format!("host=h sslmode=verify-full sslrootcert=@/{name}");
    let client = |cert, key| format!("host=h sslmode=require sslcert=@/{cert} sslkey=@/{key}");
    for (dsn, field, text) in [
        (root("nothing.pem"), "sslrootcert", "can't be read: No such file"),
        (root(""), "sslrootcert", "is not a regular file"),
        ("host=h sslmode=require sslrootcert=/dev/zero".to_owned(), "sslrootcert", "is not a regular file"),
        (
            "host=h sslmode=require sslcert=/dev/zero sslkey=@/key.pem".to_owned(),
            "sslcert",
            "is not a regular",
        ),
        (root("empty.pem"), "sslrootcert", "has no certificate in PEM form"),
        (root("words.pem"), "sslrootcert", "has no certificate in PEM form"),
        (root("key.pem"), "sslrootcert", "has no certificate in PEM form"),
        (root("garbled.pem"), "sslrootcert", "is not in PEM form"),
        (root("short.pem"), "sslrootcert", "has a bad certificate"),
        ("host=h sslmode=require sslrootcert=@/nothing.pem".to_owned(), "sslrootcert", "can't be read"),
        (client("nothing.pem", "key.pem"), "sslcert", "can't be read"),
        (client("words.pem", "key.pem"), "sslcert", "has no certificate"),
        (client("cert.pem", "nothing.pem"), "sslkey", "can't be read"),
        (client("cert.pem", ""), "sslkey", "is not a regular file"),
        (client("cert.pem", "open.pem"), "sslkey", "chmod 0600"),
        (client("cert.pem", "empty.pem"), "sslkey", "has no private key"),
        (client("cert.pem", "words.pem"), "sslkey", "has no private key"),
        (client("cert.pem", "sealed.pem"), "sslkey", "is encrypted"),
        (client("cert.pem", "other.pem"), "sslkey", "does not go with sslcert"),
    ] {
        let error = home.ways(&dsn, &[]).expect_err(&dsn);
        assert_eq!(error.field(), field, "{dsn}: {error}");
        assert!(error.to_string().contains(text) && !error.to_string().contains("S3cr3t"), "{dsn}: {error}");
        let file = if dsn.contains("/dev/zero") { "/dev/zero" } else { home.0.path().to_str().unwrap() };
        assert!(error.to_string().contains(file), "the file is not named: {error}");
    }
}

#[test]
fn a_key_in_place_of_its_file_is_not_shown() {
    let home = Home::new();
    let key = "-----BEGIN PRIVATE KEY-----\nS3cr3t\n-----END PRIVATE KEY-----\n";
    let dsn = format!("host=h sslmode=require sslcert=@/cert.pem sslkey='{key}'");
    let url = format!("postgres://h/d?sslmode=require&sslrootcert={}", key.replace('\n', "%0A"));
    for (dsn, variables, field, text) in [
        (&*dsn, &[][..], "sslkey", "is in PEM form itself: name a file"),
        (&*url, &[], "sslrootcert", "is in PEM form itself: name a file"),
        ("host=h sslcert=@/cert.pem", &[("PGSSLKEY", key)], "sslkey", "itself (from PGSSLKEY): name a file"),
    ] {
        let error = home.ways(dsn, variables).unwrap_err();
        assert_eq!(error.field(), field, "{error}");
        assert!(error.to_string().contains(text) && !error.to_string().contains("S3cr3t"), "{error}");
    }
}

#[test]
fn what_libpq_looks_for_at_home_is_found_there() {
    let home = Home::new();
    let at_home = [("HOME", "@")];
    assert_eq!(home.ways("host=h sslmode=verify-ca", &at_home).unwrap_err().field(), "sslrootcert");
    home.write(".postgresql/root.crt", &home.1.certificate, 0o644);
    assert_eq!(home.ways("host=h sslmode=verify-ca", &at_home).unwrap(), ["required"]);
    home.write(".postgresql/postgresql.crt", &home.1.certificate, 0o644);
    assert_eq!(home.ways("host=h", &at_home).unwrap_err().field(), "sslkey");
    home.write(".postgresql/postgresql.key", &other_key(), 0o600);
    assert_eq!(home.ways("host=h", &at_home).unwrap_err().field(), "sslkey", "another certificate's");
    home.write(".postgresql/postgresql.key", &home.1.key, 0o600);
    assert_eq!(home.ways("host=h", &at_home).unwrap(), ["preferred"]);
    home.write(".postgresql/root.crl", "", 0o600);
    assert_eq!(home.ways("host=h", &at_home).unwrap_err().field(), "sslcrl", "which libpq would heed");
    fs::remove_file(home.path(".postgresql/root.crl")).unwrap();
    home.write(".postgresql/root.crt", "", 0o600);
    assert_eq!(home.ways("host=h sslmode=require", &at_home).unwrap_err().field(), "sslrootcert");
}

/// What is said of a certificate where none has to hold.
fn complaint(certificate: &[u8]) -> Option<String> {
    let verifier =
        Verifier::new(Check::Nothing, RootCertStore::empty(), Vec::new(), &ring::default_provider());
    let name = ServerName::try_from("h").unwrap();
    let verified =
        verifier.verify_server_cert(&CertificateDer::from(certificate), &[], &name, &[], UnixTime::now());
    let context = Context::new(Mode::Require, &Root::Nobody, "h");
    verified.err().map(|error| context.judge(Box::new(error)).to_string())
}

/// What reads differently is reported again.
#[test]
fn a_certificate_whose_time_has_not_come_or_is_over_reads_the_same_every_time() {
    let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let context = Context::new(Mode::VerifyFull, &Root::System, "h");
    let read = |why: CertificateError| context.judge(Box::new(TlsError::InvalidCertificate(why))).to_string();
    let expired = |time| CertificateError::ExpiredContext { time: at(time), not_after: at(100) };
    assert_eq!(read(expired(200)), read(expired(201)));
    let early = |time| CertificateError::NotValidYetContext { time: at(time), not_before: at(300) };
    assert_eq!(read(early(200)), read(early(201)));
    assert_ne!(read(expired(200)), read(early(200)));
}

#[test]
fn certificates_of_old_versions_are_refused_with_what_to_do() {
    let own = Credentials::self_signed(&["h"]);
    let der = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    assert_eq!(complaint(&der), None);
    let mut old = Certificate::from_der(&der).unwrap();
    old.tbs_certificate.version = Version::V1;
    old.tbs_certificate.extensions = None;
    let said = complaint(&old.to_der().unwrap()).unwrap();
    let expected = "the server's certificate does not hold, sslmode=require: it is not of version 3: make it anew \
                    with extensions, subjectAltName among them";
    assert_eq!(said, expected);
    assert_eq!(complaint(b"S3cr3t"), None, "for rustls to refuse");
}

#[test]
fn a_file_that_grows_within_one_tick_of_the_kernels_clock_has_changed() {
    let home = Home::new();
    let path = home.path("cert.pem");
    let parameters = Parameters::read(&[("sslrootcert", &path)], &|_| None);
    let files = Files::find(&parameters, Mode::VerifyFull).unwrap();
    for i in 0..500 {
        fs::write(&path, "half").unwrap();
        let half = files.stamp();
        assert_eq!(half, files.stamp(), "{i}");
        fs::File::options().append(true).open(&path).unwrap().write_all(b" and half").unwrap();
        assert_ne!(half, files.stamp(), "{i}");
    }
}

#[test]
fn a_key_of_roots_may_be_for_a_group() {
    let home = Home::new();
    let is_root = fs::metadata(home.path("key.pem")).unwrap().uid() == 0;
    let dsn = "host=h sslcert=@/cert.pem sslkey=@/key.pem";
    for (mode, for_root) in [(0o400, true), (0o600, true), (0o640, true), (0o660, false), (0o604, false)] {
        fs::set_permissions(home.path("key.pem"), fs::Permissions::from_mode(mode)).unwrap();
        let fits = if is_root { for_root } else { mode & 0o077 == 0 };
        assert_eq!(home.ways(dsn, &[]).is_ok(), fits, "{mode:o}");
    }
}
