//! Numbers of routes and upstreams in force, by which requests are counted: a number is compared faster than a name, and none is used
//! twice in a process.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A number that nothing else in this process has, 1 or more.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}
