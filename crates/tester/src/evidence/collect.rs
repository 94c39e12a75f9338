//! Reads the kernel's files and turns two readings into the figures of a step.
//!
//! A [`Probe`] knows what to look at (the server's process, its port, the client's own process). One
//! [`Reading`] is everything at one moment; [`Probe::delta`] subtracts two. What changes within a step
//! (queue lengths, open descriptors, outgoing connections) is kept as a maximum over the readings in
//! between. A file that is missing or forbidden leaves its figures `None`.
//!
//! Bounds: at most 1,024 threads and 4,096 descriptors of a process are looked at per reading (`files.rs`), so that looking does not
//! become the load.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::cgroup::{Quota, quota};
use super::files::{MAX_THREADS, file, names, sockets, sockets_of};
use super::network::{self, Sockets, TcpCounters, TcpSocket};
use super::process;
use super::sock_diag;
use tidegate_judge::diagnose::evidence::{KernelDelta, Observation, Opening, ServerDelta, ThreadUse};

/// Threads kept in the evidence, the busiest.
const KEPT_THREADS: usize = 16;
/// Clock ticks a second: USER_HZ, which the kernel has fixed at 100 for every program.
const TICKS_PER_SECOND: f64 = 100.0;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// The server's processes, when they run on this machine: several where workers share a port.
    pub server_pids: Vec<u32>,
    /// The port that the server listens on, when it is on this machine.
    pub server_port: Option<u16>,
    /// Where the client connects to.
    pub target: Option<SocketAddr>,
    /// The generator's own processes.
    pub client_pids: Vec<u32>,
    /// Source addresses that the client uses.
    pub sources: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    name: String,
    ticks: u64,
    delay_nanos: u64,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    counters: Option<TcpCounters>,
    sockets: Option<Sockets>,
    cores: Option<process::CoreTicks>,
    machine_cores: Option<u32>,
    accept_queue: Option<(u64, Option<u64>)>,
    min_rtt_us: Option<u32>,
    client_descriptors: Option<u64>,
    threads: BTreeMap<u32, Thread>,
    futex_waiting: Option<u64>,
    descriptors: Option<u64>,
    quota: Quota,
    resident_bytes: Option<u64>,
    outgoing: Option<u64>,
}

impl Probe {
    /// Reads everything once.
    #[must_use]
    pub fn read(&self) -> Reading {
        let tcp = sockets();
        let server = &self.server_pids;
        let machine = file("/proc/stat");
        let ticks = |counts: &dyn Fn(u32) -> bool| process::core_ticks(machine.as_ref()?, counts);
        Reading {
            counters: file("/proc/net/netstat").and_then(|t| network::netstat(&t)),
            sockets: file("/proc/net/sockstat").and_then(|t| network::sockstat(&t)),
            cores: ticks(&on_allowed_cores(server)),
            machine_cores: ticks(&|_| true).map(|all| all.cores),
            accept_queue: self.accept_queue(&tcp),
            min_rtt_us: self.target.and_then(sock_diag::min_rtt_us),
            client_descriptors: self.client_pids.iter().filter_map(|&p| client_files(p)).max(),
            threads: server.iter().flat_map(|&p| threads(p)).collect(),
            futex_waiting: server.iter().filter_map(|&p| futex_waiting(p)).reduce(|a, b| a + b),
            descriptors: server.iter().filter_map(|&p| open_files(p)).max(),
            // Workers are in the group of who started them.
            quota: server.first().map(|&p| quota(p)).unwrap_or_default(),
            resident_bytes: server.iter().filter_map(|&p| resident_bytes(p)).reduce(|a, b| a + b),
            outgoing: (!server.is_empty()).then(|| outgoing(server, &tcp)),
        }
    }

    /// What was counted while connections were opened, for `seconds`.
    #[must_use]
    pub fn opening(first: &Reading, opened: &Reading, seconds: f64) -> Option<Opening> {
        let (before, after) = (first.counters?, opened.counters?);
        Some(Opening {
            seconds,
            listen_overflows: after.listen_overflows.saturating_sub(before.listen_overflows),
            listen_drops: after.listen_drops.saturating_sub(before.listen_drops),
            syn_retransmits: after.syn_retransmits.saturating_sub(before.syn_retransmits),
        })
    }

    /// The figures of a measured time of `seconds` from readings in order of time: at least the one
    /// before it and the one after it.
    #[must_use]
    pub fn delta(&self, readings: &[Reading], seconds: f64) -> Observation {
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else {
            return Observation::default();
        };
        Observation {
            kernel: self.kernel(readings, first, last),
            server: self.server(readings, first, last, seconds),
            min_rtt_us: readings.iter().filter_map(|r| r.min_rtt_us).min().map(f64::from),
        }
    }

