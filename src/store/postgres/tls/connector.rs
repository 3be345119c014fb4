//! From the driver's socket to an encrypted stream: the request to the server, and whoever does the handshake.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use postgres::Socket;
use postgres::tls::{MakeTlsConnect, TlsConnect, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type BoxError = Box<dyn Error + Send + Sync>;

/// An encrypted connection, whoever encrypts it.
pub(in super::super) type Stream = Pin<Box<dyn TlsStream + Send>>;
pub(super) type Handshake = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

/// Somebody who does handshakes, for all connections of a store.
pub(in super::super) trait Connector: Send + Sync {
    /// `host` is the name that the server should have.
    fn handshake(&self, host: &str, socket: Socket) -> Handshake;

    /// Whether a certificate has to hold; `None` where nothing is known of that.
    fn verifies(&self) -> Option<bool> {
        None
    }
}

/// Why there is no encrypted connection.
#[derive(Debug)]
pub(in super::super) struct Failure {
    message: String,
    is_fatal: bool,
    source: Option<BoxError>,
}

impl Failure {
    /// Something that a person must mend.
    pub(super) fn fatal(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), is_fatal: true, source: None }
    }

    /// Something that may pass by itself.
    pub(super) fn retryable(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), is_fatal: false, source: None }
    }

    pub(super) fn with_source(self, source: impl Into<BoxError>) -> Failure {
        Failure { source: Some(source.into()), ..self }
    }

    pub(in super::super) fn is_fatal(&self) -> bool {
        self.is_fatal
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// What a connection is to do before the driver gets it.
#[derive(Clone)]
pub(in super::super) struct Encryption {
    pub(super) connector: Arc<dyn Connector>,
    /// Go on in plain text where the server says that it has no TLS.
    pub(super) optional: bool,
    /// Begin with the handshake, without asking.
    pub(super) direct: bool,
}

/// What has become of the socket.
pub(in super::super) enum Secured {
    Tls(Stream),
    Plain(Socket),
}

/// The code of the message that asks for TLS, after its length.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

impl Encryption {
    pub(in super::super) async fn encrypt(
        self,
        host: String,
        mut socket: Socket,
    ) -> Result<Secured, Failure> {
        if !self.direct {
            match ask(&mut socket).await {
                Ok(b'S') => {}
                Ok(b'N') if self.optional => return Ok(Secured::Plain(socket)),
                Ok(b'N') => return Err(Failure::fatal(NO_TLS)),
                // A server that can't even start a process says so before anybody can know that it is the server:
                // its words are not repeated.
                Ok(_) => {
                    return Err(Failure::retryable(
                        "the server's answer to the request for TLS is neither yes nor no",
                    ));
                }
                Err(error) => {
                    let message = format!("the server did not answer the request for TLS: {error}");
                    return Err(Failure::retryable(message).with_source(error));
                }
            }
        }
        match self.connector.handshake(&host, socket).await {
            Ok(stream) => Ok(Secured::Tls(stream)),
            Err(failure) if self.direct && !failure.is_fatal => {
                let message = format!("{failure} ({DIRECT})");
                Err(Failure { message, ..failure })
            }
            Err(failure) => Err(failure),
        }
    }
}

const NO_TLS: &str =
    "the server has none, and sslmode insists on it: switch `ssl` on there, or choose a weaker sslmode";
const DIRECT: &str = "sslnegotiation=direct takes PostgreSQL 17 or later";

/// Reads one byte and no more: whatever somebody sends along before the handshake is then a part of the handshake,
/// which fails, and never of what the server said.
async fn ask(socket: &mut Socket) -> io::Result<u8> {
    socket.write_all(&SSL_REQUEST).await?;
    socket.flush().await?;
    socket.read_u8().await
}

/// A connector of the application's.
pub(in super::super) struct Custom<T>(pub(in super::super) T);

impl<T> Connector for Custom<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn handshake(&self, host: &str, socket: Socket) -> Handshake {
        let handshake = handshake(self.0.clone(), host.to_owned(), socket);
        Box::pin(async { handshake.await.map_err(judge) })
    }
}

pub(super) async fn handshake<T>(mut connector: T, host: String, socket: Socket) -> Result<Stream, BoxError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let connect = connector.make_tls_connect(&host).map_err(Into::into)?;
    let stream = connect.connect(socket).await.map_err(Into::into)?;
    Ok(Box::pin(stream))
}

/// What a library that is not known here says is a person's to read, unless the network said it.
fn judge(error: BoxError) -> Failure {
    let new = if network_cause(&*error).is_some() { Failure::retryable } else { Failure::fatal };
    new(format!("the handshake failed: {error}")).with_source(error)
}

/// The connection broke, rather than somebody disliking what came over it.
pub(super) fn network_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let of_network = |io: &io::Error| {
        io.raw_os_error().is_some()
            || matches!(
                io.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut | io::ErrorKind::WriteZero
            )
    };
    let mut next = Some(error);
    while let Some(cause) = next {
        match cause.downcast_ref::<io::Error>() {
            Some(io) if of_network(io) => return Some(io),
            _ => next = cause.source(),
        }
    }
    None
}
