//! The facts of the machine that generated the load. Without them a figure cannot be compared.

use std::fs;

use serde::{Deserialize, Serialize};

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and kernel.
    pub system: String,
    /// Processor model.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Open files that this process may have.
    pub descriptor_limit: u64,
    /// Local ports, lowest and highest.
    pub port_range: String,
}

impl Machine {
    /// Reads this machine's facts; what cannot be read stays empty or 0.
    #[must_use]
    pub fn here() -> Self {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|l| l.starts_with(key));
            line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned()).unwrap_or_default()
        };
        let memory = value(&file("/proc/meminfo"), "MemTotal");
        let kibibytes: u64 = memory.split_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(0);
        let limits = file("/proc/self/limits");
        Self {
            system: format!("{} {}", std::env::consts::OS, file("/proc/sys/kernel/osrelease").trim()),
            processor: value(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes * 1024,
            descriptor_limit: crate::diagnose::evidence::process::descriptor_limit(&limits).unwrap_or(0),
            port_range: file("/proc/sys/net/ipv4/ip_local_port_range")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join("-"),
        }
    }
}
