//! The process and its machine, read from `/proc` when somebody scrapes.
//!
//! The names are those of Prometheus' own client libraries. What cannot be read is left out: a
//! missing file must not take the whole page with it.

use std::fmt;
use std::fs;

use tidegate_net::clock::wall;

use crate::{Families, Family};

/// This process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    started_nanos: u64,
}

impl Process {
    /// To be called at start, which is what it remembers.
    #[must_use]
    pub fn started_now() -> Self {
        Self { started_nanos: wall().0 }
    }
}

impl Family for Process {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let start = self.started_nanos / 1_000_000_000;
        families.gauge("process_start_time_seconds", "When the process started", start)?;
        if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::parse) {
            let hertz = rustix::param::clock_ticks_per_second();
            #[expect(clippy::cast_precision_loss, reason = "a metric's value is a double")]
            let cpu = stat.cpu_ticks as f64 / hertz as f64;
            families.counter("process_cpu_seconds", "Processor time used", cpu)?;
            let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
            families.gauge("process_resident_memory_bytes", "Memory resident", stat.resident_pages * page)?;
            families.gauge("process_threads", "Threads", stat.threads)?;
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            let open = u64::try_from(entries.count()).unwrap_or(u64::MAX);
            families.gauge("process_open_fds", "Descriptors open", open)?;
        }
        if let Some(most) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(max_descriptors)
        {
            families.gauge("process_max_fds", "Most descriptors that may be open", most)?;
        }
        let netstat = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        if let Some([overflows, drops]) = listen_counters(&netstat) {
            let help =
                "Connections that found a full accept queue, of all processes of this network namespace";
            families.counter("tidegate_system_listen_overflows", help, overflows)?;
            let help = "Connections dropped by listening sockets, of all processes of this network namespace";
            families.counter("tidegate_system_listen_drops", help, drops)?;
        }
        Ok(())
    }
}

/// What is used of `/proc/self/stat`, see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may hold spaces and parentheses: fields are counted from its last parenthesis,
        // after which comes field 3.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, threads: field(20)?, resident_pages: field(24)? })
    }
}

fn max_descriptors(limits: &str) -> Option<u64> {
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// ListenOverflows and ListenDrops of `/proc/net/netstat`, whose lines come in pairs: names, values.
fn listen_counters(netstat: &str) -> Option<[u64; 2]> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next()?.split_ascii_whitespace();
    let values = lines.next()?.split_ascii_whitespace();
    let pairs: Vec<_> = names.zip(values).collect();
    let value = |name: &str| pairs.iter().find(|(known, _)| *known == name)?.1.parse().ok();
    Some([value("ListenOverflows")?, value("ListenDrops")?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;
    use crate::exposition::Exposition;

    #[test]
    fn proc_files_are_read_by_name_and_position() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194304 1 0 0 0 30 12 0 0 20 0 4 0 100 2000 345 184";
        assert_eq!(Stat::parse(stat), Some(Stat { cpu_ticks: 42, threads: 4, resident_pages: 345 }));
        assert_eq!(Stat::parse("7 (short) S 1"), None);
        let netstat = "TcpExt: A ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: B\nIpExt: 1\n";
        assert_eq!(listen_counters(netstat), Some([22, 333]));
        assert_eq!(listen_counters(""), None);
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024    4096    files\n";
        assert_eq!(max_descriptors(limits), Some(1024));
    }

    #[test]
    fn this_process_has_memory_descriptors_and_a_start() {
        let mut metrics = Metrics::new();
        metrics.register(Process::started_now());
        let page = metrics.page(Exposition::OpenMetrics);
        for name in ["process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"] {
            let line = page.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            assert!(line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 0, "{line}");
        }
        assert!(page.contains("# TYPE process_cpu_seconds counter"));
    }
}
