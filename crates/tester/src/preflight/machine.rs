//! The limits of this machine, from `/proc` and `getrlimit`.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// What this machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Descriptors that one process may have after raising its own soft limit; none: without a limit.
    pub descriptors_hard: Option<u64>,
    /// Files open in the whole system, and those that may be; none when that cannot be read.
    pub files: Option<(u64, u64)>,
    /// First and last ephemeral port.
    pub port_range: (u16, u16),
    /// Longest accept queue that a listener here can have.
    pub somaxconn: u64,
    /// Memory that can be used without swapping, in bytes; none when that cannot be read.
    pub memory_available: Option<u64>,
    /// Whether the kernel shows what programs use (`/proc`): without it no cause can be seen.
    pub shows_programs: bool,
    /// Cores.
    pub cores: u32,
}

impl Machine {
    /// Reads the limits. What cannot be read is not known, or taken as the kernel's default, so that a
    /// missing file never forbids a run.
    #[must_use]
    pub fn read() -> Self {
        let numbers = |path: &str| -> Vec<u64> {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let ports = numbers("/proc/sys/net/ipv4/ip_local_port_range");
        let port = |index: usize, default: u16| {
            ports.get(index).and_then(|&port| u16::try_from(port).ok()).unwrap_or(default)
        };
        let files = numbers("/proc/sys/fs/file-nr");
        Self {
            descriptors_hard: getrlimit(Resource::Nofile).maximum,
            files: files.first().copied().zip(files.last().copied()),
            port_range: (port(0, 32_768), port(1, 60_999)),
            somaxconn: numbers("/proc/sys/net/core/somaxconn").first().copied().unwrap_or(4_096),
            memory_available: memory_available(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            shows_programs: fs::exists("/proc/self/stat").unwrap_or(false),
            cores: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
        }
    }
}

/// Raises this process's descriptor limit to what it may have.
///
/// # Errors
/// When the system refuses.
pub fn raise_descriptors() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes.saturating_mul(1_024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read();
        assert!(
            machine.cores >= 1
                && machine.descriptors_hard != Some(0)
                && machine.port_range.0 < machine.port_range.1
        );
        assert!(machine.memory_available > Some(1_000_000) && machine.shows_programs, "{machine:?}");
        assert!(machine.files.is_some_and(|(open, most)| most > open), "{machine:?}");
        assert_eq!(memory_available("MemTotal: 9 kB\nMemAvailable:   1000 kB\n"), Some(1_024_000));
        assert_eq!(memory_available(""), None);
        raise_descriptors().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
    }
}
