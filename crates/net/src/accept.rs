//! The accept loop: it survives whatever `accept` says, and never holds more than its permits.
//!
//! | `accept` says | the loop |
//! |---|---|
//! | a connection | hands it over, with what it holds |
//! | the peer is gone already (ECONNABORTED and kin) | counts it, goes on |
//! | no descriptors or memory (EMFILE, ENFILE, ENOBUFS, ENOMEM) | counts it, waits 10 to 100 ms, goes on (fault 36) |
//! | anything else | the same wait, so that an unknown error cannot spin |
//!
//! While all permits are taken each loop keeps the one connection it has in hand unserved and
//! accepts no more: the others wait in the kernel's queue, which is bounded by the backlog and
//! makes clients retry when it is full (fault 35). Taking the permit before accepting instead
//! would let an idle core sit on the last one while another core's queue waits for it. A listener
//! that has permits for operation takes one of those meanwhile ([`crate::permits`]).
//!
//! Closing a listener resets what the kernel has accepted or half accepted for it. So the loop
//! first has the kernel drop the first packet of each new connection (the client's kernel repeats
//! it a second later, and reaches the process that listens by then, if there is one), completes
//! the handshakes that were under way, empties the queue, and only then closes. A socket that a service manager
//! passed on stays open when this process ends, so its queue is left to the next process; so is that of a socket from which
//! another loop accepts by then ([`Drain::hand_on`]).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::buffers::Buffers;
use crate::drain::{Drain, Hold, Stage};
use crate::listen::ListenSocket;
use crate::permits::{Permit, Permits};
use crate::stats::{CoreStats, Stats};

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How long handshakes that were under way may take to complete: a slow round trip.
const LAST_HANDSHAKES: Duration = Duration::from_millis(250);

/// What bounds and counts the connections of a server.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The cap on open connections.
    pub permits: Permits,
    /// The cap on bytes that are held for connections.
    pub buffers: Buffers,
    /// The lifecycle that ends accepting.
    pub drain: Drain,
    /// The counters.
    pub stats: Arc<Stats>,
}

/// What a connection holds while it is open: a permit, the drain's patience and its place in the
/// count of open connections.
#[derive(Debug)]
pub struct Held {
    permit: Permit,
    _hold: Hold,
    stats: Arc<Stats>,
    core: usize,
}

impl Held {
    fn new(gate: &Gate, core: usize, permit: Permit) -> Self {
        let stats = gate.stats.core(core);
        stats.connections.accepted.fetch_add(1, Relaxed);
        if permit.is_for_operation() {
            let times = stats.connections.accepted_for_operation.fetch_add(1, Relaxed) + 1;
            if times.is_power_of_two() {
                tracing::warn!(
                    limit = gate.permits.limit(),
                    times,
                    "connection limit reached: only the operator's pages are answered"
                );
            }
        }
        Self { permit, _hold: gate.drain.hold_connection(), stats: Arc::clone(&gate.stats), core }
    }

    /// Whether the connection is one over the limit, which may ask for the operator's pages only.
    #[must_use]
    pub fn is_for_operation(&self) -> bool {
        self.permit.is_for_operation()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stats.core(self.core).connections.closed.fetch_add(1, Relaxed);
    }
}

/// Accepts on `listener` as core number `core` until the drain closes listeners, then empties the
/// accept queue. `serve` must only start the connection's task.
///
/// # Errors
/// When the listener cannot be registered with this thread's reactor; never later.
pub async fn accept<S>(listener: ListenSocket, gate: &Gate, core: usize, mut serve: S) -> io::Result<()>
where
    S: FnMut(TcpStream, SocketAddr, Held),
{
    let _hold = gate.drain.hold_listener();
    let is_inherited = listener.is_inherited;
    let listener = TcpListener::from_std(listener.socket)?;
    let mut in_hand = None;
    tokio::select! {
        biased;
        () = gate.drain.reached(Stage::Closed) => {}
        () = accept_forever(&listener, gate, core, &mut in_hand, &mut serve) => {}
    }
    // Its queue is left to whoever listens on the same socket.
    let leaves_queue = is_inherited || gate.drain.hands_on();
    if !leaves_queue {
        if let Err(error) = drop_new_connections(&listener) {
            tracing::debug!(%error, "cannot filter a listener: a connection may be reset when it closes");
        }
        // Accepting never ends by itself: running out of time is how this wait ends.
        drop(timeout(LAST_HANDSHAKES, accept_forever(&listener, gate, core, &mut in_hand, &mut serve)).await);
    }
    if let Some((stream, peer)) = in_hand {
        serve(stream, peer, Held::new(gate, core, Permits::over_limit()));
    }
    if !leaves_queue {
        empty_queue(&listener.into_std()?, gate, core, serve);
    }
    Ok(())
}

