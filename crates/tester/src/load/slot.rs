//! One connection's place in a worker, whether or not a connection is open.

use std::os::fd::OwnedFd;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPhase {
    /// No connection.
    Closed,
    /// A connection is being made.
    Connecting,
    /// The connection is there; what is spoken over it begins with an exchange of its own.
    Handshaking,
    /// Connected, nothing in flight.
    Idle,
    /// A request is in flight.
    Busy,
}

/// A place for a connection. Times are nanoseconds since the engine's epoch.
pub(super) struct Slot<S> {
    pub(super) fd: Option<OwnedFd>,
    pub(super) phase: SlotPhase,
    /// Counts connections, so that an event of an older one is told apart.
    pub(super) generation: u32,
    /// A request waits for this slot's connection.
    pub(super) pending: bool,
    pub(super) failures: u8,
    /// The connection has carried a whole reply: its server may end it before it takes another request.
    pub(super) kept: bool,
    /// How often the present request went out again, because the server ended its connection without taking it.
    pub(super) repeats: u8,
    pub(super) planned: u64,
    /// When connecting began, then when the request was sent.
    pub(super) since: u64,
    /// When TCP's part of the connection was done, for the length of a handshake.
    pub(super) established: u64,
    /// When the slot could take its present request.
    pub(super) free_since: u64,
    /// First byte of the present reply, 0 before it.
    pub(super) first_byte: u64,
    /// What the socket did not take of the present request.
    pub(super) unsent: Vec<u8>,
    pub(super) state: S,
}

impl<S> Slot<S> {
    pub(super) fn new(state: S) -> Self {
        Self {
            fd: None,
            phase: SlotPhase::Closed,
            generation: 0,
            pending: false,
            failures: 0,
            kept: false,
            repeats: 0,
            planned: 0,
            since: 0,
            established: 0,
            free_since: 0,
            first_byte: 0,
            unsent: Vec::new(),
            state,
        }
    }

    /// Notes the first byte of the present reply, once.
    pub(super) fn begin_reply(&mut self, now: u64) {
        if self.first_byte == 0 {
            self.first_byte = now;
        }
    }

    /// The server has ended a connection on which it had answered before, and not begun to answer the present request: it has
    /// not taken it, as far as a client can tell.
    pub(super) fn is_untaken(&self) -> bool {
        self.phase == SlotPhase::Busy && self.kept && self.first_byte == 0
    }

    pub(super) fn token(&self, id: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(id)
    }

    /// How long to wait before connecting again: 10 ms doubled at each failure, at most 320 ms.
    pub(super) fn backoff(&mut self) -> u64 {
        let wait = 10_000_000 << self.failures.min(5);
        self.failures = self.failures.saturating_add(1);
        wait
    }
}
