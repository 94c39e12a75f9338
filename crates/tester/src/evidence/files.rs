//! Reads the kernel's files about processes and their sockets, with bounds.

use std::collections::BTreeSet;
use std::fs;

use super::network::{self, TcpSocket};
use super::process;

/// Threads looked at.
pub(super) const MAX_THREADS: usize = 1_024;
/// Descriptors whose links are followed.
pub(super) const MAX_DESCRIPTORS: usize = 4_096;

pub(super) fn file(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

pub(super) fn sockets() -> Vec<TcpSocket> {
    let mut found = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        if let Some(text) = file(path) {
            found.extend(network::tcp_sockets(&text));
        }
    }
    found
}

pub(super) fn names(path: &str, most: usize) -> Option<Vec<String>> {
    let entries = fs::read_dir(path).ok()?;
    Some(entries.take(most).filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
}

/// The inodes of a process's sockets.
pub(super) fn sockets_of(pid: u32) -> BTreeSet<u64> {
    let ids = names(&format!("/proc/{pid}/fd"), MAX_DESCRIPTORS).unwrap_or_default();
    let links = ids.iter().filter_map(|id| fs::read_link(format!("/proc/{pid}/fd/{id}")).ok());
    links.filter_map(|link| process::socket_inode(link.to_str()?)).collect()
}
