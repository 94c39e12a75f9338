//! Options of the engine beside the plan of a step.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tidegate_algorithms::pacing::Profile;

use super::{tls::Tls, workload::Workload};

/// What is spoken to the target.
#[derive(Clone, Debug)]
pub enum Exchange {
    /// HTTP/1.1 requests of a workload.
    Http(Arc<Workload>),
    /// Its requests over HTTP/2, one stream at a time on each connection.
    Http2 {
        /// The requests.
        workload: Arc<Workload>,
        /// Bodies are gRPC messages, and the verdict is that of `grpc-status`.
        grpc: bool,
    },
    /// A connection and nothing else: the time to connect is the response time.
    TcpConnect,
    /// So many bytes sent, and the same number awaited.
    TcpEcho {
        /// 1 byte to 1 MiB.
        bytes: u32,
    },
    /// The workload's commands to a RESP server.
    Resp(Arc<Workload>),
}

/// Whether a connection carries more than one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// One connection carries requests until someone closes it.
    #[default]
    KeepAlive,
    /// Each request has a connection of its own; the time to connect is part of its response time.
    PerRequest,
}

/// The engine's settings; they hold for every step.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where connections go.
    pub target: SocketAddr,
    /// What is spoken.
    pub exchange: Exchange,
    /// What it is spoken within.
    pub tls: Option<Tls>,
    /// Generator threads, 1 to 256; never more than connections.
    pub threads: u32,
    /// Local addresses, taken in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// Reuse of connections.
    pub reuse: Reuse,
    /// Nagle's algorithm off.
    pub nodelay: bool,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Longest time from the send to the end of the reply.
    pub request_timeout: Duration,
    /// Open loop: longest time after the step's end for requests that were due in it.
    pub drain: Duration,
    /// Connections opened per second over all threads (`None`: as fast as they go).
    pub connect_rate: Option<f64>,
    /// Connections in the making at a time, per thread, at least 1.
    pub max_connecting: u32,
    /// Seed of everything random: arrivals, weights, variables.
    pub seed: u64,
    /// Open loop: a rate that changes over the measured time, in place of the plan's one rate.
    pub profile: Option<Profile>,
    /// This process's place among those that share the load: `(index, count)`.
    pub share: (u32, u32),
}

impl Options {
    /// Settings for one target, everything else at its default.
    #[must_use]
    pub fn new(target: SocketAddr, exchange: Exchange) -> Self {
        Self {
            target,
            exchange,
            tls: None,
            threads: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
            sources: Vec::new(),
            reuse: Reuse::KeepAlive,
            nodelay: true,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            drain: Duration::from_secs(2),
            connect_rate: None,
            max_connecting: 512,
            seed: 1,
            profile: None,
            share: (0, 1),
        }
    }
}

impl Options {
    /// What made the load, in words for a report: the event loop is always this engine's own.
    #[must_use]
    pub fn engine(&self) -> String {
        let spoken = match &self.exchange {
            Exchange::Http(_) => "HTTP/1.1 by tidegate's own reader",
            Exchange::Http2 { grpc: false, .. } => "HTTP/2 by h2, one stream per connection",
            Exchange::Http2 { grpc: true, .. } => "unary gRPC over HTTP/2 by h2, one stream per connection",
            Exchange::TcpConnect => "TCP connections only",
            Exchange::TcpEcho { .. } => "TCP echo",
            Exchange::Resp(_) => "RESP2",
        };
        if self.tls.is_some() { format!("{spoken}, within TLS by rustls") } else { spoken.to_owned() }
    }
}

/// Ends a run early and cleanly, from another thread or a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the run to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
