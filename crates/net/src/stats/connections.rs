//! Counters of connections, whatever protocol they speak.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The request head did not arrive in time.
    Header,
    /// No request arrived for the idle time.
    Idle,
    /// The peer read the response too slowly.
    Write,
}

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandshakeFailure {
    /// It was not over in time.
    Timeout,
    /// Too many others were under way for all of its time.
    Busy,
    /// The client left.
    Gone,
    /// What the client sent is not TLS.
    NotTls,
    /// The client and this server have no version, suite or application protocol in common.
    Incompatible,
    /// A client certificate is required, and the client showed none.
    ClientCertificateMissing,
    /// The client's certificate is expired, or of none of the authorities, or its key is another's.
    ClientCertificateRefused,
    /// The client refused, with an alert: it does not take our certificate, most likely.
    Alert,
    /// Anything else that a client can do wrong.
    Other,
}

impl HandshakeFailure {
    /// Every reason, in order.
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Busy,
        Self::Gone,
        Self::NotTls,
        Self::Incompatible,
        Self::ClientCertificateMissing,
        Self::ClientCertificateRefused,
        Self::Alert,
        Self::Other,
    ];

    /// The reason's name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Gone => "gone",
            Self::NotTls => "not_tls",
            Self::Incompatible => "incompatible",
            Self::ClientCertificateMissing => "client_certificate_missing",
            Self::ClientCertificateRefused => "client_certificate_refused",
            Self::Alert => "alert",
            Self::Other => "other",
        }
    }
}

/// Counters of connections on one core.
#[derive(Debug, Default)]
pub struct ConnectionStats {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed, for whatever reason.
    pub closed: AtomicU64,
    /// Times that accepting paused because every connection permit was taken.
    pub accept_paused: AtomicU64,
    /// Connections accepted over the limit, for operation.
    pub accepted_for_operation: AtomicU64,
    /// Times that accepting failed for want of descriptors or memory (EMFILE, ENFILE, ENOBUFS, ENOMEM).
    pub accept_exhausted: AtomicU64,
    /// Other failures to accept, such as a peer that was gone already.
    pub accept_failed: AtomicU64,
    /// Connections closed because their proxy's header was missing or late, or their peer is no proxy.
    pub unproxied: AtomicU64,
    /// Connections cut because the request head was late.
    pub cut_header: AtomicU64,
    /// Connections closed because they were idle.
    pub cut_idle: AtomicU64,
    /// Connections, and requests of HTTP/2, cut because the peer did not read.
    pub cut_write: AtomicU64,
    /// TLS handshakes that succeeded.
    pub handshakes: AtomicU64,
    /// Handshakes that failed, by reason.
    pub(super) handshakes_failed: [AtomicU64; HandshakeFailure::ALL.len()],
}

impl ConnectionStats {
    /// Counts a TLS handshake that failed.
    pub fn handshake_failed(&self, reason: HandshakeFailure) {
        self.handshakes_failed[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts a connection that was cut.
    pub fn cut(&self, cause: Cut) {
        let counter = match cause {
            Cut::Header => &self.cut_header,
            Cut::Idle => &self.cut_idle,
            Cut::Write => &self.cut_write,
        };
        counter.fetch_add(1, Relaxed);
    }
}
