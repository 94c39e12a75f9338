//! A cap on connections that all cores and listeners share.
//!
//! ```text
//!   limit = kept for listener A + kept for listener B + shared by all + (over the limit: operation)
//! ```
//!
//! A listener first takes what is kept for it, then what all share. So connections to one listener,
//! however idle, never keep another one from accepting (fault 61). Beyond the limit a listener may have
//! a few connections for operation: each gets one request, for one of the operator's pages.
//!
//! Waiting is in the order of asking, and costs nothing until a permit is given back.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections a listener may have open at once.
#[derive(Clone, Debug)]
pub struct Permits {
    limit: usize,
    /// For this listener alone.
    kept: Arc<Semaphore>,
    /// For every listener that was given a clone.
    shared: Arc<Semaphore>,
    /// Over the limit, for operation.
    operation: Arc<Semaphore>,
}

impl Permits {
    /// Allows `limit` connections at a time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        let permits = |count| Arc::new(Semaphore::new(count));
        Self { limit, kept: permits(0), shared: permits(limit), operation: permits(0) }
    }

    /// The same limit for one more listener, for which `count` of the permits that are shared are kept
    /// from now on, or as many as are left.
    #[must_use]
    pub fn keeping(&self, count: usize) -> Self {
        let kept = Arc::new(Semaphore::new(self.shared.forget_permits(count)));
        Self { kept, operation: Arc::new(Semaphore::new(0)), ..self.clone() }
    }

    /// Keeps `count` more of the permits that are shared for this listener, each as soon as it is free.
    pub async fn keep(&self, count: usize) {
        for _ in 0..count {
            // The error is that of a closed semaphore, and nobody closes these.
            let Ok(permit) = self.shared.acquire().await else { return };
            permit.forget();
            self.kept.add_permits(1);
        }
    }

    /// Adds `count` permits over the limit, for operation.
    #[must_use]
    pub fn with_operation(self, count: usize) -> Self {
        Self { operation: Arc::new(Semaphore::new(count)), ..self }
    }

    /// Takes a permit unless all are taken.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        let take = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_owned().ok();
        let taken = take(&self.kept).or_else(|| take(&self.shared))?;
        Some(Permit { _taken: Some(taken), is_for_operation: false })
    }

    /// Takes a permit for operation unless all are taken.
    #[must_use]
    pub fn try_acquire_for_operation(&self) -> Option<Permit> {
        let taken = Arc::clone(&self.operation).try_acquire_owned().ok()?;
        Some(Permit { _taken: Some(taken), is_for_operation: true })
    }

    /// Waits for a permit of any kind.
    pub async fn acquire(&self) -> Permit {
        let from = |from: &Arc<Semaphore>| Arc::clone(from).acquire_owned();
        let (permit, is_for_operation) = tokio::select! {
            biased;
            permit = from(&self.kept) => (permit, false),
            permit = from(&self.shared) => (permit, false),
            permit = from(&self.operation) => (permit, true),
        };
        // The error is that of a closed semaphore, and nobody closes these.
        Permit { _taken: permit.ok(), is_for_operation }
    }

    /// A permit even above the limit, for connections the kernel accepted before a drain. The accept
    /// queue bounds by how many.
    #[must_use]
    pub fn over_limit() -> Permit {
        Permit { _taken: None, is_for_operation: false }
    }

    /// The most that may be taken, operation aside.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// The right to hold one connection open; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _taken: Option<OwnedSemaphorePermit>,
    is_for_operation: bool,
}

impl Permit {
    /// Whether the connection may ask for the operator's pages only.
    #[must_use]
    pub fn is_for_operation(&self) -> bool {
        self.is_for_operation
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
        drop(Permits::over_limit());
        assert!(permits.try_acquire().is_none(), "what was over the limit is not given back to it");
    }

    #[tokio::test]
    async fn fault_61_what_is_kept_later_comes_from_connections_that_end() {
        let all = Permits::new(3);
        let taken = [all.try_acquire().unwrap(), all.try_acquire().unwrap(), all.try_acquire().unwrap()];
        let late = all.keeping(0);
        let keeping = late.keep(2);
        drop(taken);
        keeping.await;
        let others = [all.try_acquire().unwrap()];
        assert!(all.try_acquire().is_none(), "two of three are kept");
        let own = [late.try_acquire().unwrap(), late.try_acquire().unwrap()];
        assert!(late.try_acquire().is_none());
        drop((own, others));
    }

    #[test]
    fn fault_61_what_is_kept_for_a_listener_is_not_taken_by_another() {
        let all = Permits::new(6);
        let (first, second) = (all.keeping(2), all.keeping(1));
        let all_of = |permits: &Permits| std::iter::from_fn(|| permits.try_acquire()).collect::<Vec<_>>();
        let greedy = all_of(&first);
        assert_eq!(greedy.len(), 5, "its own two and the three that are shared");
        let other = second.try_acquire().unwrap();
        assert!(second.try_acquire().is_none(), "six in all");
        assert_eq!(second.limit(), 6);
        drop(greedy);
        drop(other);
        assert_eq!(all_of(&second).len(), 4);
        assert_eq!(all_of(&all.keeping(100)).len(), 3, "no more can be kept than is shared");
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_by_the_permit_that_is_given_back() {
        let permits = Permits::new(1).with_operation(1);
        let held = permits.try_acquire().unwrap();
        let operation = permits.acquire().await;
        assert!(operation.is_for_operation());
        assert!(permits.try_acquire_for_operation().is_none());
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire().await.is_for_operation() }
        });
        drop(held);
        assert!(!waiting.await.unwrap());
        drop(operation);
        assert!(permits.try_acquire_for_operation().is_some());
    }
}
