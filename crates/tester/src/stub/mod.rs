//! `tidegate stub`: a test backend with planted behaviour, so that every cause the tester can name
//! has a case in which it is known to be true.
//!
//! It must stay far from being the limit itself: an event loop per thread over epoll, replies
//! rendered once, a pool of workers that is arithmetic and not threads. It counts exactly what it did (`GET
//! /__stub/stats` or [`Stub::stats`]), so that a measurement can be compared with the truth.

mod behaviour;
mod connection;
mod options;
mod serve;
mod server;
mod stats;
mod upstream;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use thiserror::Error;

use crate::{epoch::Epoch, load::Stop};
use server::{Common, StubServer};

pub use options::{Admission, Beyond, Fault, FaultKind, Freeze, MAX_LEAK, Stall, StubOptions, Upstream};
pub use stats::Stats;

/// Why a stub could not start, or ended.
#[derive(Debug, Error)]
pub enum StubError {
    /// Another process listens there.
    #[error("cannot listen on {0}: another process does already (stop it, or take another port)")]
    Taken(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The descriptor limit could not be set.
    #[error("cannot set the descriptor limit: {0}")]
    Limit(#[source] io::Error),
    /// An event loop failed.
    #[error("the stub's event loop failed: {0}")]
    Loop(#[source] io::Error),
    /// A thread ended without an error.
    #[error("a stub thread ended unexpectedly")]
    Thread,
}

/// A running stub. Dropping it stops it.
pub struct Stub {
    address: SocketAddr,
    common: Common,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Stub {
    /// Starts a stub; it listens when this returns.
    ///
    /// # Errors
    /// When the address cannot be listened on, or a limit or a thread cannot be had.
    pub fn start(options: StubOptions, stop: Stop) -> Result<Self, StubError> {
        if let Some(count) = options.max_descriptors {
            let maximum = getrlimit(Resource::Nofile).maximum;
            setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })
                .map_err(|error| StubError::Limit(error.into()))?;
        }
        let mut address = options.listen;
        let failed = |source| StubError::Listen { address: options.listen, source };
        if !options.share_port {
            expect_free(address)?;
        }
        let threads = options.threads.clamp(1, 64);
        let mut listeners = Vec::new();
        for _ in 0..threads {
            let (listener, bound) = bind_listener(address, options.backlog).map_err(failed)?;
            address = bound;
            listeners.push(listener);
        }
        let common = Common {
            epoch: Epoch::start(),
            behaviour: Arc::new(behaviour::Behaviour::new(options.clone())),
            options: Arc::new(options),
            counters: Arc::new(stats::StubCounters::new()),
            stop,
        };
        let mut stub = Self { address, common, threads: Vec::new() };
        for (index, listener) in listeners.into_iter().enumerate() {
            let common = stub.common.clone();
            let run = move || StubServer::new(common, listener, index as u32)?.run();
            let thread =
                thread::Builder::new().name(format!("stub-{index}")).spawn(run).map_err(StubError::Loop)?;
            stub.threads.push(thread);
        }
        Ok(stub)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.common.counters.stats()
    }

    /// Begins the account anew.
    pub fn reset_stats(&self) {
        self.common.counters.reset();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When a thread failed.
    pub fn join(mut self) -> Result<Stats, StubError> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| StubError::Thread)?.map_err(StubError::Loop)?;
        }
        Ok(self.stats())
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.common.stop.stop();
        for thread in self.threads.drain(..) {
            // The thread's own failure was its to report; here only its end matters.
            let _ended = thread.join().is_ok();
        }
    }
}

/// Runs a stub until it is stopped.
///
/// # Errors
/// As [`Stub::start`], or when a thread failed.
pub fn run(options: StubOptions, stop: Stop) -> Result<Stats, StubError> {
    Stub::start(options, stop)?.join()
}

/// Says whether another process listens on a port, which listeners that share it would not notice.
///
/// # Errors
/// When one does, or the address cannot be had at all.
pub fn expect_free(address: SocketAddr) -> Result<(), StubError> {
    let bound = socket(address).and_then(|fd| Ok(bind(&fd, &address)?));
    bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StubError::Taken(address),
        _ => StubError::Listen { address, source },
    })
}

/// A listener that shares its port with others, and where it is bound.
fn bind_listener(address: SocketAddr, backlog: u32) -> io::Result<(OwnedFd, SocketAddr)> {
    let fd = socket(address)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    bind(&fd, &address)?;
    listen(&fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let listener = TcpListener::from(fd);
    let bound = listener.local_addr()?;
    Ok((listener.into(), bound))
}

/// A socket that can be bound although connections of an earlier process are still ending.
fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    Ok(fd)
}
