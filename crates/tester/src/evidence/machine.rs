//! Reads the facts of this machine for a report.

use std::fs;

use tidegate_judge::report::Machine;

/// Reads this machine's facts; what cannot be read stays empty or 0.
#[must_use]
pub fn here() -> Machine {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|l| l.starts_with(key));
        line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned()).unwrap_or_default()
    };
    let memory = value(&file("/proc/meminfo"), "MemTotal");
    let kibibytes: u64 = memory.split_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(0);
    let limits = file("/proc/self/limits");
    Machine {
        system: format!("{} {}", std::env::consts::OS, file("/proc/sys/kernel/osrelease").trim()),
        processor: value(&file("/proc/cpuinfo"), "model name"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: kibibytes * 1024,
        descriptor_limit: super::process::descriptor_limit(&limits).unwrap_or(0),
        port_range: file("/proc/sys/net/ipv4/ip_local_port_range")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join("-"),
    }
}
