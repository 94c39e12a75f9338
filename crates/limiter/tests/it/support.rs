//! The RESP server on a free port.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part of it"
)]

use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tidegate_access::tokens::{Credential, Scope, TokensInForce};
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::PolicySet;
use tidegate_limiter::resp::{RespConfig, Server, TEMPLATES};
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;

/// Longer than anything here should take; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A running server; dropping it ends it.
pub struct Running {
    pub address: std::net::SocketAddr,
    pub engine: Arc<Engine>,
    pub stats: Arc<Stats>,
    pub buffers: Buffers,
    drain: Drain,
    cores: Option<Cores>,
}

/// Starts a server with counters in memory.
pub fn start(password: Option<&str>, config: RespConfig) -> Running {
    start_within(Buffers::new(64 << 20), password, config)
}

/// The same, for clients that may have so many bytes held for them.
pub fn start_within(buffers: Buffers, password: Option<&str>, config: RespConfig) -> Running {
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::default(), tidegate_control::Snapshot::default(), &tallies);
    let counters = Counters::Memory(Memory::new(16 << 20));
    let engine = Arc::new(Engine::new(set, tallies, counters, Clock::start()));
    let two = NonZeroUsize::new(2).unwrap();
    let cores = Cores::start(two).unwrap();
    let drain = Drain::new();
    let stats = Arc::new(Stats::new(2, TEMPLATES));
    let gate = Gate {
        permits: Permits::new(1_000),
        buffers: buffers.clone(),
        drain: drain.clone(),
        stats: stats.clone(),
    };
    let listeners = Listeners::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap(), two)).unwrap();
    let address = listeners.address();
    let tokens = password.map(|password| Credential::new("default", [Scope::Decide], password));
    let tokens = TokensInForce::new(tokens.into_iter().collect());
    Server::new(&engine, tokens, config, gate).start(&cores, listeners);
    drain.advance(Stage::Ready);
    Running { address, engine, stats, buffers, drain, cores: Some(cores) }
}

impl Running {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn drain(&mut self, timing: DrainTiming) -> Drained {
        let cores = self.cores.take().unwrap();
        let drained = cores.handle(0).clone().block_on(self.drain.run(timing));
        cores.stop();
        drained
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(cores) = self.cores.take() {
            self.drain.advance(Stage::Stopped);
            cores.stop();
        }
    }
}
