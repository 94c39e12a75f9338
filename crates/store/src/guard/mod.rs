//! The common rule for a store in trouble: a deadline, a breaker, then the policy's own mode.
//!
//! ```text
//!   call --> breaker closed? --> slot free? --> store, within the deadline --> its answer
//!               | no               | no            | error, too late
//!               `------------------+---------------'
//!                                  v
//!             each limit's mode:  local   this node's share, counted in memory
//!                                 open    allowed
//!                                 closed  denied          the answer is marked `degraded`
//! ```
//!
//! A denial by the store is an answer; only the lack of one is trouble. So is a state that the store
//! cannot read, but of that key alone: it opens no breaker. A call whose outcome is unknown is not
//! repeated: it may have been charged in the store *and* is counted here.
//!
//! Over-admission while blind: `local` at most `instances x share`, where a share is the limit
//! divided by the number of instances, rounded up, at least 1; `open` unbounded; `closed` none. What
//! was admitted blindly is charged to the store once it is back: [`outage`].
//!
//! What is not a decision has no blind answer: a refund, or a permit's renewal or release, that
//! concerns nothing that was given out here is an error, so that its caller asks again.
//!
//! Recovery: the breaker lets one call through per pause (250 ms), and closes when it succeeds.
//!
//! Deliberately absent: clocks (`now` is given; deadline and durations are by the runtime's timer), retries.

mod blind;
mod counts;
mod outage;
mod share;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::breaker::{Breaker, Change, Outcome, Pass, Settings, Window};
use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::time::{Now, SECOND, Tick};
use tokio::sync::Semaphore;

use self::blind::or_here;
use self::counts::GuardCounts;
pub use self::counts::{CALL_BOUNDS_US, CallDurations, GuardStats};
use self::outage::Outage;
pub use self::share::share;
use crate::memory::Memory;
use crate::shared::Shared;
use crate::{Answer, Charge, Intent, StoreError};

/// Least time between two warnings of states that cannot be read.
const BETWEEN_WARNINGS: u64 = 10 * SECOND;

/// When a store is no longer asked. Under load, a store that fails every call is given up within milliseconds, and
/// one late call among many opens nothing.
const STORE_BREAKER: Settings = Settings {
    window: Window::Span(500_000_000),
    minimum_calls: 5,
    minimum_failures: 5,
    failure_percent: 50,
    slow_after: u64::MAX,
    slow_percent: 101,
    first_pause: 250_000_000,
    pause: 250_000_000,
    trials: 1,
};

/// How a guard behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// Longest wait for the store, per call.
    pub deadline: Duration,
    /// Most calls under way at once; beyond it an answer is given blindly.
    pub max_in_flight: usize,
    /// How many nodes share each limit while the store is away, >= 1.
    pub instances: u64,
    /// When to stop asking the store, and when to ask again.
    pub breaker: Settings,
    /// Cap on the memory in which a node counts its share, in bytes.
    pub fallback_bytes: usize,
}

/// A shared store behind deadline, breaker and fallback.
#[derive(Clone, Debug)]
pub struct Guard {
    inner: Arc<GuardParts>,
}

#[derive(Debug)]
struct GuardParts {
    store: Shared,
    config: GuardConfig,
    health: Mutex<StoreHealth>,
    slots: Semaphore,
    fallback: Memory,
    outage: Mutex<Outage>,
    /// Whether `outage` has anything to settle.
    owes: AtomicBool,
    /// Whether that is being done.
    settling: AtomicBool,
    counts: GuardCounts,
}

/// What is known of the store.
#[derive(Debug)]
struct StoreHealth {
    breaker: Breaker,
    /// Why the breaker opened, or the store could not be reached at the start, until it answers.
    trouble: Option<String>,
    /// When a state that cannot be read was last warned of.
    warned: Option<Tick>,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(10),
            max_in_flight: 4_096,
            instances: 1,
            breaker: STORE_BREAKER,
            fallback_bytes: 64 << 20,
        }
    }
}