    fn kernel(&self, readings: &[Reading], first: &Reading, last: &Reading) -> Option<KernelDelta> {
        let (before, after) = (first.counters?, last.counters?);
        let most = |pick: fn(&Reading) -> Option<u64>| readings.iter().filter_map(pick).max();
        let limit = file("/proc/self/limits").and_then(|t| process::descriptor_limit(&t));
        Some(KernelDelta {
            listen_overflows: after.listen_overflows.saturating_sub(before.listen_overflows),
            listen_drops: after.listen_drops.saturating_sub(before.listen_drops),
            syn_retransmits: after.syn_retransmits.saturating_sub(before.syn_retransmits),
            sockets_in_use: most(|r| r.sockets.map(|s| s.in_use)).unwrap_or(0),
            time_wait: most(|r| r.sockets.map(|s| s.time_wait)).unwrap_or(0),
            port_range: file("/proc/sys/net/ipv4/ip_local_port_range").and_then(|t| network::port_range(&t)),
            sources: self.sources,
            client_descriptors: most(|r| r.client_descriptors),
            client_descriptor_limit: limit,
            accept_queue: most(|r| r.accept_queue.map(|(waiting, _)| waiting)),
            accept_queue_limit: most(|r| r.accept_queue.and_then(|(_, limit)| limit)),
            cores: last.cores.map(|ticks| f64::from(ticks.cores)),
            machine_cores: last.machine_cores.map(f64::from),
            idle: share(first, last, |ticks| ticks.idle),
            stolen: share(first, last, |ticks| ticks.stolen),
            opening: None,
        })
    }

    fn server(
        &self,
        readings: &[Reading],
        first: &Reading,
        last: &Reading,
        seconds: f64,
    ) -> Option<ServerDelta> {
        if last.threads.is_empty() || seconds <= 0.0 {
            return None;
        }
        let most = |pick: fn(&Reading) -> Option<u64>| readings.iter().filter_map(pick).max();
        let waiting: Vec<u64> = readings.iter().filter_map(|r| r.futex_waiting).collect();
        let mut threads = thread_use(first, last, seconds);
        let cpu = threads.iter().map(|t| t.cpu).sum();
        threads.truncate(KEPT_THREADS);
        let allowed = last.cores.map_or(1.0, |ticks| f64::from(ticks.cores));
        let (before, after) = (first.quota.periods, last.quota.periods);
        let grown = |pick: fn((u64, u64)) -> u64| Some(pick(after?).saturating_sub(pick(before?)));
        Some(ServerDelta {
            cores: last.quota.cores.map_or(allowed, |quota| quota.min(allowed)),
            quota_cores: last.quota.cores,
            cpu,
            threads,
            futex_waiting: (!waiting.is_empty())
                .then(|| waiting.iter().sum::<u64>() as f64 / waiting.len() as f64),
            descriptors: most(|r| r.descriptors),
            descriptor_limit: self.server_pids.iter().filter_map(|&p| descriptor_limit(p)).min(),
            quota_periods: grown(|t| t.0),
            throttled: grown(|t| t.1),
            resident_bytes: last.resident_bytes,
            outgoing: most(|r| r.outgoing),
            upstream_us: None,
        })
    }

    /// Length and limit of the listener's queue; without its limit where only files can be read.
    fn accept_queue(&self, tcp: &[TcpSocket]) -> Option<(u64, Option<u64>)> {
        let port = self.server_port?;
        if let Some(queue) = sock_diag::accept_queue(port) {
            return Some((queue.waiting, Some(queue.limit)));
        }
        let listeners = tcp.iter().filter(|s| s.listening && s.local.1 == port);
        listeners.map(|s| (s.receive_queue, None)).max()
    }
}

fn thread_use(first: &Reading, last: &Reading, seconds: f64) -> Vec<ThreadUse> {
    let mut found: Vec<ThreadUse> = last
        .threads
        .iter()
        .map(|(tid, now)| {
            // A thread born within the step starts from 0.
            let then = first.threads.get(tid).cloned().unwrap_or_default();
            ThreadUse {
                name: now.name.clone(),
                cpu: now.ticks.saturating_sub(then.ticks) as f64 / TICKS_PER_SECOND / seconds,
                run_delay: now.delay_nanos.saturating_sub(then.delay_nanos) as f64 / 1e9 / seconds,
            }
        })
        .collect();
    found.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    found
}

/// A part of the cores' time between two readings, 0 to 1.
fn share(first: &Reading, last: &Reading, part: fn(&process::CoreTicks) -> u64) -> Option<f64> {
    let (before, after) = (first.cores?, last.cores?);
    let all = after.all.saturating_sub(before.all);
    (all > 0).then(|| part(&after).saturating_sub(part(&before)) as f64 / all as f64)
}

fn resident_bytes(pid: u32) -> Option<u64> {
    file(&format!("/proc/{pid}/status")).and_then(|text| process::resident_bytes(&text))
}

