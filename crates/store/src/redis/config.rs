//! How to reach Redis.

use std::fmt;
use std::time::Duration;

/// Where Redis is and how to talk to it. Redis 7.0 or later, or Valkey.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// One server, a Sentinel-watched pair or a Cluster.
    pub topology: Topology,
    /// ACL user; `default` if absent.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// TLS to the servers, Sentinels among them.
    pub tls: Option<TlsConfig>,
    /// Multiplexed connections per server, 1 to 16. A counter always uses the same one.
    pub connections: usize,
    /// Longest time to connect, authenticate and load the script.
    pub connect_timeout: Duration,
    /// Longest wait for a batch's answer before its connection is given up. Callers' own deadlines
    /// are shorter ([`crate::guard`]).
    pub response_timeout: Duration,
    /// Whose clock decides.
    pub clock: DecidingClock,
}

/// What stands at the other end.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// The master that Sentinels name.
    Sentinel {
        /// Asked in turn until one answers.
        sentinels: Vec<Address>,
        /// Name of the watched master.
        master: String,
    },
    /// A Cluster, found through any of these.
    Cluster {
        /// Asked in turn until one answers.
        seeds: Vec<Address>,
    },
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Certificates, in PEM.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    /// The authority that signed the servers' certificates; the system's roots if absent.
    pub root: Option<Vec<u8>>,
    /// This client's certificate chain and key, for mTLS.
    pub client: Option<(Vec<u8>, Secret)>,
}

/// The clock that decisions go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecidingClock {
    /// The server's: nodes whose clocks differ still agree.
    #[default]
    Server,
    /// The caller's, for tests that replay a history. Unsafe with several nodes.
    Caller,
}

/// Text that does not show in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl RedisConfig {
    /// One server, nothing secret, defaults for the rest.
    #[must_use]
    pub fn single(host: impl Into<String>, port: u16) -> Self {
        Self::new(Topology::Single(Address { host: host.into(), port }))
    }

    /// This topology, nothing secret, defaults for the rest.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            username: None,
            password: None,
            tls: None,
            connections: 2,
            connect_timeout: Duration::from_millis(500),
            response_timeout: Duration::from_millis(100),
            clock: DecidingClock::Server,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}
