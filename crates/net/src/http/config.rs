//! The server's bounds.

use std::time::Duration;

/// Progress that a peer owes: after `grace`, at least `bytes_per_second` on average since the
/// wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumRate {
    /// Time before the rate counts.
    pub grace: Duration,
    /// Average rate; 0 means that nothing but the grace is allowed.
    pub bytes_per_second: u32,
}

impl MinimumRate {
    /// How long the transfer of `bytes` may take.
    #[must_use]
    pub fn allowance(&self, bytes: u64) -> Duration {
        let earned = match self.bytes_per_second {
            0 => Duration::ZERO,
            rate => Duration::from_millis(bytes.saturating_mul(1000) / u64::from(rate)),
        };
        self.grace.saturating_add(earned)
    }
}

/// How long a request body may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPace {
    /// The longest time from the first wait for the body to its end.
    pub deadline: Duration,
    /// The slowest acceptable sender.
    pub rate: MinimumRate,
}

/// The bounds of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Bytes of request line and header fields; more is answered 431. At least 8,192.
    pub max_head_bytes: usize,
    /// Bytes of the request target; more is answered 414. At most 65,534.
    pub max_target_bytes: usize,
    /// From the first byte of a request head to its last; for a connection's first request, from its
    /// start.
    pub head_timeout: Duration,
    /// From a reply to the first byte of the next request.
    pub idle_timeout: Duration,
    /// Bytes that a connection may hold of request bodies and replies; more is answered 503. No less than
    /// the largest body that is to be read.
    pub connection_bytes: usize,
    /// For request bodies.
    pub body: BodyPace,
    /// For peers that read a reply.
    pub write: MinimumRate,
    /// How long a client that has sent its last byte is still owed the reply to a request: it may have
    /// half-closed, or have left.
    pub half_closed: Duration,
    /// How long a connection that the server half-closed is read dry; on HTTP/2, how long a body is that nobody wants.
    pub linger: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_head_bytes: 64 * 1024,
            max_target_bytes: 8 * 1024,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            connection_bytes: 4 << 20,
            body: BodyPace {
                deadline: Duration::from_secs(30),
                rate: MinimumRate { grace: Duration::from_secs(5), bytes_per_second: 1024 },
            },
            write: MinimumRate { grace: Duration::from_secs(10), bytes_per_second: 1024 },
            half_closed: Duration::from_secs(10),
            linger: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_rate_grants_time_for_bytes() {
        let rate = MinimumRate { grace: Duration::from_secs(5), bytes_per_second: 1024 };
        assert_eq!(rate.allowance(0), Duration::from_secs(5));
        assert_eq!(rate.allowance(2048), Duration::from_secs(7));
        assert!(rate.allowance(u64::MAX) > Duration::from_secs(1_000_000));
        let nothing = MinimumRate { bytes_per_second: 0, ..rate };
        assert_eq!(nothing.allowance(u64::MAX), Duration::from_secs(5));
    }
}
