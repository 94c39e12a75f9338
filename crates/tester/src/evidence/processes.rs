//! Which processes a server has on this machine.

use std::collections::BTreeSet;

use super::files::{MAX_THREADS, file, names, sockets, sockets_of};
use super::process;

/// Processes looked through for a listener.
const MAX_PROCESSES: usize = 32_768;
/// Processes of one server that are watched.
const MAX_SERVERS: usize = 64;

/// The processes that listen on a port of this machine, as far as this user may look, at most [`MAX_SERVERS`]; none when the
/// port is not listened on, or by a process that may not be looked at. Workers share a listener, or have one each.
pub(crate) fn listener_pids(port: u16) -> Vec<u32> {
    let inodes: BTreeSet<u64> =
        sockets().iter().filter(|s| s.listening && s.local.1 == port).map(|s| s.inode).collect();
    if inodes.is_empty() {
        return Vec::new();
    }
    let owns = |pid: &u32| !inodes.is_disjoint(&sockets_of(*pid));
    let processes = names("/proc", MAX_PROCESSES).unwrap_or_default();
    processes.iter().filter_map(|name| name.parse().ok()).filter(owns).take(MAX_SERVERS).collect()
}

/// A process of this machine with those that it started, those that they started, and so on: at most [`MAX_SERVERS`], and not the one that asks.
/// Who names a server by its first process means its workers, too.
pub(crate) fn with_descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        let threads = names(&format!("/proc/{parent}/task"), MAX_THREADS).unwrap_or_default();
        let children = threads.iter().filter_map(|id| file(&format!("/proc/{parent}/task/{id}/children")));
        for child in children.flat_map(|list| process::children(&list)) {
            if found.len() < MAX_SERVERS && child != std::process::id() && !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn workers_are_found_by_the_process_that_started_them() {
        // It says when its worker is there, which ends with it, and it ends with its input.
        let script = "sleep 600 & echo; read line; kill $!";
        let mut first = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        first.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = with_descendants(first.id());
        assert!(found.first() == Some(&first.id()) && found.len() == 2, "{found:?}");
        drop(first.stdin.take());
        first.wait().unwrap();
    }
}
