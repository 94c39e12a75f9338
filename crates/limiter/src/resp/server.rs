//! Sockets to sessions: one task a connection, one read and one write a pipeline, every wait bounded.
//!
//! ```text
//!   read ──> scan ─> answer ─> scan ─> answer ... ──> write all replies at once ──> read
//!            while whole commands are there
//! ```
//!
//! Memory per connection: the input never holds more than one command within its limits and one read,
//! because commands are answered before more is read; the output is written whenever it passes
//! [`FLUSH_BYTES`], so it never holds more than that and one reply.
//!
//! All commands of a pipeline are decided at one time, its arrival's, and each is counted with the
//! time that the whole pipeline took, which is what its client waited.
//!
//! One timer a connection, moved only when it fires or must fire earlier: see [`passed`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::BufMut;
use tidegate_net::accept::{Gate, Held, accept};
use tidegate_net::clock::monotonic;
use tidegate_net::drain::Stage;
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::{CoreStats, Cut, Route};
use tidegate_wire::resp::{CommandError, Encoder, Protocol, Scanner};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Sleep, sleep_until, timeout};

use super::session::{Outcome, Session, Shared};
use crate::credential::Credential;
use crate::engine::Engine;

/// Bytes that one read takes at most.
const READ_BYTES: usize = 16 << 10;
/// Bytes of replies after which they are written before the pipeline ends.
const FLUSH_BYTES: usize = 64 << 10;
/// Bytes that are read and dropped after the last reply, so that closing does not reset it away.
const LINGER_BYTES: usize = 1 << 20;

/// The bounds of a RESP server that are times.
#[derive(Clone, Debug)]
pub struct RespConfig {
    /// From the first byte of a command to its last; until AUTH, from connecting.
    pub command_timeout: Duration,
    /// Between two commands.
    pub idle_timeout: Duration,
    /// For the peer to take up to 64 KiB of replies.
    pub write_timeout: Duration,
    /// How long a half-closed connection is read dry.
    pub linger: Duration,
}

impl Default for RespConfig {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            write_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(1),
        }
    }
}

/// A RESP server; clones share it.
#[derive(Clone, Debug)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sessions: Arc<Shared>,
    config: RespConfig,
    gate: Gate,
}

impl Server {
    /// A server for `engine`. With a password, clients must give it before they may ask. The gate's
    /// statistics have the routes of [`super::TEMPLATES`].
    #[must_use]
    pub fn new(engine: &Arc<Engine>, password: Option<Credential>, config: RespConfig, gate: Gate) -> Self {
        let sessions = Arc::new(Shared::new(engine, password));
        Self { inner: Arc::new(Inner { sessions, config, gate }) }
    }

    /// Serves `listeners` until the drain ends: socket `i` on core `i`.
    pub fn start(&self, cores: &Cores, listeners: Listeners) {
        let address = listeners.address();
        for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
            let server = self.clone();
            cores.spawn_on(core, async move {
                let serve = |stream, peer, held| {
                    drop(tokio::spawn(server.clone().serve_stream(stream, peer, core, held)));
                };
                if let Err(error) = accept(socket, &server.inner.gate, core, serve).await {
                    tracing::error!(%address, %error, "cannot watch a listening socket");
                }
            });
        }
    }

    /// Serves one connection over any byte stream, such as one that TLS was taken off.
    pub async fn serve_stream<S>(self, stream: S, peer: SocketAddr, core: usize, held: Held)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Inner { sessions, config, gate } = &*self.inner;
        let opened = monotonic();
        let connection = Connection {
            stream,
            config,
            gate,
            stats: gate.stats.core(core),
            session: Session::new(sessions.clone()),
            scanner: Scanner::default(),
            input: Vec::new(),
            output: Vec::new(),
            answered: Vec::new(),
            opened,
            waiting_since: opened,
        };
        if let Err(end) = connection.converse(sessions).await {
            tracing::debug!(%peer, %end, "RESP connection ended early");
        }
        drop(held);
    }
}

/// Why a connection ended without having been closed by either side's word.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("cut: {0:?}")]
    Cut(Cut),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

