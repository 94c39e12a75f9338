//! Witnesses: what is observed while a step runs, beside its requests.
//!
//! Three sources: the kernel's files, the server's process when it is on this machine, and the
//! server's own Prometheus page. The kernel's figures of *this* machine say nothing of a server on
//! another one, so for a remote target those about listeners and idle time are left out: a rule must
//! not take the client's idle cores for the server's.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::evidence::collect::Probe;
use crate::evidence::observed::Observed;
use crate::evidence::processes::{listener_pids, with_descendants};
use crate::evidence::prometheus::Samples;
use tidegate_judge::diagnose::Observation;
use tidegate_judge::measurement::{Bench, Measurement, StepPlan};

/// Gets a Prometheus page; none when it cannot be had.
pub type MetricsPage = Box<dyn FnMut() -> Option<String>>;

/// What can be seen of the server and the client.
pub struct Seen {
    probe: Probe,
    local: bool,
    page: Option<(MetricsPage, f64)>,
}

impl Seen {
    /// Looks for the server of `target`: `pid` with what it has started if given, else all that listen on its port here.
    /// `processes` are the generator's; `sources` the addresses that it connects from.
    #[must_use]
    pub fn of(target: SocketAddr, pid: Option<u32>, processes: u32, sources: &[IpAddr]) -> Self {
        let local = is_here(target.ip());
        let server_pids = match pid {
            Some(pid) => with_descendants(pid),
            None if local => listener_pids(target.port()),
            None => Vec::new(),
        };
        let probe = Probe {
            server_pids,
            server_port: local.then_some(target.port()),
            target: Some(target),
            // Worker processes live for a step each; their descriptors are not looked at.
            client_pids: if processes == 1 { vec![std::process::id()] } else { Vec::new() },
            sources: Some(sources.len().max(1) as u64),
        };
        Self { probe, local, page: None }
    }

    /// Also reads the server's page around each step; the server may use `cores`.
    #[must_use]
    pub fn with_page(mut self, page: MetricsPage, cores: f64) -> Self {
        self.page = Some((page, cores));
        self
    }

    /// The server's processes, as far as they are known.
    #[must_use]
    pub fn server_pids(&self) -> &[u32] {
        &self.probe.server_pids
    }

    /// Whether the target is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local
    }
}

/// Whether an address is one of this machine's: only those can be bound to.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// A bench with everything that can be seen around it.
pub struct Watched<B> {
    observed: Observed<B>,
    local: bool,
    page: Option<(MetricsPage, f64)>,
    observations: Vec<Observation>,
}

impl<B: Bench> Watched<B> {
    /// Puts what can be seen beside `bench`.
    pub fn new(bench: B, seen: Seen) -> Self {
        Self {
            observed: Observed::new(bench, seen.probe),
            local: seen.local,
            page: seen.page,
            observations: Vec::new(),
        }
    }

    /// The bench itself.
    pub fn inner(&mut self) -> &mut B {
        self.observed.inner()
    }

    /// What was seen, one entry per step; they are then gone.
    pub(super) fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observations)
    }

    fn samples(&mut self) -> Option<Samples> {
        let (page, _) = self.page.as_mut()?;
        page().map(|text| Samples::parse(&text))
    }
}

impl<B: Bench> Bench for Watched<B> {
    type Error = B::Error;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, Self::Error> {
        let before = self.samples();
        let measurement = self.observed.run(plan)?;
        let after = self.samples();
        // Invariant: `Observed` adds one observation to each step that ran.
        let mut seen = self.observed.observations().last().cloned().unwrap_or_default();
        if !self.local {
            forget_this_machine(&mut seen);
        }
        if seen.server.is_none()
            && let (Some(before), Some(after), Some((_, cores))) = (before, after, &self.page)
        {
            let opening = measurement.opening_seconds;
            let seconds = opening + plan.warmup_ms as f64 / 1e3 + measurement.seconds;
            seen.server = Samples::server(&before, &after, seconds, *cores);
        }
        self.observations.push(seen);
        Ok(measurement)
    }
}

/// Takes out what the kernel here says about listeners and cores: the server's are elsewhere.
fn forget_this_machine(seen: &mut Observation) {
    if let Some(kernel) = &mut seen.kernel {
        (kernel.listen_overflows, kernel.listen_drops) = (0, 0);
        (kernel.accept_queue, kernel.accept_queue_limit, kernel.idle) = (None, None, None);
        (kernel.cores, kernel.machine_cores, kernel.opening) = (None, None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_judge::simulated::{Service, closed};

    #[test]
    fn a_server_here_is_found_by_its_port_and_one_elsewhere_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = Seen::of(listener.local_addr().unwrap(), None, 1, &[]);
        assert!(here.is_local() && here.server_pids() == [std::process::id()]);
        // TEST-NET-1 is nobody's address.
        let elsewhere = Seen::of("192.0.2.1:80".parse().unwrap(), None, 1, &[]);
        assert!(!elsewhere.is_local() && elsewhere.server_pids().is_empty());
    }

    #[test]
    fn the_cores_of_this_machine_are_not_taken_for_a_remote_servers() {
        let idle_at = |target: &str| {
            let seen = Seen::of(target.parse().unwrap(), None, 1, &[]);
            let mut bench = Watched::new(Service::new(4, 1_000.0), seen);
            bench.run(&closed(1)).unwrap();
            let seen = bench.take_observations().remove(0);
            (seen.kernel.unwrap().accept_queue, seen.server)
        };
        assert_eq!(idle_at("192.0.2.1:80"), (None, None));
    }

    #[test]
    fn a_page_stands_in_for_a_process_that_cannot_be_seen() {
        let mut used = 0;
        let page = move || {
            used += 3;
            Some(format!("process_cpu_seconds_total {used}\nprocess_open_fds 7\n"))
        };
        let seen = Seen::of("192.0.2.1:80".parse().unwrap(), None, 1, &[]).with_page(Box::new(page), 8.0);
        let mut bench = Watched::new(Service::new(4, 1_000.0), seen);
        bench.run(&closed(1)).unwrap();
        let server = bench.take_observations().remove(0).server.unwrap();
        assert_eq!((server.cpu, server.cores, server.descriptors), (0.5, 8.0, Some(7)));
    }
}
