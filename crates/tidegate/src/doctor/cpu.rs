//! Processor time: whether a control group stops the server while its clients wait.
//!
//! A group with a quota may run for so long in each period, all of its threads together. Where more threads are busy than the
//! quota has cores, it is spent before the period ends, and everything stands still until the next one: tens of milliseconds
//! that show as the latency of requests.
//!
//! Reference: the kernel's `admin-guide/cgroup-v2.rst` (`cpu.max`). Groups of version 1 are not looked at.

use std::fs;
use std::path::Path;

use tidegate_net::runtime::available_cores;

use super::Finding;
use super::processes::Process;
use crate::config::Settings;

const AREA: &str = "cpu";
/// Groups above a process that are looked at.
const MAX_DEPTH: usize = 16;

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeenCpu {
    /// Cores' worth of time, and the file that says so; none: as much as there is.
    quota: Option<(f64, String)>,
    /// Threads that serve, of `runtime.workers`; none: one for each core that the server may have.
    stated: Option<u32>,
    /// Cores that there are.
    cores: u32,
}

/// Reads the groups of the running server; of this process where none runs.
pub(super) fn look(settings: &Settings, server: Option<&Process>) -> SeenCpu {
    let process = server.map_or_else(|| "self".to_owned(), |server| server.id.to_string());
    let workers = settings.runtime.workers;
    SeenCpu {
        quota: quota(Path::new("/"), &process),
        stated: (workers > 0).then_some(workers),
        cores: u32::try_from(available_cores().get()).unwrap_or(u32::MAX),
    }
}

/// The least quota of a process's group and of those above it, in the file systems under `root`.
fn quota(root: &Path, process: &str) -> Option<(f64, String)> {
    let groups = fs::read_to_string(root.join(format!("proc/{process}/cgroup"))).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let quotas = Path::new(group).ancestors().take(MAX_DEPTH).filter_map(|group| {
        let below = group.strip_prefix("/").unwrap_or(group);
        let file = Path::new("sys/fs/cgroup").join(below).join("cpu.max");
        let cores = cores_of(&fs::read_to_string(root.join(&file)).ok()?)?;
        Some((cores, format!("/{}", file.display())))
    });
    quotas.min_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// Cores' worth of time of `50000 100000`; none of `max 100000`.
fn cores_of(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace().map(str::parse::<f64>);
    let (quota, period) = (words.next()?.ok()?, words.next()?.ok()?);
    (period > 0.0).then_some(quota / period)
}

/// What follows from it.
pub(super) fn judge(SeenCpu { quota, stated, cores }: &SeenCpu) -> Vec<Finding> {
    let Some((allowed, file)) = quota else {
        let workers = stated.unwrap_or(*cores);
        return vec![Finding::ok(AREA, format!("no control group bounds it, threads that serve: {workers}"))];
    };
    // As many threads as the quota has whole cores, and one at least: what the standard library says of cores.
    let fitting = (allowed.floor().max(1.0) as u32).min(*cores);
    let workers = stated.unwrap_or(fitting);
    if f64::from(workers) <= *allowed {
        return vec![Finding::ok(
            AREA,
            format!("{file} allows {allowed:.2} cores, threads that serve: {workers}"),
        )];
    }
    let what = format!(
        "{file} allows {allowed:.2} cores, threads that serve: {workers}. While all are busy they are stopped for a part of \
         each period, and requests wait for tens of milliseconds"
    );
    let more = format!(
        "a limit of {workers} cores or none: CPUQuota={}% in the systemd unit, --cpus {workers} for a container, \
         resources.limits.cpu in Kubernetes",
        u64::from(workers) * 100
    );
    let repair = if fitting < workers { format!("runtime.workers = {fitting}; or {more}") } else { more };
    vec![Finding::warning(AREA, what, repair)]
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn more_threads_than_the_quota_has_cores_is_a_warning() {
        let of = |allowed: f64, stated: Option<u32>| {
            let seen = SeenCpu { quota: Some((allowed, "/f".into())), stated, cores: 8 };
            judge(&seen).remove(0)
        };
        assert_eq!(judge(&SeenCpu { quota: None, stated: None, cores: 8 })[0].level, Level::Ok);
        for (allowed, stated) in [(2.5, None), (4.0, Some(4)), (16.0, None), (1.0, None)] {
            assert_eq!(of(allowed, stated).level, Level::Ok, "{allowed} {stated:?}");
        }
        let many = of(2.5, Some(8));
        assert_eq!(many.level, Level::Warning);
        assert!(many.repair.starts_with("runtime.workers = 2; or a limit of 8 cores"), "{many:?}");
        assert!(many.repair.contains("CPUQuota=800%"), "{many:?}");
        let half = of(0.5, None);
        assert!(half.level == Level::Warning && half.repair.starts_with("a limit of 1 cores"), "{half:?}");
    }

    #[test]
    fn the_least_quota_counts_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(quota(folder.path(), "self"), None, "nothing is known");
        write("proc/self/cgroup", "4:cpu:/old\n0::/pod/app\n");
        write("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
        assert_eq!(quota(folder.path(), "self"), None);
        write("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
        assert_eq!(quota(folder.path(), "self"), Some((1.5, "/sys/fs/cgroup/pod/cpu.max".to_owned())));
        write("sys/fs/cgroup/cpu.max", "50000 100000\n");
        assert_eq!(quota(folder.path(), "self"), Some((0.5, "/sys/fs/cgroup/cpu.max".to_owned())));
        assert_eq!((cores_of(""), cores_of("1"), cores_of("1 0")), (None, None, None));
    }
}
