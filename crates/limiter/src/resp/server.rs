//! Sockets to sessions: one task a connection, one read and one write a pipeline, every wait bounded.
//!
//! ```text
//!   read ──> scan ─> session ─> batch, while whole commands are there ──> decide ──> write all at once ──> read
//! ```
//!
//! Memory per connection: the input never holds more than one command within its limits and one read,
//! because commands are answered before more is read; the output is written whenever it passes
//! [`FLUSH_BYTES`], so it never holds more than that and the replies of one batch. What is beyond
//! [`UNCHARGED_BYTES`] counts in the process's bytes ([`tidegate_net::buffers`]): a client that sends what there is
//! no room for is told so, one that does not take its replies at once is not, and the connection ends.
//!
//! A pipeline's throttle commands are decided together: see [`super::batch`]. Each batch is decided at the
//! time that the clock shows then: a client that reads slowly stalls its pipeline between two batches, and a
//! time kept across that would be a wrong one (fault 56). Each command is counted with the time that the whole
//! pipeline took, which is what its client waited.
//!
//! Accepting, TLS, the timer and the end of a connection are those of all protocols: [`tidegate_net::connection`].

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_access::tokens::TokensInForce;
use tidegate_net::accept::{Gate, Held};
use tidegate_net::buffers::Charge;
use tidegate_net::clock::monotonic;
use tidegate_net::connection::{Peer, ServeConnection, half_close, serve};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::{CoreStats, Cut, Route};
use tidegate_wire::resp::{CommandError, Encoder, Protocol, Scanner};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::batch::PipelineBatch;
use super::outcome::{Answered, CommandOutcome};
use super::session::RespSession;
use super::shared::RespState;
use super::wait::{Event, READ_BYTES, Waits};
use crate::engine::Engine;

/// Bytes of replies after which they are written before the pipeline ends.
const FLUSH_BYTES: usize = 64 << 10;
/// Bytes of buffers that any connection may have.
const UNCHARGED_BYTES: usize = 2 * READ_BYTES;
/// Most bytes that a connection may hold: more than a full transaction takes, with its longest keys.
const CONNECTION_BYTES: usize = 2 << 20;
const NO_ROOM: &str = "ERR too many bytes are held for clients at once; try again";
/// Bytes that are read and dropped after the last reply, so that closing does not reset it away.
const LINGER_BYTES: usize = 1 << 20;

/// The bounds of a RESP server that are times.
#[derive(Clone, Debug)]
pub struct RespConfig {
    /// From the first byte of a command to its last; for the first command, and until AUTH, from
    /// connecting.
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
    inner: Arc<RespServerParts>,
}

#[derive(Debug)]
struct RespServerParts {
    sessions: Arc<RespState>,
    config: RespConfig,
    gate: Gate,
}

impl Server {
    /// A server for `engine`. Where `tokens` demand one for decisions, clients must give it before they may
    /// ask. The gate's statistics have the routes of [`super::TEMPLATES`].
    #[must_use]
    pub fn new(engine: &Arc<Engine>, tokens: TokensInForce, config: RespConfig, gate: Gate) -> Self {
        let sessions = Arc::new(RespState::new(engine, tokens));
        Self { inner: Arc::new(RespServerParts { sessions, config, gate }) }
    }

    /// Serves `listeners` until the drain ends: socket `i` on core `i`.
    pub fn start(&self, cores: &Cores, listeners: Listeners) {
        serve(self, cores, listeners);
    }

    async fn converse<S>(self, stream: S, peer: Peer, held: Held)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let RespServerParts { sessions, config, gate } = &*self.inner;
        let opened = monotonic();
        let connection = OpenConnection {
            stream,
            config,
            gate,
            stats: gate.stats.core(peer.core),
            session: RespSession::new(sessions.clone()),
            scanner: Scanner::default(),
            charge: None,
            input: Vec::new(),
            output: Vec::new(),
            batch: PipelineBatch::default(),
            answered: Answered::default(),
            opened,
            spoke: false,
            waiting_since: opened,
        };
        if let Err(end) = connection.converse(sessions).await {
            tracing::debug!(peer = %peer.address, %end, "RESP connection ended early");
        }
        drop(held);
    }
}

impl ServeConnection for Server {
    fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    fn serve_connection<S>(
        self,
        stream: S,
        peer: Peer,
        _agreed: Option<&'static [u8]>,
        held: Held,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.converse(stream, peer, held)
    }
}

/// Why a connection ended without having been closed by either side's word.
#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error("cut: {0:?}")]
    Cut(Cut),
    #[error("{NO_ROOM}")]
    NoRoom,
    #[error(transparent)]
    Socket(#[from] io::Error),
}

