//! What a server's certificate is held against, and what is said of one that fails.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error as TlsError, OtherError, RootCertStore,
    SignatureScheme,
};
use x509_cert::der::Decode;
use x509_cert::{Certificate, Version};

use super::Mode;
use super::connector::{Failure, network_cause};
use super::files::Root;

/// How much of a certificate is looked at. Whether the server has its key always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    /// Who signed it, and its dates.
    Chain,
    ChainAndName,
}

impl Check {
    /// As with libpq, whoever has the roots checks the chain also where only encryption was asked for.
    pub(super) fn of(mode: Mode, root: &Root) -> Check {
        match (mode, root) {
            (Mode::VerifyFull, _) => Check::ChainAndName,
            (Mode::VerifyCa, _) | (_, Root::File(_) | Root::System) => Check::Chain,
            (_, Root::Nobody) => Check::Nothing,
        }
    }
}

#[derive(Debug)]
pub(super) struct Verifier {
    check: Check,
    roots: RootCertStore,
    root_certificates: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(
        check: Check,
        roots: RootCertStore,
        root_certificates: Vec<CertificateDer<'static>>,
        provider: &CryptoProvider,
    ) -> Verifier {
        let algorithms = provider.signature_verification_algorithms;
        Verifier { check, roots, root_certificates, algorithms }
    }

    fn check_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), TlsError> {
        // A server's self-signed certificate, as PostgreSQL's manual tells to make one, says of itself that it may
        // sign others; rustls wants none of that in a server, and no signature counts for more than being named.
        if self.root_certificates.iter().any(|root| root == end_entity) {
            return check_dates(end_entity, now);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
    }
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), TlsError> {
    let parsed = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.tbs_certificate.validity;
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired.into());
    }
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet.into());
    }
    Ok(())
}

/// rustls reads version 3 only, and says no more than that. Where nothing has to hold it still needs the key in it.
fn check_version(certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
    match Certificate::from_der(certificate) {
        Ok(parsed) if parsed.tbs_certificate.version != Version::V3 => {
            Err(CertificateError::Other(OtherError(Arc::new(OldVersion))).into())
        }
        // What can't be read is rustls's to refuse.
        _ => Ok(()),
    }
}

#[derive(Debug)]
struct OldVersion;

impl fmt::Display for OldVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not of version 3: make it anew with extensions, subjectAltName among them")
    }
}

impl Error for OldVersion {}

/// A signature in the handshake is told from one in a certificate: rustls calls both wrong.
fn without_its_key(error: TlsError) -> TlsError {
    match error {
        TlsError::InvalidCertificate(CertificateError::BadSignature) => {
            CertificateError::ApplicationVerificationFailure.into()
        }
        error => error,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        check_version(end_entity)?;
        if self.check != Check::Nothing {
            self.check_chain(end_entity, intermediates, now)?;
        }
        if self.check == Check::ChainAndName {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms).map_err(without_its_key)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms).map_err(without_its_key)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What a message about a failed handshake has to name.
pub(super) struct Context {
    mode: Mode,
    roots: String,
    host: String,
}

impl Context {
    pub(super) fn new(mode: Mode, root: &Root, host: &str) -> Context {
        let roots = match root {
            Root::Nobody => String::new(),
            Root::System => "the system's (sslrootcert=system)".to_owned(),
            Root::File(path) => format!("sslrootcert={}", path.display()),
        };
        Context { mode, roots, host: host.to_owned() }
    }

    pub(super) fn judge(&self, error: Box<dyn Error + Send + Sync>) -> Failure {
        let failure = match cause(&*error) {
            Some(TlsError::InvalidCertificate(why)) => Failure::fatal(self.bad_certificate(why)),
            Some(TlsError::AlertReceived(alert)) => refusal(*alert),
            Some(why @ (TlsError::PeerIncompatible(_) | TlsError::NoApplicationProtocol)) => {
                Failure::fatal(format!("the server has no version or cipher in common with us: {why}"))
            }
            Some(why) => Failure::retryable(format!("the handshake failed: {why}")),
            // The name is the only thing that is looked at before anything is sent.
            None if network_cause(&*error).is_none() => {
                Failure::fatal(format!("the host {} is no name that a certificate can have", self.host))
            }
            None => Failure::retryable(format!("the handshake failed: {error}")),
        };
        failure.with_source(error)
    }

    fn bad_certificate(&self, why: &CertificateError) -> String {
        let (mode, roots, host) = (self.mode.name(), &self.roots, &self.host);
        match why {
            CertificateError::UnknownIssuer => {
                format!(
                    "nobody among {roots} has signed the server's certificate: name the authority that has"
                )
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
                "the server's certificate is not for the host {host}, as sslmode={mode} wants it: name a host that it \
                 is for, or give the server another one ({why})"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                // Nothing that changes with time: it is reported again where it reads differently.
                "the server's certificate has expired: give it a new one, or see to our clock".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: give it another, or see to our clock".to_owned()
            }
            CertificateError::BadSignature => format!(
                "a signature in the server's certificates is wrong: there may be an authority of the same name, with \
                 another key, among {roots}"
            ),
            CertificateError::ApplicationVerificationFailure => {
                "the server's signature is not of its certificate's key: somebody may be in between"
                    .to_owned()
            }
            why => {
                let against = if roots.is_empty() { String::new() } else { format!(" against {roots}") };
                let why = match why {
                    CertificateError::Other(why) => why.0.to_string(),
                    why => why.to_string(),
                };
                format!("the server's certificate does not hold{against}, sslmode={mode}: {why}")
            }
        }
    }
}

/// The server's complaint behind a failure to read, where there is one. In TLS 1.3 it comes only when the handshake
/// is over for us.
pub(in super::super) fn alert(error: &io::Error) -> Option<Failure> {
    match cause(error) {
        Some(TlsError::AlertReceived(alert)) => Some(refusal(*alert)),
        _ => None,
    }
}

fn refusal(alert: AlertDescription) -> Failure {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, HandshakeFailure, InsufficientSecurity, NoApplicationProtocol, ProtocolVersion,
        UnknownCA, UnrecognisedName, UnsupportedCertificate,
    };
    match alert {
        BadCertificate
        | CertificateExpired
        | CertificateRequired
        | CertificateRevoked
        | CertificateUnknown
        | UnknownCA
        | UnsupportedCertificate
        | AccessDenied => Failure::fatal(format!(
            "the server does not accept our certificate ({alert:?}): see to sslcert and sslkey"
        )),
        HandshakeFailure
        | InsufficientSecurity
        | NoApplicationProtocol
        | ProtocolVersion
        | UnrecognisedName => Failure::fatal(format!("the server refuses the handshake: {alert:?}")),
        _ => Failure::retryable(format!("the server broke the handshake off: {alert:?}")),
    }
}

/// What rustls says, however it is wrapped. An `io::Error` does not count what is in it among its sources.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a TlsError> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(tls) = cause.downcast_ref::<TlsError>() {
            return Some(tls);
        }
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    None
}
