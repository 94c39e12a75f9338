//! What listeners are opened and closed by.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_net::drain::{Drain, DrainTiming};
use tidegate_net::listen::{ListenConfig, ListenError, Listeners};
use tidegate_net::tls::NamedCertificates;

use crate::config::{Settings, clash};

/// What does not change while a process runs.
#[derive(Debug)]
pub(in crate::serve) struct ListenGround {
    workers: NonZeroUsize,
    share_ports: bool,
    /// The drain of the process.
    pub(super) drain: Drain,
    /// How a listener drains.
    pub(super) timing: DrainTiming,
    /// Certificates that are ordered, if any are.
    pub(super) ordered: Option<NamedCertificates>,
}

impl ListenGround {
    pub(in crate::serve) fn new(
        settings: &Settings,
        workers: NonZeroUsize,
        drain: &Drain,
        ordered: Option<NamedCertificates>,
    ) -> Self {
        let timing = DrainTiming::with_deadline(settings.limits.drain_deadline);
        let timing = DrainTiming { grace: Duration::ZERO, ..timing };
        Self { workers, share_ports: settings.runtime.share_ports, drain: drain.clone(), timing, ordered }
    }

    /// Binds `address` beside the sockets that this process has `open`, and does not listen yet.
    pub(super) fn reserve(&self, address: SocketAddr, open: &[SocketAddr]) -> Result<Listeners, ListenError> {
        // One for all addresses and one for a single address are open side by side for a moment.
        let open: Vec<_> = open.iter().map(|open| (String::new(), *open)).collect();
        let share_port = self.share_ports || clash(&open, address).is_some();
        Listeners::reserve(&ListenConfig { share_port, ..ListenConfig::new(address, self.workers) })
    }
}
