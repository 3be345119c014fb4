//! A byte stream with a deadline under the driver (rule 7).
//!
//! The driver has no bound of its own: a call waits for ever on a server that keeps its socket open and says
//! nothing, and so does dropping the client. So the driver gets a stream from us, every poll of which fails
//! once the armed deadline has passed; from then on the connection is dead for good, and dropping it returns
//! at once.
//!
//! The driver hands over its socket only where it believes that TLS is wanted. [`DeadlineConnector`]
//! therefore poses as a TLS connector with direct negotiation (no byte is exchanged for it) and gives the
//! plain socket back.

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
    Unix(UnixStream),
}

/// What the driver reads from and writes to.
pub(super) struct DeadlineStream {
    wire: Wire,
    guard: Guard,
    /// Bytes were handed up and the driver has not come back empty-handed since.
    fresh_data: bool,
}

impl DeadlineStream {
    fn poll_wire<R>(
        &mut self,
        cx: &mut Context<'_>,
        tcp: impl FnOnce(Pin<&mut Socket>, &mut Context<'_>) -> Poll<io::Result<R>>,
        unix: impl FnOnce(Pin<&mut UnixStream>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        self.guard.check(cx)?;
        match &mut self.wire {
            Wire::Tcp(socket) => tcp(Pin::new(socket), cx),
            Wire::Unix(socket) => unix(Pin::new(socket), cx),
        }
    }
}

impl AsyncRead for DeadlineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        self.guard.check(cx)?;
        let polled = match &mut self.wire {
            Wire::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
            Wire::Unix(socket) => Pin::new(socket).poll_read(cx, buf),
        };
        // The driver looks at its connection before it looks at the call in flight, and an end of stream
        // found there hides the FATAL message that came just before. So an end right behind data is shown one
        // poll later.
        match &polled {
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.fresh_data = true,
            Poll::Ready(_) if self.fresh_data => {
                self.fresh_data = false;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Pending => self.fresh_data = false,
            Poll::Ready(_) => {}
        }
        polled
    }
}

impl AsyncWrite for DeadlineStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_wire(cx, |s, cx| s.poll_write(cx, bytes), |s, cx| s.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_wire(cx, |s, cx| s.poll_flush(cx), |s, cx| s.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_wire(cx, |s, cx| s.poll_shutdown(cx), |s, cx| s.poll_shutdown(cx))
    }
}

impl TlsStream for DeadlineStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Gives the driver a [`DeadlineStream`]; one per connection.
#[derive(Clone, Debug)]
pub(super) struct DeadlineConnector {
    deadline: Deadline,
    /// Throw the driver's socket away and connect to this one instead.
    unix_socket: Option<PathBuf>,
}

impl DeadlineConnector {
    pub(super) fn new(deadline: Deadline, unix_socket: Option<PathBuf>) -> DeadlineConnector {
        DeadlineConnector { deadline, unix_socket }
    }
}

impl MakeTlsConnect<Socket> for DeadlineConnector {
    type Stream = DeadlineStream;
    type TlsConnect = DeadlineConnector;
    type Error = BoxError;

    fn make_tls_connect(&mut self, _host: &str) -> Result<DeadlineConnector, BoxError> {
        Ok(self.clone())
    }
}

impl TlsConnect<Socket> for DeadlineConnector {
    type Stream = DeadlineStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<DeadlineStream, BoxError>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let mut guard = Guard { deadline: self.deadline, timer: None };
            let wire = match self.unix_socket {
                None => Wire::Tcp(socket),
                Some(path) => {
                    drop(socket);
                    Wire::Unix(guard.bound(UnixStream::connect(path)).await??)
                }
            };
            Ok(DeadlineStream { wire, guard, fresh_data: false })
        })
    }
}
