//! StatsD over UDP and TCP: metrics from senders that hear no answer.
//!
//! ```text
//!   datagrams ── kernel's buffer ── all that wait, by client ──┐
//!   connections ── whole lines of what was read ───────────────┴─> lines ── limits ── log, in memory
//! ```
//!
//! It is lossy by nature: a sender is told nothing, so nothing is promised. What is lost here is counted: datagrams that
//! the kernel dropped because they were not read in time, metrics that a limit or a full queue refused, malformed lines.
//! What is kept is kept as with `ack=memory`.
//!
//! StatsD has no tokens, so a list of networks says which senders are accepted; without the list, only this machine
//! is.
//!
//! | bound | value | reached |
//! |---|---|---|
//! | datagrams that wait | the kernel's buffer, 4 MiB if `net.core.rmem_max` lets it | the kernel drops and counts |
//! | datagrams taken at once | 1,000 | the others wait |
//! | clients of one taking | 100 | the others wait |
//! | a line over TCP | 8 KiB | the connection is closed, the line counted |
//! | silence over TCP | 5 minutes | the connection is closed |
//! | gauges that differences can refer to | 10,000 | differences of others are counted as rejected |

mod gauges;
mod tcp;
mod udp;

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_log::Durability;
use tidegate_net::accept::Gate;
use tidegate_net::clock::monotonic;
use tidegate_net::connection::serve;
use tidegate_net::drain::Stage;
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::Network;
use tidegate_net::runtime::Cores;
use tidegate_wire::metrics::LineWriter;
use tidegate_wire::metrics::statsd::{StatsdError, read_metrics};

use crate::client::Client;
use crate::counters::{Leftover, Protocol};
use crate::intake::Intake;

use gauges::Gauges;
use tcp::Server;

/// The least time between two lines of the log that say why a line was left out.
const BETWEEN_REASONS: Duration = Duration::from_secs(60);
/// The core that takes datagrams.
const CORE: usize = 0;

/// What StatsD counts beside what all protocols do.
#[derive(Debug, Default)]
pub struct StatsdCounters {
    lost: AtomicU64,
    foreign: AtomicU64,
    port: AtomicU64,
}

impl StatsdCounters {
    /// Metrics that a limit or a full queue refused: their sender was not told.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Datagrams and connections from networks that may not send.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign.load(Relaxed)
    }

    /// Datagrams that the kernel dropped, as it counts them itself.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        u16::try_from(self.port.load(Relaxed)).map_or(0, udp::dropped)
    }
}

/// StatsD's two listeners, with their sockets bound.
pub struct Statsd {
    shared: Arc<StatsdState>,
    datagrams: UdpSocket,
    listeners: Listeners,
    gate: Gate,
}

impl fmt::Debug for Statsd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Statsd").field("datagrams", &self.datagrams).finish_non_exhaustive()
    }
}

/// What both ways in share.
pub(crate) struct StatsdState {
    intake: Arc<Intake>,
    allowed: Vec<Network>,
    gauges: Gauges,
    counters: Arc<StatsdCounters>,
    /// When the log last said why a line was left out.
    last_reason: Mutex<Option<Instant>>,
}

impl Statsd {
    /// StatsD over the connections of `listeners`, and over datagrams to the same address. `allowed` may send; if it is
    /// empty, this machine may.
    ///
    /// # Errors
    /// When the address cannot be had for datagrams.
    pub fn bind(
        intake: Arc<Intake>,
        listeners: Listeners,
        allowed: Vec<Network>,
        gate: Gate,
    ) -> std::io::Result<Self> {
        let datagrams = udp::bind(listeners.address())?;
        let counters = Arc::new(StatsdCounters::default());
        counters.port.store(u64::from(listeners.address().port()), Relaxed);
        let shared = Arc::new(StatsdState {
            intake,
            allowed,
            gauges: Gauges::default(),
            counters,
            last_reason: Mutex::default(),
        });
        Ok(Self { shared, datagrams, listeners, gate })
    }

    /// Where it listens, for both.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listeners.address()
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> Arc<StatsdCounters> {
        Arc::clone(&self.shared.counters)
    }

    /// Begins to serve, until the drain ends.
    pub fn start(self, cores: &Cores) {
        let Self { shared, datagrams, listeners, gate } = self;
        serve(&Server::new(Arc::clone(&shared), gate.clone()), cores, listeners);
        cores.spawn_on(CORE, async move {
            let _hold = gate.drain.hold_listener();
            tokio::select! {
                // What waits at the drain's beginning is still taken.
                () = gate.drain.reached(Stage::Closed) => {}
                () = udp::take(&shared, datagrams) => {}
            }
        });
    }
}

impl StatsdState {
    fn may_send(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let may = address.is_loopback() || self.allowed.iter().any(|network| network.contains(address));
        if !may {
            self.counters.foreign.fetch_add(1, Relaxed);
        }
        may
    }

    /// Reads whole lines of a client.
    fn read(&self, client: &Client, lines: &[u8], writer: &mut LineWriter) {
        let counts = read_metrics(lines, writer, &mut |name, tags, change| {
            self.gauges.change(&client.name, name, tags, change)
        });
        let counters = &self.intake.parts.counters;
        counters.count_rejected(counts.rejected);
        counters.count_leftover(Leftover::Set, counts.sets);
        counters.count_leftover(Leftover::Event, counts.events);
        counters.count_leftover(Leftover::UnknownPart, counts.unknown_parts);
        if let Some(reason) = counts.error {
            self.say_why(client, &reason);
        }
    }

    /// Logs why lines are not acceptable, since their sender hears nothing: once a minute, for anybody may send many.
    fn say_why(&self, client: &Client, reason: &StatsdError) {
        let now = monotonic();
        let mut last = self.last_reason.lock();
        if last.is_none_or(|last| now.duration_since(last) >= BETWEEN_REASONS) {
            *last = Some(now);
            let client = &*client.name;
            tracing::warn!(client, %reason, "a line of StatsD was left out; others of this minute are only counted");
        }
    }

    /// Keeps what was read, or counts it as lost.
    async fn keep(&self, client: Client, writer: LineWriter) {
        let lines = writer.finish();
        let count = lines.facts.len() as u64;
        if count == 0 {
            return;
        }
        if let Err(refusal) =
            self.intake.keep(Protocol::Statsd, client, lines, Durability::Memory, None).await
        {
            self.intake.parts.counters.count_refusal(refusal.reason());
            self.counters.lost.fetch_add(count, Relaxed);
        }
    }
}
