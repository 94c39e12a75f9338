//! Sockets that a service manager listens on already and passes on (systemd's socket activation).
//!
//! The protocol is sd_listen_fds(3): `LISTEN_FDS` descriptors from number 3 on, meant for the process
//! `LISTEN_PID`. A socket serves the listener whose configured address it has, so neither order nor
//! names have to be agreed on, and the rules about public addresses hold for it unchanged. A socket
//! that is no listener's is a mistake in the unit, and the process does not start: serving on another
//! address than the one that is watched would look like an outage.
//!
//! Other listeners are bound here, beside those of another process if `runtime.share_ports` says so.
//!
//! Deliberately absent: Unix sockets and datagrams.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;

use listenfd::ListenFd;
use tidegate_net::listen::{ListenConfig, Listeners};

use super::error::{InheritError, MAX_SOCKETS, StartError};

/// The sockets that were passed on and are not taken yet, and how the others are bound.
#[derive(Debug)]
pub(super) struct Inherited {
    sockets: Vec<(SocketAddr, TcpListener)>,
    share_ports: bool,
}

impl Inherited {
    /// Takes what was meant for this process. To be called once, while it has one thread: the
    /// variables are removed, so that children do not take them for theirs.
    pub(super) fn of_process(share_ports: bool) -> Result<Self, InheritError> {
        let meant = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        let count = env::var("LISTEN_FDS").ok().filter(|_| meant);
        let Some(count) = count else { return Ok(Self { sockets: Vec::new(), share_ports }) };
        if count.parse::<usize>().is_ok_and(|count| count <= MAX_SOCKETS) {
            Self::take(ListenFd::from_env(), share_ports)
        } else {
            Err(InheritError::Count(count))
        }
    }

    fn take(mut passed: ListenFd, share_ports: bool) -> Result<Self, InheritError> {
        /// Number of the first descriptor.
        const FIRST: usize = 3;
        let mut sockets = Vec::with_capacity(passed.len());
        for index in 0..passed.len() {
            let unusable = |source| InheritError::Socket { descriptor: FIRST + index, source };
            if let Some(socket) = passed.take_tcp_listener(index).map_err(unusable)? {
                sockets.push((socket.local_addr().map_err(unusable)?, socket));
            }
        }
        Ok(Self { sockets, share_ports })
    }

    /// Listens on `address`: with the socket that was passed on for it, or with sockets of our own.
    pub(super) fn listeners(
        &mut self,
        address: SocketAddr,
        workers: NonZeroUsize,
    ) -> Result<Listeners, StartError> {
        let Some(index) = self.sockets.iter().position(|(passed, _)| *passed == address) else {
            let config = ListenConfig { share_port: self.share_ports, ..ListenConfig::new(address, workers) };
            return Ok(Listeners::bind(&config)?);
        };
        let (address, socket) = self.sockets.swap_remove(index);
        tracing::info!(%address, "listening on the service manager's socket");
        Listeners::adopt(&socket, workers).map_err(|source| {
            StartError::Listen(tidegate_net::listen::ListenError::System { address, source })
        })
    }

    /// Whether every socket has found its listener.
    pub(super) fn is_used_up(&self) -> Result<(), InheritError> {
        match self.sockets.first() {
            None => Ok(()),
            Some((address, _)) => Err(InheritError::Stranger(*address)),
        }
    }
}
