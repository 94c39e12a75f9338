//! Bytes both ways between a client and its backend, until both have ended or neither has said anything for too long.
//!
//! The end of one side's bytes is passed on and the other side may go on talking. When a side breaks off, the other one is
//! given what had come from it, however slowly it takes that, and is then broken off, too, with a reset where there is
//! no TLS: what was received arrives, and what was cut never looks complete.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidegate_net::clock::monotonic;
use tidegate_net::connection::LazyTimer;
use tokio::net::TcpStream;

use crate::direction::{Direction, DirectionFailure};
use crate::side::Side;
use crate::unsent::{self, Pauses};

/// The bounds of a relay in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long both sides may be silent.
    pub(crate) idle: Duration,
    /// How long it may last in all.
    pub(crate) longest: Option<Duration>,
}

/// How a relay ended.
#[derive(Debug)]
pub(crate) enum RelayEnd {
    /// Both sides have said their last byte.
    Closed,
    /// Both sides were silent for too long.
    Idle,
    /// It lasted as long as it may.
    Longest,
    /// The client broke off.
    ClientBroke(io::Error),
    /// The backend broke off.
    BackendBroke(io::Error),
}

impl RelayEnd {
    /// Its word in metrics and logs.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Longest => "longest",
            Self::ClientBroke(_) => "client_broke",
            Self::BackendBroke(_) => "backend_broke",
        }
    }
}

/// A client and its backend.
#[derive(Debug)]
pub(crate) struct Relay<C> {
    client: C,
    backend: TcpStream,
    to_backend: Direction,
    to_client: Direction,
    timer: LazyTimer,
    started: Instant,
    active: Instant,
    patience: Patience,
    /// Bytes that may still be read.
    allowance: u64,
    /// Whether the direction to the client has the first turn, so that neither takes all of the allowance.
    is_client_next: bool,
    /// Since one side has broken off.
    breaking: Option<Box<Breaking>>,
}

/// One side has broken off, and the other one is given the rest.
#[derive(Debug)]
struct Breaking {
    end: RelayEnd,
    pauses: Pauses,
    /// What the other side still had to get at the last look.
    left: Left,
}

/// Bytes that were read, bytes that are kept, and packets that were not acknowledged.
type Left = ((u64, u64), usize, u32);

impl<C: Side> Relay<C> {
    /// Begins. `first` goes to the backend before anything else; so many bytes of it are the client's own.
    pub(crate) fn new(
        client: C,
        backend: TcpStream,
        first: Vec<u8>,
        from_client: usize,
        patience: Patience,
    ) -> Self {
        let now = monotonic();
        let to_backend = Direction::beginning_with(first, from_client as u64);
        let (to_client, timer) = (Direction::default(), LazyTimer::default());
        let (started, active, allowance) = (now, now, u64::MAX);
        Self {
            client,
            backend,
            to_backend,
            to_client,
            timer,
            started,
            active,
            patience,
            allowance,
            is_client_next: false,
            breaking: None,
        }
    }

    /// How many bytes may still be read from both sides together; without limits more than will ever come. A caller
    /// that adds bytes when there were none polls the relay again.
    pub(crate) fn allowance(&mut self) -> &mut u64 {
        &mut self.allowance
    }