struct Connection<'a, S> {
    stream: S,
    config: &'a RespConfig,
    gate: &'a Gate,
    stats: &'a CoreStats,
    session: Session,
    scanner: Scanner,
    /// What was received and not yet answered.
    input: Vec<u8>,
    output: Vec<u8>,
    /// The commands of the present pipeline, to be counted at its end.
    answered: Vec<(Route, Outcome)>,
    opened: Instant,
    /// When the present wait began: an incomplete command's first byte, or the last reply.
    waiting_since: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Reads and answers until the client leaves, has said the last word, or the drain is over.
    async fn converse(mut self, sessions: &Shared) -> Result<(), End> {
        let mut timer = std::pin::pin!(sleep_until((self.opened + self.config.command_timeout).into()));
        let mut sweeping = std::pin::pin!(self.gate.drain.sweeping());
        loop {
            let swept = self.gate.drain.stage() >= Stage::Sweeping;
            if swept && self.input.is_empty() {
                return self.leave().await;
            }
            let (deadline, cause) = self.deadline();
            let received = tokio::select! {
                biased;
                received = receive(&mut self.stream, &mut self.input) => received?,
                () = passed(timer.as_mut(), deadline) => return Err(self.cut(cause)),
                () = sweeping.as_mut(), if !swept => continue,
            };
            if received == 0 {
                return Ok(());
            }
            let arrived = monotonic();
            let mut outcome = self.answer_all(received, arrived, sessions).await;
            if let Ok(answered) = outcome {
                outcome = self.flush().await.map(|()| answered);
            }
            self.count(outcome.is_ok(), arrived);
            if outcome? == Outcome::Over {
                return self.leave().await;
            }
        }
    }

    /// The deadline of the wait for bytes, and what its passing means.
    fn deadline(&self) -> (Instant, Cut) {
        let RespConfig { command_timeout, idle_timeout, .. } = *self.config;
        if self.session.is_closed() {
            (self.opened + command_timeout, Cut::Header)
        } else if self.input.is_empty() {
            (self.waiting_since + idle_timeout, Cut::Idle)
        } else {
            (self.waiting_since + command_timeout, Cut::Header)
        }
    }

    /// Answers every whole command of the input, whose last `received` bytes are new.
    async fn answer_all(
        &mut self,
        received: usize,
        arrived: Instant,
        sessions: &Shared,
    ) -> Result<Outcome, End> {
        let now = sessions.now();
        let mut at = 0;
        let mut last = Outcome::Done;
        while last != Outcome::Over {
            let command = match self.scanner.scan(&self.input[at..], self.session.limits()) {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(error) => {
                    last = self.give_up(error);
                    break;
                }
            };
            at += command.length();
            if command.arguments() > 0 {
                self.stats.started.fetch_add(1, Relaxed);
                let (route, outcome) = self.session.answer(now, command, &mut self.output).await;
                self.answered.push((route, outcome));
                last = outcome;
            }
            if self.output.len() >= FLUSH_BYTES {
                self.flush().await?;
            }
        }
        if at > 0 || self.input.len() == received {
            self.waiting_since = arrived;
        }
        self.input.drain(..at);
        if self.input.is_empty() {
            self.input.shrink_to(READ_BYTES);
        }
        Ok(last)
    }

    /// Where the next command would begin is unknown, so this is the end.
    fn give_up(&mut self, error: CommandError) -> Outcome {
        Encoder::new(&mut self.output, Protocol::Resp2).error(&format_args!("ERR {error}"));
        self.stats.started.fetch_add(1, Relaxed);
        self.answered.push((Route::OTHER, Outcome::Refused));
        Outcome::Over
    }

    async fn flush(&mut self) -> Result<(), End> {
        if self.output.is_empty() {
            return Ok(());
        }
        match timeout(self.config.write_timeout, self.stream.write_all(&self.output)).await {
            Ok(written) => written?,
            Err(_) => return Err(self.cut(Cut::Write)),
        }
        self.output.clear();
        self.output.shrink_to(FLUSH_BYTES);
        Ok(())
    }

    /// Counts the commands of a pipeline with the time that their client waited for all of them.
    fn count(&mut self, written: bool, arrived: Instant) {
        let took = monotonic().duration_since(arrived);
        for (route, outcome) in self.answered.drain(..) {
            if written {
                self.stats.answered(route, outcome.status(), took);
            } else {
                self.stats.abandoned.fetch_add(1, Relaxed);
            }
        }
    }

    fn cut(&self, cause: Cut) -> End {
        self.stats.cut(cause);
        End::Cut(cause)
    }

    /// Half-closes, and reads dry what the client still sends, for a moment.
    async fn leave(mut self) -> Result<(), End> {
        self.stream.shutdown().await?;
        let mut rest = self.stream.take(LINGER_BYTES as u64);
        // Running out of patience is one way to end this.
        drop(timeout(self.config.linger, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await);
        Ok(())
    }
}

/// Reads what is there, at most [`READ_BYTES`], to the end of `input`. 0: the client has left.
async fn receive<S: AsyncRead + Unpin>(stream: &mut S, input: &mut Vec<u8>) -> io::Result<usize> {
    input.reserve(READ_BYTES);
    stream.read_buf(&mut input.limit(READ_BYTES)).await
}

/// Waits until `deadline`. The timer is moved only when it is set for later, or has fired too early.
async fn passed(mut timer: Pin<&mut Sleep>, deadline: Instant) {
    let deadline = deadline.into();
    if timer.is_elapsed() || timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    loop {
        timer.as_mut().await;
        if timer.deadline() >= deadline {
            return;
        }
        timer.as_mut().reset(deadline);
    }
}
