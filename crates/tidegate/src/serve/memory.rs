//! Whether this process may have the memory that its settings let it fill.
//!
//! What it may have is the least of: the limits of its control groups and those above it (both versions
//! of the interface), `ulimit -v` and `ulimit -d`, and the machine's memory. A process that passes a
//! group's limit is killed, with all that it counts; one that passes a ulimit is refused memory, and ends.
//!
//! References: the kernel's `admin-guide/cgroup-v2.rst` (`memory.max`), `cgroup-v1/memory.rst`,
//! getrlimit(2).

use std::fs;
use std::path::Path;

use crate::config::{Bytes, Settings, Store};

/// Groups above a process that are looked at.
const MAX_DEPTH: usize = 16;

/// What is wrong with `memory.max_bytes` on this machine, if anything.
#[must_use]
pub fn memory_warning(settings: &Settings) -> Option<String> {
    memory_warning_of(settings, "self")
}

/// The same for another process, by its number.
pub(crate) fn memory_warning_of(settings: &Settings, process: &str) -> Option<String> {
    if settings.store != Store::Memory {
        return None;
    }
    let Allowed { bytes, by } = allowed(Path::new("/"), process)?;
    let asked = settings.memory.max_bytes;
    // What is resident stays within 110 %.
    (asked.0.saturating_add(asked.0 / 10) > bytes).then(|| {
        format!(
            "memory.max_bytes is {asked}, of which up to a tenth more is resident, but {by} allows this process \
             {}: it would be ended before its own cap is reached; lower memory.max_bytes or raise that limit",
            Bytes(bytes)
        )
    })
}

/// Memory that a process may have, and who says so.
#[derive(Debug, PartialEq, Eq)]
struct Allowed {
    bytes: u64,
    by: String,
}

/// The least of the limits that are found in the file systems under `root`.
fn allowed(root: &Path, process: &str) -> Option<Allowed> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let limits = read(&format!("proc/{process}/limits"));
    let ulimits = [("Max address space", "ulimit -v"), ("Max data size", "ulimit -d")].into_iter();
    let ulimits =
        ulimits.filter_map(|(name, by)| Some(Allowed { bytes: ulimit(&limits, name)?, by: by.into() }));
    let machine = machine(&read("proc/meminfo")).map(|bytes| Allowed { bytes, by: "the machine".to_owned() });
    let groups = group_files(&read(&format!("proc/{process}/cgroup")));
    let groups = groups.into_iter().filter_map(|file| {
        // "max" means no limit; version 1 writes a number above every machine's memory instead.
        let bytes = read(&file).trim().parse().ok()?;
        Some(Allowed { bytes, by: format!("/{file}") })
    });
    ulimits.chain(machine).chain(groups).min_by_key(|allowed| allowed.bytes)
}

/// The soft limit of this name in `/proc/self/limits`; none where it is unlimited.
fn ulimit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn machine(meminfo: &str) -> Option<u64> {
    let kibibytes =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The files that may state a limit of a process with this `/proc/self/cgroup`, or of a group above it.
fn group_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, name) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|it| it == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path).ancestors().take(MAX_DEPTH) {
            let group = group.strip_prefix("/").unwrap_or(group).display().to_string();
            let group = if group.is_empty() { group } else { format!("{group}/") };
            files.push(format!("{mount}/{group}{name}"));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(allowed(folder.path(), "self"), None, "nothing is known");
        write("proc/meminfo", "MemFree:  1 kB\nMemTotal:        8388608 kB\n");
        let is = |bytes: u64, by: &str| Some(Allowed { bytes, by: by.to_owned() });
        assert_eq!(allowed(folder.path(), "self"), is(8 << 30, "the machine"));
        write("proc/self/cgroup", "4:cpu,memory:/outer\n0::/pod/app\n");
        write("sys/fs/cgroup/pod/app/memory.max", "max\n");
        write("sys/fs/cgroup/pod/memory.max", "2147483648\n");
        assert_eq!(allowed(folder.path(), "self"), is(2 << 30, "/sys/fs/cgroup/pod/memory.max"));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("sys/fs/cgroup/memory/outer/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(
            allowed(folder.path(), "self"),
            is(1 << 30, "/sys/fs/cgroup/memory/outer/memory.limit_in_bytes")
        );
        let limits = "Max data size             unlimited            unlimited            bytes\n\
                      Max address space         536870912            unlimited            bytes\n";
        write("proc/self/limits", limits);
        assert_eq!(allowed(folder.path(), "self"), is(512 << 20, "ulimit -v"));
    }
}