    /// Bytes that went to the backend, and to the client.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.to_backend.bytes, self.to_client.bytes)
    }

    /// When it began.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Passes bytes on. Ready at the end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        if self.breaking.is_none() {
            let end = ready!(self.poll_both(cx));
            let rest = match &end {
                RelayEnd::ClientBroke(_) => &mut self.to_backend,
                RelayEnd::BackendBroke(_) => &mut self.to_client,
                RelayEnd::Closed | RelayEnd::Idle | RelayEnd::Longest => return Poll::Ready(end),
            };
            rest.is_cut = !rest.has_ended;
            let breaking = Breaking { end, pauses: Pauses::default(), left: ((0, 0), 0, 0) };
            self.breaking = Some(Box::new(breaking));
        }
        self.poll_breaking(cx)
    }

    /// Passes bytes both ways until they have ended, or a side breaks off.
    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let before = self.bytes();
        let is_client_first = self.is_client_next;
        let one = self.poll_one(is_client_first, cx);
        // A failed write takes the error off the socket, which then reads as if it had ended well.
        if let Poll::Ready(Err(end)) = one {
            return Poll::Ready(end);
        }
        match (one, self.poll_one(!is_client_first, cx)) {
            (_, Poll::Ready(Err(end))) => return Poll::Ready(end),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(RelayEnd::Closed),
            _ => {}
        }
        if self.bytes() != before {
            self.active = monotonic();
            self.is_client_next = !self.is_client_next;
        }
        let (deadline, end) = self.deadline();
        ready!(self.timer.poll(cx, deadline));
        Poll::Ready(end)
    }

    /// When it is over if nothing comes any more, and how it has ended then.
    fn deadline(&self) -> (Instant, RelayEnd) {
        let idle = self.active + self.patience.idle;
        match self.patience.longest.map(|longest| self.started + longest) {
            Some(longest) if longest <= idle => (longest, RelayEnd::Longest),
            _ => (idle, RelayEnd::Idle),
        }
    }

    /// Gives the other side what came from the one that has broken off, and then breaks that off, too.
    fn poll_breaking(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let Some(mut breaking) = self.breaking.take() else { return Poll::Ready(RelayEnd::Closed) };
        loop {
            let is_clients = matches!(breaking.end, RelayEnd::ClientBroke(_));
            let given = self.poll_one(!is_clients, cx);
            let (socket, direction) = if is_clients {
                (&self.backend, &self.to_backend)
            } else {
                (self.client.socket(), &self.to_client)
            };
            let packets = if given.is_ready() { unsent::packets(socket) } else { 0 };
            let left = (self.bytes(), direction.kept_bytes(), packets);
            let is_other_gone = match &given {
                Poll::Ready(Err(RelayEnd::ClientBroke(_))) => !is_clients,
                Poll::Ready(Err(RelayEnd::BackendBroke(_))) => is_clients,
                _ => false,
            };
            if is_other_gone || (given.is_ready() && packets == 0) {
                break;
            }
            if matches!(given, Poll::Ready(Err(_))) {
                // Its reader has nothing more.
                let direction = if is_clients { &mut self.to_backend } else { &mut self.to_client };
                direction.has_ended = true;
            }
            if left != breaking.left {
                (breaking.left, self.active) = (left, monotonic());
            }
            let (deadline, _) = self.deadline();
            let now = monotonic();
            if deadline <= now {
                break;
            }
            // While there is more to write, the socket says when it takes some.
            let next = if given.is_ready() { deadline.min(now + breaking.pauses.next()) } else { deadline };
            if self.timer.poll(cx, next).is_pending() {
                self.breaking = Some(breaking);
                return Poll::Pending;
            }
        }
        self.break_off();
        Poll::Ready(breaking.end)
    }

    fn poll_one(&mut self, is_to_client: bool, cx: &mut Context<'_>) -> Poll<Result<(), RelayEnd>> {
        if is_to_client { self.poll_to_client(cx) } else { self.poll_to_backend(cx) }
    }

    fn poll_to_backend(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayEnd>> {
        let up = self.to_backend.poll(&mut self.client, &mut self.backend, &mut self.allowance, cx);
        up.map_err(|failure| match failure {
            DirectionFailure::Reader(error) => RelayEnd::ClientBroke(error),
            DirectionFailure::Writer(error) => RelayEnd::BackendBroke(error),
        })
    }

    fn poll_to_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayEnd>> {
        let down = self.to_client.poll(&mut self.backend, &mut self.client, &mut self.allowance, cx);
        down.map_err(|failure| match failure {
            DirectionFailure::Reader(error) => RelayEnd::BackendBroke(error),
            DirectionFailure::Writer(error) => RelayEnd::ClientBroke(error),
        })
    }

    /// Has each socket that is still owed bytes end with a reset, which does not look like the last byte.
    pub(crate) fn break_off(&self) {
        let sides = [(self.client.socket(), &self.to_client), (&self.backend, &self.to_backend)];
        for (socket, _) in sides.into_iter().filter(|(_, incoming)| !incoming.is_shut) {
            // A socket that is gone already needs no more.
            drop(socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream as Peer};

    use super::*;

    /// Two ends of a connection: the relay's, and the one of whoever it speaks to.
    fn connection() -> (TcpStream, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer::connect(listener.local_addr().unwrap()).unwrap();
        let (own, _) = listener.accept().unwrap();
        own.set_nonblocking(true).unwrap();
        (TcpStream::from_std(own).unwrap(), peer)
    }

    #[tokio::test]
    async fn fault_69_a_reset_that_is_met_in_writing_is_no_end_of_what_is_read() {
        let ((own_client, mut client), (own_backend, mut backend)) = (connection(), connection());
        backend.write_all(b"half").unwrap();
        socket2::SockRef::from(&backend).set_linger(Some(Duration::ZERO)).unwrap();
        drop(backend);
        let patience = Patience { idle: Duration::from_secs(60), longest: None };
        let mut relay = Relay::new(own_client, own_backend, b"more".to_vec(), 4, patience);
        let end = poll_fn(|cx| relay.poll(cx)).await;
        assert!(matches!(end, RelayEnd::BackendBroke(_)), "{end:?}");
        drop(relay);
        let mut received = Vec::new();
        let failed = client.read_to_end(&mut received).unwrap_err();
        assert_eq!((received.as_slice(), failed.kind()), (&b"half"[..], ErrorKind::ConnectionReset));
    }
}
