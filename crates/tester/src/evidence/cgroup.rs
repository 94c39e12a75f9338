//! A process's CPU quota: how many cores it allows, and how often it ran out.
//!
//! The quota that counts may stand at any of the groups above a process: the tightest does, and its
//! `cpu.stat` tells when it ran out. Both versions of the interface are read.
//!
//! References: the kernel's `admin-guide/cgroup-v2.rst` (`cpu.max`) and `scheduler/sched-bwc.rst`
//! (`cpu.cfs_quota_us`).

use std::fs;
use std::path::{Path, PathBuf};

/// Groups above a process that are looked at.
const MAX_DEPTH: usize = 16;

/// What is known of a process's quota at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// Cores that it allows; none when there is no quota.
    pub cores: Option<f64>,
    /// Periods that passed, and those in which it ran out, since the group began.
    pub periods: Option<(u64, u64)>,
}

/// The quota of a process of this machine.
#[must_use]
pub fn quota(pid: u32) -> Quota {
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return Quota::default() };
    let above: Vec<PathBuf> =
        folders(&groups).iter().flat_map(|(mount, path)| upwards(mount, path)).collect();
    let limited = above.iter().filter_map(|folder| Some((folder, cores(folder)?)));
    let tightest = limited.min_by(|a, b| a.1.total_cmp(&b.1));
    let periods = |folder: &Path| periods(&fs::read_to_string(folder.join("cpu.stat")).ok()?);
    match tightest {
        Some((folder, cores)) => Quota { cores: Some(cores), periods: periods(folder) },
        None => Quota { cores: None, periods: above.iter().find_map(|folder| periods(folder)) },
    }
}

/// A group and those above it, up to the root of its mount.
fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    Path::new(path)
        .ancestors()
        .take(MAX_DEPTH)
        .map(|group| mount.join(group.strip_prefix("/").unwrap_or(group)))
        .collect()
}

fn cores(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    match read("cpu.max") {
        Some(text) => cores_of_max(&text),
        None => cores_of_quota(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
    }
}

/// Reads `cpu.max`: `50000 100000` is half a core, `max 100000` no quota.
fn cores_of_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    cores_of_quota(quota, period)
}

/// Reads the two files of version 1; a quota of -1 is none.
fn cores_of_quota(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Reads quota periods, and how many of them ran out, from a `cpu.stat`.
fn periods(text: &str) -> Option<(u64, u64)> {
    let find = |name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    Some((find("nr_periods")?, find("nr_throttled")?))
}

/// Where a process's CPU group may be, as mount and path, from its `/proc/PID/cgroup`.
fn folders(text: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let mut add = |mount: &str| found.push((Path::new("/sys/fs/cgroup").join(mount), path.to_owned()));
        if controllers.is_empty() {
            add("");
            add("unified");
        } else if controllers.split(',').any(|c| c == "cpu") {
            add(controllers);
            add("cpu");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(cores_of_max("50000 100000\n"), Some(0.5));
        assert_eq!(cores_of_max("max 100000\n"), None);
        assert_eq!(cores_of_quota("150000\n", "100000\n"), Some(1.5));
        assert_eq!(cores_of_quota("-1\n", "100000\n"), None);
        assert_eq!(periods("nr_periods 120\nnr_throttled 87\nthrottled_time 4300000000\n"), Some((120, 87)));
        assert_eq!(periods("usage_usec 5\nnr_periods 12\nnr_throttled 3\n"), Some((12, 3)));
        assert_eq!(periods("usage_usec 5\n"), None);
    }

    #[test]
    fn groups_above_are_looked_at_too() {
        let found = folders("4:cpu,cpuacct:/outer/inner\n0::/\n");
        let all: Vec<PathBuf> = found.iter().flat_map(|(mount, path)| upwards(mount, path)).collect();
        let all: Vec<&str> = all.iter().map(|path| path.to_str().unwrap().trim_end_matches('/')).collect();
        assert_eq!(
            all,
            [
                "/sys/fs/cgroup/cpu,cpuacct/outer/inner",
                "/sys/fs/cgroup/cpu,cpuacct/outer",
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/cpu/outer/inner",
                "/sys/fs/cgroup/cpu/outer",
                "/sys/fs/cgroup/cpu",
                "/sys/fs/cgroup",
                "/sys/fs/cgroup/unified",
            ]
        );
    }

    #[test]
    fn this_process_has_a_quota_or_none() {
        assert!(quota(std::process::id()).cores.is_none_or(|cores| cores > 0.0));
        assert_eq!(quota(u32::MAX), Quota::default());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[a-z0-9 :/,\n-]{0,120}") {
            prop_assert!(folders(&text).len() <= 2 * text.lines().count());
            prop_assert!(cores_of_max(&text).is_none_or(|cores| cores > 0.0));
            prop_assert!(periods(&text).is_none() || text.contains("nr_periods"));
        }
    }
}