impl Guard {
    /// Guards `store`.
    #[must_use]
    pub fn new(store: Shared, config: GuardConfig) -> Self {
        let inner = GuardParts {
            store,
            health: Mutex::new(StoreHealth {
                breaker: Breaker::new(config.breaker),
                trouble: None,
                warned: None,
            }),
            slots: Semaphore::new(config.max_in_flight),
            fallback: Memory::new(config.fallback_bytes),
            outage: Mutex::default(),
            owes: AtomicBool::default(),
            settling: AtomicBool::default(),
            counts: GuardCounts::default(),
            config,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens the store's connections, for so long at most, so that the first calls need not wait for
    /// that. Calling it is optional; [`Guard::trouble`] says why a store cannot be reached.
    ///
    /// # Errors
    /// Why the store cannot be reached.
    pub async fn open(&self, longest: Duration) -> Result<(), StoreError> {
        let opening = tokio::time::timeout(longest, self.inner.store.open());
        let late = || Err(StoreError::Unreachable(format!("no connection within {longest:?}")));
        let opened = opening.await.unwrap_or_else(|_| late());
        let mut health = hold(&self.inner.health);
        match &opened {
            Ok(()) if !health.breaker.is_open() => health.trouble = None,
            Ok(()) => {}
            Err(error) => {
                health.trouble.get_or_insert_with(|| error.to_string());
            }
        }
        opened
    }

    /// Why the store is not asked, or could not be reached when it was last tried; none while it answers.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        hold(&self.inner.health).trouble.clone()
    }

    /// Decides one request: by the store, or blindly. `answer.degraded` says which.
    pub async fn decide(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        if let Err(error) = self.attempt(now, charges, intent, answer).await {
            self.decide_blindly(now, charges, intent, &error, answer);
        }
    }

    /// Decides one request by the store.
    ///
    /// # Errors
    /// When it did not answer: what `answer` holds is then of no meaning.
    pub(crate) async fn attempt(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) -> Result<(), StoreError> {
        self.ask(now, self.inner.store.decide(now, charges, intent, answer)).await
    }

    /// Decides one request without the store, by each policy's mode. `error` is why.
    pub(crate) fn decide_blindly(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        error: &StoreError,
        answer: &mut Answer,
    ) {
        self.inner.decide_blindly(now, charges, intent, answer);
        if let (true, Intent::Spend(_)) = (answer.allowed, intent) {
            self.inner.note(now, charges, error);
        }
    }

    /// Gives back units: to the store, or to this node's share, if they were spent from it while the
    /// store was away.
    ///
    /// # Errors
    /// When the store did not answer and they were not spent here.
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        let inner = &self.inner;
        match self.attempt_refund(now, charges).await {
            Err(error) if !error.may_have_happened() && hold(&inner.outage).take_back(now, charges) => {
                inner.with_shares(charges, |charges| inner.fallback.refund(now, charges));
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Gives back units to the store.
    ///
    /// # Errors
    /// When it did not answer.
    pub(crate) async fn attempt_refund(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        self.ask(now, self.inner.store.refund(now, charges)).await
    }

    /// Forgets what was spent under these keys, in the store and in this node's share.
    ///
    /// # Errors
    /// When the store did not answer.
    pub async fn reset(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        self.inner.fallback.reset(now, charges);
        self.ask(now, self.inner.store.reset(now, charges)).await
    }

    /// Extends the lease of a permit, wherever it was given. False if it is not held.
    ///
    /// # Errors
    /// When the store did not answer and the permit was not given here.
    pub async fn renew(
        &self,
        now: Now,
        limit: &Limit,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, StoreError> {
        let found = self.ask(now, self.inner.store.renew(now, limit, key, permit)).await;
        or_here(found, || self.inner.fallback.renew(now, limit, key, permit))
    }

    /// Gives a permit back, wherever it was given. False if it is not held.
    ///
    /// # Errors
    /// When the store did not answer and the permit was not given here.
    pub async fn release(
        &self,
        now: Now,
        limit: &Limit,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, StoreError> {
        let found = self.ask(now, self.inner.store.release(now, limit, key, permit)).await;
        or_here(found, || self.inner.fallback.release(now, limit, key, permit))
    }

    /// What has been seen so far.
    #[must_use]
    pub fn stats(&self) -> GuardStats {
        self.inner.counts.read(hold(&self.inner.health).breaker.is_open())
    }

    /// The store's answer.
    async fn ask<T>(
        &self,
        now: Now,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let inner = &self.inner;
        let pass = hold(&inner.health).breaker.admit(now.tick).ok_or(StoreError::NotAsked)?;
        let Ok(_slot) = inner.slots.try_acquire() else {
            hold(&inner.health).breaker.cancel(pass);
            inner.counts.saturated.fetch_add(1, Ordering::Relaxed);
            return Err(StoreError::Saturated);
        };
        let begun = tokio::time::Instant::now();
        let deadline = tokio::time::timeout(inner.config.deadline, call);
        let outcome = deadline.await.unwrap_or(Err(StoreError::Timeout));
        inner.counts.called(begun.elapsed());
        match &outcome {
            Ok(_) => self.answered(now, pass),
            Err(StoreError::Unreadable(why)) => {
                inner.unreadable(now, why);
                self.answered(now, pass);
            }
            Err(error) => inner.failed(now, pass, error),
        }
        outcome
    }

    /// The store answered a call.
    fn answered(&self, now: Now, pass: Pass) {
        let recovered = {
            let mut health = hold(&self.inner.health);
            health.breaker.report(pass, Outcome::success(0), now.tick);
            !health.breaker.is_open() && health.trouble.take().is_some()
        };
        if recovered {
            tracing::info!("the counters' store answers again");
        }
        if self.inner.owes.load(Ordering::Relaxed) && !self.inner.settling.swap(true, Ordering::Relaxed) {
            let inner = Arc::clone(&self.inner);
            tokio::spawn(async move { inner.settle(now).await });
        }
    }
}

impl GuardParts {
    fn failed(&self, now: Now, pass: Pass, error: &StoreError) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let mut health = hold(&self.health);
        if health.breaker.report(pass, Outcome::failure(0), now.tick) == Change::Opened {
            self.counts.opened.fetch_add(1, Ordering::Relaxed);
            let why = match error {
                StoreError::Timeout => format!("no answer within {:?}", self.config.deadline),
                error => error.to_string(),
            };
            tracing::warn!(%why, "the counters' store fails: each policy's `on_store_failure` decides");
            health.trouble = Some(why);
        }
    }

    fn unreadable(&self, now: Now, why: &str) {
        self.counts.unreadable.fetch_add(1, Ordering::Relaxed);
        let mut health = hold(&self.health);
        if health.warned.is_none_or(|warned| now.tick.since(warned) >= BETWEEN_WARNINGS) {
            health.warned = Some(now.tick);
            tracing::warn!(
                %why,
                "a counter in the store cannot be read: `on_store_failure` decides for it until it is deleted"
            );
        }
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
