//! A cap on connections that all cores share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many connections may be open at once, over every listener that was given a clone.
#[derive(Clone, Debug)]
pub struct Permits {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    taken: AtomicUsize,
}

impl Permits {
    /// Allows `limit` connections at a time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(Shared { limit, taken: AtomicUsize::new(0) }) }
    }

    /// Takes a permit unless all are taken.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        let take = |taken: usize| (taken < self.shared.limit).then_some(taken + 1);
        self.shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Permit { shared: Arc::clone(&self.shared) })
    }

    /// Takes a permit even above the limit, for connections the kernel accepted before a drain.
    /// The accept queue bounds by how many.
    #[must_use]
    pub fn acquire_over_limit(&self) -> Permit {
        self.shared.taken.fetch_add(1, Ordering::Relaxed);
        Permit { shared: Arc::clone(&self.shared) }
    }

    /// Permits taken now.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// The most that may be taken.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

/// The right to hold one connection open; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_permits_come_back() {
        let permits = Permits::new(2);
        let first = permits.try_acquire().unwrap();
        let _second = permits.try_acquire().unwrap();
        assert!(permits.try_acquire().is_none());
        drop(first);
        let _third = permits.try_acquire().unwrap();
        let _fourth = permits.acquire_over_limit();
        assert_eq!(permits.taken(), 3);
        assert!(permits.try_acquire().is_none());
    }
}
