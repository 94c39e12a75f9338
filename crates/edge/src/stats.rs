//! The edge's counters, by listener and backend: the configuration bounds their names. Clients have none.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Why a connection was closed without a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The app has no backend that may be used.
    NoBackend,
    /// Every backend that may be used is at its hard limit.
    Full,
    /// The backends that were tried could not be reached.
    Unreachable,
    /// What it began with is no TLS, or did not come in time, so that it has no server name.
    NoServerName,
    /// Its PROXY header did not come in time, or its peer is no trusted proxy.
    Unproxied,
    /// Its TLS handshake failed.
    Handshake,
    /// A policy's limit is used up.
    Quota,
    /// None of the listener's policies applies to it, and such connections are denied.
    NoMatch,
    /// A policy that the listener lists is not in force.
    NoPolicy,
    /// The limiter gave no answer.
    NoAnswer,
}

impl Refusal {
    /// Every reason, in order.
    pub const ALL: [Self; 10] = [
        Self::NoBackend,
        Self::Full,
        Self::Unreachable,
        Self::NoServerName,
        Self::Unproxied,
        Self::Handshake,
        Self::Quota,
        Self::NoMatch,
        Self::NoPolicy,
        Self::NoAnswer,
    ];

    /// Whether the cause is here or behind, and not with the client.
    pub(crate) const fn is_ours(self) -> bool {
        matches!(self, Self::NoBackend | Self::Full | Self::Unreachable | Self::NoPolicy | Self::NoAnswer)
    }

    /// What the log says of it.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::NoBackend => "the app has no backend that may be used",
            Self::Full => "every backend that may be used is at its hard limit",
            Self::Unreachable => "the backends that were tried cannot be reached",
            Self::NoServerName => "it has no server name",
            Self::Unproxied => "it has no PROXY header in time, or its peer is not one of the listed proxies",
            Self::Handshake => "its TLS handshake failed",
            Self::Quota => "a policy's limit is used up",
            Self::NoMatch => "none of the listener's policies applies to it",
            Self::NoPolicy => "a policy that the listener lists is not in force",
            Self::NoAnswer => "the limiter gave no answer",
        }
    }

    /// Its word in metrics, logs and decisions.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoBackend => "no_backend",
            Self::Full => "full",
            Self::Unreachable => "unreachable",
            Self::NoServerName => "no_server_name",
            Self::Unproxied => "unproxied",
            Self::Handshake => "handshake",
            Self::Quota => "quota",
            Self::NoMatch => "no_match",
            Self::NoPolicy => "no_policy",
            Self::NoAnswer => "no_answer",
        }
    }
}

/// What is counted of a listener.
#[derive(Debug, Default)]
pub struct ListenerStats {
    /// Connections that were placed at a backend.
    pub placed: AtomicU64,
    /// Of these, those that are open.
    pub open: AtomicU64,
    /// Connections that went where their client was before.
    pub affine: AtomicU64,
    /// Attempts at backends that failed, the last one of a connection included.
    pub retries: AtomicU64,
    /// Times that a connection waited for its limits of bytes.
    pub waits: AtomicU64,
    /// By [`Refusal`], in order.
    pub refused: [AtomicU64; Refusal::ALL.len()],
    /// Bytes in both directions.
    pub traffic: Traffic,
}

/// What is counted of a backend, beside what `upstream` does.
#[derive(Debug, Default)]
pub struct BackendStats {
    /// Connections that it accepted.
    pub connections: AtomicU64,
    /// Time that connecting to it took in all, in nanoseconds.
    pub connect_nanos: AtomicU64,
    /// Connections that it broke off.
    pub broken: AtomicU64,
    /// Connections that were closed because it went down.
    pub closed_unhealthy: AtomicU64,
    /// Bytes in both directions.
    pub traffic: Traffic,
}

/// Bytes in both directions.
#[derive(Debug, Default)]
pub struct Traffic {
    /// From clients.
    pub to_backend: AtomicU64,
    /// To clients.
    pub to_client: AtomicU64,
}

impl Traffic {
    pub(crate) fn add(&self, to_backend: u64, to_client: u64) {
        self.to_backend.fetch_add(to_backend, Relaxed);
        self.to_client.fetch_add(to_client, Relaxed);
    }

    /// From clients, and to clients.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        (self.to_backend.load(Relaxed), self.to_client.load(Relaxed))
    }
}

impl ListenerStats {
    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }
}

impl BackendStats {
    pub(crate) fn connected(&self, took: Duration) {
        self.connections.fetch_add(1, Relaxed);
        self.connect_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Of an edge.
#[derive(Debug, Default)]
pub struct AffinityStats {
    /// Clients that are remembered.
    pub clients: u64,
    /// Clients that were forgotten because the table was full.
    pub dropped: u64,
}