fn descriptor_limit(pid: u32) -> Option<u64> {
    file(&format!("/proc/{pid}/limits")).and_then(|text| process::descriptor_limit(&text))
}

fn open_files(pid: u32) -> Option<u64> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(|entries| entries.count() as u64)
}

/// As [`open_files`], for a client that may be this process itself: out of descriptors it cannot
/// open its own list any more, and that is the answer.
fn client_files(pid: u32) -> Option<u64> {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(entries) => Some(entries.count() as u64),
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            getrlimit(Resource::Nofile).current
        }
        Err(_) => None,
    }
}

fn threads(pid: u32) -> BTreeMap<u32, Thread> {
    let ids = names(&format!("/proc/{pid}/task"), MAX_THREADS).unwrap_or_default();
    ids.into_iter()
        .filter_map(|id| {
            let stat = process::stat(&file(&format!("/proc/{pid}/task/{id}/stat"))?)?;
            let delay = file(&format!("/proc/{pid}/task/{id}/schedstat"));
            let delay_nanos = delay.and_then(|t| process::run_delay_nanos(&t)).unwrap_or(0);
            Some((id.parse().ok()?, Thread { name: stat.name, ticks: stat.ticks, delay_nanos }))
        })
        .collect()
}

fn futex_waiting(pid: u32) -> Option<u64> {
    let ids = names(&format!("/proc/{pid}/task"), MAX_THREADS)?;
    let waiting = ids.iter().filter(|id| {
        file(&format!("/proc/{pid}/task/{id}/wchan")).is_some_and(|channel| channel.contains("futex"))
    });
    Some(waiting.count() as u64)
}

/// Whether a core is one that one of the processes may run on; every core is when that cannot be read.
fn on_allowed_cores(pids: &[u32]) -> impl Fn(u32) -> bool {
    let allowed = |pid: &u32| process::allowed_cores(&file(&format!("/proc/{pid}/status"))?);
    let mut ranges: Vec<(u32, u32)> = pids.iter().filter_map(allowed).flatten().collect();
    if ranges.is_empty() {
        ranges.push((0, u32::MAX));
    }
    move |core| ranges.iter().any(|&(low, high)| (low..=high).contains(&core))
}

/// Established connections that the processes opened themselves: they do not listen on their local ports.
fn outgoing(pids: &[u32], tcp: &[TcpSocket]) -> u64 {
    let own: BTreeSet<u64> = pids.iter().flat_map(|&pid| sockets_of(pid)).collect();
    let listening: BTreeSet<u16> =
        tcp.iter().filter(|s| s.listening && own.contains(&s.inode)).map(|s| s.local.1).collect();
    let ours = |s: &&TcpSocket| s.established && own.contains(&s.inode) && !listening.contains(&s.local.1);
    tcp.iter().filter(ours).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::processes::listener_pids;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn this_process_is_seen_with_its_threads_queue_and_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let probe = Probe {
            server_pids: vec![std::process::id()],
            server_port: Some(port),
            target: Some(listener.local_addr().unwrap()),
            client_pids: vec![std::process::id()],
            sources: Some(1),
        };
        assert_eq!(listener_pids(port), [std::process::id()]);
        let before = probe.read();
        let waiting: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let own: Vec<TcpStream> =
            (0..4).map(|_| TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap()).collect();
        let seen = probe.delta(&[before, probe.read()], 1.0);
        let kernel = seen.kernel.unwrap();
        assert_eq!(kernel.accept_queue, Some(3));
        assert!(kernel.accept_queue_limit.is_none_or(|limit| limit > 3), "{kernel:?}");
        assert!(seen.min_rtt_us.is_none_or(|us| us < 1e6), "{:?}", seen.min_rtt_us);
        assert!(kernel.port_range.unwrap() > 1_000 && kernel.idle.is_none_or(|i| (0.0..=1.0).contains(&i)));
        assert!(kernel.client_descriptors.unwrap() >= 9);
        let server = seen.server.unwrap();
        // A core at least, unless this very process has a quota that is less.
        assert!(!server.threads.is_empty() && server.cores >= server.quota_cores.unwrap_or(1.0).min(1.0));
        assert!(server.descriptors.unwrap() < server.descriptor_limit.unwrap());
        // The test is client and server at once, so its clients count as outgoing too.
        assert!(server.outgoing.unwrap() >= 7, "{:?}", server.outgoing);
        assert_eq!((waiting.len(), own.len()), (3, 4));
    }

    #[test]
    fn a_process_that_is_not_there_gives_no_server() {
        let probe = Probe { server_pids: vec![u32::MAX], ..Probe::default() };
        let seen = probe.delta(&[probe.read(), probe.read()], 1.0);
        assert!(seen.server.is_none());
    }
}
