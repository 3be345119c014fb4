//! A byte stream with a deadline under the driver (rule 7).
//!
//! The driver has no bound of its own: a call waits for ever on a server that keeps its socket open and says
//! nothing, and so does dropping the client. So the driver gets a stream from us, every poll of which fails
//! once the armed deadline has passed; from then on the connection is dead for good, and dropping it returns
//! at once.
//!
//! The driver hands over its socket only where it believes that TLS is wanted. [`DeadlineConnector`]
//! therefore poses as a TLS connector with direct negotiation (no byte is exchanged for it) and gives back the
//! plain socket, or what the real connector makes of it. The deadline is above the encryption, and so holds for
//! whatever the encryption waits for too, the handshake included.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use postgres::Socket;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::Sleep;

use super::tls::{Encryption, Secured, Stream};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    passed: bool,
}

/// The deadline of one connection, shared between its owner and the stream below the driver.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadline(Arc<Mutex<State>>);

impl Deadline {
    /// From now on every poll after `until` fails, and the connection is dead from then on.
    pub(super) fn arm(&self, until: Instant) {
        self.0.lock().until = Some(until);
    }

    pub(super) fn disarm(&self) {
        self.0.lock().until = None;
    }

    /// Whether a poll has found the deadline passed.
    pub(super) fn has_passed(&self) -> bool {
        self.0.lock().passed
    }
}

/// The stream's end of a [`Deadline`], with the timer that wakes its task.
struct Guard {
    deadline: Deadline,
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Guard {
    /// Fails once the deadline has passed, and otherwise sees to it that the task is woken then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut state = self.deadline.0.lock();
        if let (Some(until), false) = (state.until, state.passed) {
            // The clock is read here as well as by the timer: a peer that never stops sending keeps the task
            // so busy that the runtime does not get round to its timers.
            state.passed = Instant::now() >= until || fired(&mut self.timer, until, cx);
        }
        if state.passed {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
        Ok(())
    }

    /// Runs a future under the deadline.
    async fn bound<F: Future>(&mut self, future: F) -> io::Result<F::Output> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            self.check(cx)?;
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }
}

fn fired(timer: &mut Option<(Instant, Pin<Box<Sleep>>)>, until: Instant, cx: &mut Context<'_>) -> bool {
    let (at, timer) = timer.get_or_insert_with(|| (until, Box::pin(tokio::time::sleep_until(until.into()))));
    if *at != until {
        *at = until;
        timer.as_mut().reset(until.into());
    }
    timer.as_mut().poll(cx).is_ready()
}

enum Wire {
    Tcp(Socket),
    Tls(Stream),
    Unix(UnixStream),
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin + ?Sized> Duplex for T {}

impl Wire {
    fn stream(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Wire::Tcp(socket) => Pin::new(socket),
            Wire::Tls(stream) => Pin::new(stream),
            Wire::Unix(socket) => Pin::new(socket),
        }
    }
}

/// What the driver reads from and writes to.
pub(super) struct DeadlineStream {
    wire: Wire,
    guard: Guard,
    /// Bytes were handed up and the driver has not come back empty-handed since.
    fresh_data: bool,
    /// The end that came right behind them, kept for the next poll: it may be told only once.
    end: Option<io::Result<()>>,
}

impl DeadlineStream {
    /// The wire, as long as there is time.
    fn wire(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut dyn Duplex>> {
        self.guard.check(cx)?;
        Ok(self.wire.stream())
    }
}

impl AsyncRead for DeadlineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = match self.end.take() {
            Some(end) => Poll::Ready(end),
            None => self.wire(cx)?.poll_read(cx, buf),
        };
        // The driver looks at its connection before it looks at the call in flight, and an end of stream
        // found there hides the FATAL message that came just before. So an end right behind data is shown one
        // poll later.
        match polled {
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.fresh_data = true,
            Poll::Ready(end) if self.fresh_data => {
                self.fresh_data = false;
                self.end = Some(end);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Pending => self.fresh_data = false,
            Poll::Ready(end) => return Poll::Ready(end),
        }
        polled
    }
}

impl AsyncWrite for DeadlineStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.wire(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire(cx)?.poll_shutdown(cx)
    }
}

impl TlsStream for DeadlineStream {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.wire {
            Wire::Tls(stream) => stream.channel_binding(),
            Wire::Tcp(_) | Wire::Unix(_) => ChannelBinding::none(),
        }
    }
}

/// How the driver's socket becomes what it reads from.
#[derive(Clone)]
pub(super) enum Way {
    /// It is that already.
    Plain,
    Tls(Encryption),
    /// Throw the driver's socket away and connect to this one instead.
    Unix(PathBuf),
}

/// Gives the driver a [`DeadlineStream`]; one per connection.
#[derive(Clone)]
pub(super) struct DeadlineConnector {
    deadline: Deadline,
    way: Way,
    /// What the server is called.
    host: String,
}

impl DeadlineConnector {
    pub(super) fn new(deadline: Deadline, way: Way) -> DeadlineConnector {
        DeadlineConnector { deadline, way, host: String::new() }
    }
}

impl MakeTlsConnect<Socket> for DeadlineConnector {
    type Stream = DeadlineStream;
    type TlsConnect = DeadlineConnector;
    type Error = BoxError;

    fn make_tls_connect(&mut self, host: &str) -> Result<DeadlineConnector, BoxError> {
        Ok(DeadlineConnector { host: host.to_owned(), ..self.clone() })
    }
}

impl TlsConnect<Socket> for DeadlineConnector {
    type Stream = DeadlineStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<DeadlineStream, BoxError>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let mut guard = Guard { deadline: self.deadline, timer: None };
            let wire = match self.way {
                Way::Plain => Wire::Tcp(socket),
                Way::Tls(encryption) => match guard.bound(encryption.encrypt(self.host, socket)).await?? {
                    Secured::Tls(stream) => Wire::Tls(stream),
                    Secured::Plain(socket) => Wire::Tcp(socket),
                },
                Way::Unix(path) => {
                    drop(socket);
                    Wire::Unix(guard.bound(UnixStream::connect(path)).await??)
                }
            };
            Ok(DeadlineStream { wire, guard, fresh_data: false, end: None })
        })
    }
}
