//! Cores of their own for the load generator and for the server beside it on one machine.
//!
//! Two programs on the same cores measure each other. [`split`] decides who gets which cores, a function of
//! what each may use now; [`Pinned`] puts it into force for every thread of the server and for the thread
//! that starts the generator, whose threads and processes inherit it. Dropping it gives the server back
//! what it had. A server that is found on cores of its own is left as it is.

use std::{fs, io};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use tidegate_judge::report::Split;

/// Most threads of a server that are pinned.
const MAX_THREADS: usize = 65_536;

/// Shares cores between a server and a generator that may use these now; none when there is only one.
///
/// Cores that the server may not use are the generator's. Where it may use all of them, the generator gets
/// the last half, the smaller one when they are uneven.
#[must_use]
pub fn split(server: &[usize], generator: &[usize]) -> Option<Split> {
    let apart: Vec<usize> = generator.iter().copied().filter(|core| !server.contains(core)).collect();
    if !apart.is_empty() {
        return Some(Split { server: server.to_vec(), generator: apart });
    }
    let half = generator.len() / 2;
    let own = generator[generator.len() - half..].to_vec();
    let rest: Vec<usize> = server.iter().copied().filter(|core| !own.contains(core)).collect();
    (half > 0 && !rest.is_empty()).then_some(Split { server: rest, generator: own })
}

/// Why cores could not be given.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// There is one core for both.
    #[error("generator and server have one core between them")]
    OneCore,
    /// The system refused.
    #[error("the cores of process {0} cannot be set: {1} (run as its user, or as root)")]
    Refused(u32, #[source] io::Error),
}

/// A server and this thread on cores of their own, until it is dropped.
#[derive(Debug)]
pub struct Pinned {
    split: Split,
    threads: Vec<(Pid, CpuSet)>,
}

impl Pinned {
    /// Gives the processes of a `server` and the calling thread cores of their own. A worker that has some of the server's cores to itself
    /// keeps those of them that stay the server's.
    ///
    /// # Errors
    /// When there is one core only, or the system refuses; then all is as it was.
    pub fn new(server: &[u32]) -> Result<Self, PinError> {
        let of = |pid: u32| move |error: io::Error| PinError::Refused(pid, error);
        let own = sched_getaffinity(None).map_err(|error| of(std::process::id())(error.into()))?;
        let mut theirs = CpuSet::new();
        for &pid in server {
            let cores = process(pid).and_then(|pid| Ok(sched_getaffinity(Some(pid))?)).map_err(of(pid))?;
            numbers(&cores).into_iter().for_each(|core| theirs.set(core));
        }
        let split = split(&numbers(&theirs), &numbers(&own)).ok_or(PinError::OneCore)?;
        let mut pinned = Self { split, threads: Vec::new() };
        // Twice: a thread that was born meanwhile has its parent's cores, old or new.
        for _ in 0..2 {
            for &pid in server {
                pinned.pin(pid).map_err(of(pid))?;
            }
        }
        let generator = set(&pinned.split.generator);
        sched_setaffinity(None, &generator).map_err(|error| of(std::process::id())(error.into()))?;
        Ok(pinned)
    }

    /// Gives the threads of a process that are not pinned yet their cores.
    fn pin(&mut self, pid: u32) -> io::Result<()> {
        for thread in threads(pid)? {
            if self.threads.iter().any(|(known, _)| *known == thread) {
                continue;
            }
            // A thread that has ended meanwhile needs no core.
            let Ok(before) = sched_getaffinity(Some(thread)) else { continue };
            let mut kept = numbers(&before);
            kept.retain(|core| self.split.server.contains(core));
            let cores = set(if kept.is_empty() { &self.split.server } else { &kept });
            if before != cores {
                sched_setaffinity(Some(thread), &cores)?;
            }
            self.threads.push((thread, before));
        }
        Ok(())
    }

    /// Who has which cores.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for (thread, before) in &self.threads {
            // A thread that has ended needs nothing back.
            let _ended = sched_setaffinity(Some(*thread), before).is_err();
        }
    }
}

fn process(pid: u32) -> io::Result<Pid> {
    let raw = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    Pid::from_raw(raw).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn threads(pid: u32) -> io::Result<Vec<Pid>> {
    let names = fs::read_dir(format!("/proc/{pid}/task"))?.take(MAX_THREADS);
    let id = |entry: io::Result<fs::DirEntry>| process(entry.ok()?.file_name().to_str()?.parse().ok()?).ok();
    Ok(names.filter_map(id).collect())
}

fn numbers(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cores_are_shared_by_halves_and_a_server_on_its_own_is_left_there() {
        let all: Vec<usize> = (0..8).collect();
        let found = split(&all, &all).unwrap();
        assert_eq!((found.server, found.generator), (vec![0, 1, 2, 3], vec![4, 5, 6, 7]));
        let odd = split(&[0, 1, 2], &[0, 1, 2]).unwrap();
        assert_eq!((odd.server, odd.generator), (vec![0, 1], vec![2]));
        let apart = split(&[0, 1], &all).unwrap();
        assert_eq!((apart.server, apart.generator), (vec![0, 1], vec![2, 3, 4, 5, 6, 7]));
        assert_eq!(split(&[0], &[0]), None);
        // The generator was pinned by its user: the server is moved off one of its cores.
        let narrow = split(&all, &[6, 7]).unwrap();
        assert_eq!((narrow.server.len(), narrow.generator), (7, vec![7]));
    }

    proptest! {
        #[test]
        fn nobody_shares_and_nobody_gains(server in prop::collection::btree_set(0_usize..16, 1..16), generator in prop::collection::btree_set(0_usize..16, 1..16)) {
            let (server, generator): (Vec<_>, Vec<_>) = (server.into_iter().collect(), generator.into_iter().collect());
            if let Some(found) = split(&server, &generator) {
                prop_assert!(!found.server.is_empty() && !found.generator.is_empty());
                prop_assert!(found.server.iter().all(|core| server.contains(core) && !found.generator.contains(core)));
                prop_assert!(found.generator.iter().all(|core| generator.contains(core)));
            }
        }
    }
}