async fn accept_forever<S>(
    listener: &TcpListener,
    gate: &Gate,
    core: usize,
    in_hand: &mut Option<(TcpStream, SocketAddr)>,
    serve: &mut S,
) where
    S: FnMut(TcpStream, SocketAddr, Held),
{
    let stats = gate.stats.core(core);
    let mut pause = SHORTEST_PAUSE;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                *in_hand = Some(accepted);
                let permit = permit(&gate.permits, stats).await;
                if let Some((stream, peer)) = in_hand.take() {
                    serve(stream, peer, Held::new(gate, core, permit));
                }
                pause = SHORTEST_PAUSE;
            }
            Err(error) => {
                if count_failure(stats, &error) {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

async fn permit(permits: &Permits, stats: &CoreStats) -> Permit {
    if let Some(permit) = permits.try_acquire().or_else(|| permits.try_acquire_for_operation()) {
        return permit;
    }
    let times = stats.connections.accept_paused.fetch_add(1, Relaxed) + 1;
    if times.is_power_of_two() {
        tracing::warn!(limit = permits.limit(), times, "connection limit reached: accepting pauses");
    }
    permits.acquire().await
}

/// Counts a failure to accept; true if accepting should pause.
fn count_failure(stats: &CoreStats, error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            let times = stats.connections.accept_exhausted.fetch_add(1, Relaxed) + 1;
            if times.is_power_of_two() {
                tracing::warn!(%error, times, "cannot accept for want of resources: accepting pauses");
            }
            true
        }
        Some(Errno::CONNABORTED | Errno::CONNRESET | Errno::INTR | Errno::PROTO) => {
            stats.connections.accept_failed.fetch_add(1, Relaxed);
            false
        }
        _ => {
            stats.connections.accept_failed.fetch_add(1, Relaxed);
            tracing::warn!(%error, "accept failed");
            true
        }
    }
}

/// Makes the kernel drop packets that ask this listener for a new connection. Accepted connections
/// inherit the filter, and receive no such packets.
fn drop_new_connections(listener: &TcpListener) -> io::Result<()> {
    /// Offset of the flags in a TCP header, where the filter's view of a packet begins.
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    SockRef::from(listener).attach_filter(&[
        SockFilter::new(0x30, 0, 0, FLAGS),    // A = byte at FLAGS
        SockFilter::new(0x45, 0, 1, SYN),      // A & SYN == 0: skip one
        SockFilter::new(0x06, 0, 0, 0),        // drop
        SockFilter::new(0x06, 0, 0, u32::MAX), // keep
    ])
}

/// Hands over what the kernel has already accepted. It asks the socket itself rather than the
/// reactor, whose view of readiness may be older than the last arrival.
fn empty_queue<S>(listener: &std::net::TcpListener, gate: &Gate, core: usize, mut serve: S)
where
    S: FnMut(TcpStream, SocketAddr, Held),
{
    loop {
        let accepted = listener.accept().and_then(|(stream, peer)| {
            stream.set_nonblocking(true)?;
            Ok((TcpStream::from_std(stream)?, peer))
        });
        match accepted {
            Ok((stream, peer)) => {
                serve(stream, peer, Held::new(gate, core, Permits::over_limit()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                if count_failure(gate.stats.core(core), &error) {
                    return;
                }
            }
        }
    }
}