struct OpenConnection<'a, S> {
    stream: S,
    config: &'a RespConfig,
    gate: &'a Gate,
    stats: &'a CoreStats,
    session: RespSession,
    scanner: Scanner,
    /// What the buffers are charged, from when they are large.
    charge: Option<Charge>,
    /// What was received and not yet answered.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Commands of the present pipeline that are yet to be decided and answered.
    batch: PipelineBatch,
    /// The commands of the present pipeline, to be counted at its end.
    answered: Answered,
    opened: Instant,
    /// The client has sent something.
    spoke: bool,
    /// When the present wait began: an incomplete command's first byte, or the last reply.
    waiting_since: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> OpenConnection<'_, S> {
    /// Reads and answers until the client leaves, has said the last word, or the drain is over.
    async fn converse(mut self, sessions: &RespState) -> Result<(), SessionEnd> {
        let gate = self.gate;
        let mut waits = Waits::new(gate.drain.clone());
        let mut swept = false;
        loop {
            if swept && self.input.is_empty() {
                return self.leave().await;
            }
            if !self.hold() {
                Encoder::new(&mut self.output, Protocol::Resp2).error(&NO_ROOM);
                self.flush().await?;
                return self.leave().await;
            }
            let (deadline, cause) = self.deadline();
            let received = match waits.receive(&mut self.stream, &mut self.input, deadline, swept).await? {
                Event::Received(0) => return Ok(()),
                Event::Received(bytes) => bytes,
                Event::Late => return Err(self.cut(cause)),
                Event::Swept => {
                    swept = true;
                    continue;
                }
            };
            let arrived = monotonic();
            let mut outcome = self.answer_all(received, arrived, sessions).await;
            if let Ok(answered) = outcome {
                outcome = self.flush().await.map(|()| answered);
            }
            self.count(outcome.is_ok(), arrived);
            if outcome? == CommandOutcome::Over {
                return self.leave().await;
            }
        }
    }

    /// The deadline of the wait for bytes, and what its passing means.
    fn deadline(&self) -> (Instant, Cut) {
        let RespConfig { command_timeout, idle_timeout, .. } = *self.config;
        if self.session.is_closed() || (!self.spoke && command_timeout < idle_timeout) {
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
        sessions: &RespState,
    ) -> Result<CommandOutcome, SessionEnd> {
        let (mut at, mut last, mut unreadable) = (0, CommandOutcome::Done, None);
        while last != CommandOutcome::Over {
            let command = match self.scanner.scan(&self.input[at..], self.session.limits()) {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(error) => {
                    unreadable = Some(error);
                    break;
                }
            };
            at += command.length();
            if command.arguments() == 0 {
                continue;
            }
            last = self.session.answer(command, &mut self.batch);
            if self.batch.is_full() {
                self.settle(sessions).await;
                if self.output.len() >= FLUSH_BYTES {
                    self.flush().await?;
                }
            }
        }
        self.settle(sessions).await;
        if let Some(error) = unreadable {
            last = self.give_up(error);
        }
        // The first command is waited for from the connection's start.
        if at > 0 || (self.input.len() == received && self.spoke) {
            self.waiting_since = arrived;
        }
        self.spoke = true;
        self.input.drain(..at);
        if self.input.is_empty() {
            self.input.shrink_to(READ_BYTES);
        }
        Ok(last)
    }

    /// Answers the commands of the batch.
    async fn settle(&mut self, sessions: &RespState) {
        if self.batch.is_empty() {
            return;
        }
        self.stats.requests.started.fetch_add(self.batch.len() as u64, Relaxed);
        self.batch.settle(sessions, &mut self.output, &mut self.answered).await;
    }

    /// Where the next command would begin is unknown, so this is the end.
    fn give_up(&mut self, error: CommandError) -> CommandOutcome {
        Encoder::new(&mut self.output, Protocol::Resp2).error(&format_args!("ERR {error}"));
        self.stats.requests.started.fetch_add(1, Relaxed);
        self.answered.push(Route::OTHER, CommandOutcome::Refused);
        CommandOutcome::Over
    }

    async fn flush(&mut self) -> Result<(), SessionEnd> {
        if self.output.is_empty() {
            return Ok(());
        }
        let has_room = self.hold();
        let mut writing = pin!(async {
            self.stream.write_all(&self.output).await?;
            // TLS may have taken bytes without sending them.
            self.stream.flush().await
        });
        // Nearly always the kernel takes it at once, and no timer is needed.
        match poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx))).await {
            Poll::Ready(written) => written?,
            Poll::Pending if !has_room => return Err(SessionEnd::NoRoom),
            Poll::Pending => match timeout(self.config.write_timeout, writing).await {
                Ok(written) => written?,
                Err(_) => return Err(self.cut(Cut::Write)),
            },
        }
        self.output.clear();
        self.output.shrink_to(FLUSH_BYTES);
        Ok(())
    }

    /// Charges what the buffers take; false if there is no room for that.
    fn hold(&mut self) -> bool {
        let buffers = self.input.capacity() + self.output.capacity();
        let bytes = buffers + self.batch.bytes() + self.session.bytes();
        match &mut self.charge {
            None if bytes <= UNCHARGED_BYTES => true,
            Some(charge) => charge.resize(bytes),
            none => {
                *none = self.gate.buffers.account(CONNECTION_BYTES).charge(bytes);
                none.is_some()
            }
        }
    }

    /// Counts the commands of a pipeline with the time that their client waited for all of them.
    fn count(&mut self, written: bool, arrived: Instant) {
        let took = monotonic().duration_since(arrived);
        for (route, outcome, count) in self.answered.drain() {
            if written {
                self.stats.requests.answered_together(route, outcome.status(), took, count);
            } else {
                self.stats.requests.abandoned.fetch_add(count, Relaxed);
            }
        }
    }

    fn cut(&self, cause: Cut) -> SessionEnd {
        self.stats.connections.cut(cause);
        SessionEnd::Cut(cause)
    }

    /// Half-closes, and reads dry what the client still sends, for a moment.
    async fn leave(self) -> Result<(), SessionEnd> {
        Ok(half_close(self.stream, self.config.linger, LINGER_BYTES).await?)
    }
}
