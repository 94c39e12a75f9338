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
//! A denial by the store is an answer; only the lack of one is trouble. A call whose outcome is
//! unknown is not repeated: it may have been charged in the store *and* is counted here.
//!
//! Over-admission while blind: `local` at most `instances x share`, where a share is the limit
//! divided by the number of instances, rounded up, at least 1; `open` unbounded; `closed` none. What
//! was admitted blindly is compared with what the store had left once it is back: [`outage`].
//!
//! Recovery: the breaker lets one call through per pause (250 ms), and closes when it succeeds.
//!
//! Deliberately absent: clocks (`now` is given; the deadline is the runtime's timer), retries.

mod outage;
mod share;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_algorithms::breaker::{Breaker, Change, Outcome, Settings, Window};
use tidegate_algorithms::limit::{Limit, PermitId, Verdict, Wait};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tokio::sync::Semaphore;

use self::outage::Outage;
pub use self::share::share;
use crate::memory::Memory;
use crate::shared::Shared;
use crate::{Answer, Charge, Degraded, Intent, StoreError};

/// How long a client that was denied blindly is told to wait.
const CLOSED_WAIT: u64 = SECOND;

/// When a store is no longer asked. One that fails every call is given up within milliseconds under
/// load, and one late call among many opens nothing.
const STORE_BREAKER: Settings = Settings {
    window: Window::Span(500_000_000),
    minimum_calls: 5,
    minimum_failures: 5,
    failure_percent: 50,
    slow_after: u64::MAX,
    slow_percent: 101,
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

/// What a guard has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardStats {
    /// Answers counted in this node's memory.
    pub degraded_local: u64,
    /// Answers allowed blindly.
    pub degraded_open: u64,
    /// Answers denied blindly.
    pub degraded_closed: u64,
    /// Calls that failed or were too late.
    pub failures: u64,
    /// Calls not made because too many were under way.
    pub saturated: u64,
    /// Times the breaker opened.
    pub opened: u64,
    /// Whether it is open.
    pub is_open: bool,
    /// Units admitted blindly.
    pub blind_units: u64,
    /// Of those, an estimate of what the store would have denied; complete for past outages.
    pub over_admitted_units: u64,
}

/// A shared store behind deadline, breaker and fallback.
#[derive(Clone, Debug)]
pub struct Guard {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Shared,
    config: GuardConfig,
    breaker: Mutex<Breaker>,
    slots: Semaphore,
    fallback: Memory,
    outage: Mutex<Outage>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    local: AtomicU64,
    open: AtomicU64,
    closed: AtomicU64,
    failures: AtomicU64,
    saturated: AtomicU64,
    opened: AtomicU64,
    blind_units: AtomicU64,
    over_admitted: AtomicU64,
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
        let inner = Inner {
            store,
            breaker: Mutex::new(Breaker::new(config.breaker)),
            slots: Semaphore::new(config.max_in_flight),
            fallback: Memory::new(config.fallback_bytes),
            outage: Mutex::default(),
            counts: Counts::default(),
            config,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Decides one request: by the store, or blindly. `answer.degraded` says which.
    pub async fn decide(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        if !self.attempt(now, charges, intent, answer).await {
            self.decide_blindly(now, charges, intent, answer);
        }
    }

    /// Decides one request by the store. False if it did not answer: what `answer` holds is then
    /// of no meaning, and whether anything was charged is unknown.
    pub(crate) async fn attempt(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) -> bool {
        self.ask(now, self.inner.store.decide(now, charges, intent, answer)).await.is_some()
    }

    /// Decides one request without the store, by each policy's mode.
    pub(crate) fn decide_blindly(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) {
        self.inner.decide_blindly(now, charges, intent, answer);
    }

    /// Gives back units, to the store or to this node's share.
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) {
        if !self.attempt_refund(now, charges).await {
            self.inner.with_shares(charges, |charges| self.inner.fallback.refund(now, charges));
        }
    }

    /// Gives back units to the store. False if it did not answer.
    pub(crate) async fn attempt_refund(&self, now: Now, charges: &[Charge<'_>]) -> bool {
        self.ask(now, self.inner.store.refund(now, charges)).await.is_some()
    }

    /// Extends the lease of a permit, wherever it was given. False if it is not held.
    pub async fn renew(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        let found = self.ask(now, self.inner.store.renew(now, limit, key, permit)).await;
        found == Some(true) || self.inner.fallback.renew(now, limit, key, permit)
    }

    /// Gives a permit back, wherever it was given. False if it is not held.
    pub async fn release(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        let found = self.ask(now, self.inner.store.release(now, limit, key, permit)).await;
        found == Some(true) || self.inner.fallback.release(now, limit, key, permit)
    }

    /// What has been seen so far.
    #[must_use]
    pub fn stats(&self) -> GuardStats {
        let counts = &self.inner.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GuardStats {
            degraded_local: read(&counts.local),
            degraded_open: read(&counts.open),
            degraded_closed: read(&counts.closed),
            failures: read(&counts.failures),
            saturated: read(&counts.saturated),
            opened: read(&counts.opened),
            is_open: hold(&self.inner.breaker).is_open(),
            blind_units: read(&counts.blind_units),
            over_admitted_units: read(&counts.over_admitted),
        }
    }

    /// The store's answer, or `None` if it is to be done without.
    async fn ask<T>(&self, now: Now, call: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
        let inner = &self.inner;
        let pass = hold(&inner.breaker).admit(now.tick)?;
        let Ok(_slot) = inner.slots.try_acquire() else {
            hold(&inner.breaker).cancel(pass);
            inner.counts.saturated.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let outcome = tokio::time::timeout(inner.config.deadline, call).await;
        if let Ok(Ok(value)) = outcome {
            if hold(&inner.breaker).report(pass, Outcome::success(0), now.tick) == Change::Closed {
                self.settle_outage(now);
            }
            return Some(value);
        }
        inner.counts.failures.fetch_add(1, Ordering::Relaxed);
        if hold(&inner.breaker).report(pass, Outcome::failure(0), now.tick) == Change::Opened {
            inner.counts.opened.fetch_add(1, Ordering::Relaxed);
            let why = outcome.map_or_else(
                |_| format!("no answer within {:?}", inner.config.deadline),
                |answer| answer.err().map(|error| error.to_string()).unwrap_or_default(),
            );
            tracing::warn!(%why, "the counters' store fails: each policy's `on_store_failure` decides");
        }
        None
    }

    /// Asks the store what it has left of what was spent blindly, in the background.
    fn settle_outage(&self, now: Now) {
        let outage = std::mem::take(&mut *hold(&self.inner.outage));
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let over = outage.over_admitted(&inner.store, now).await;
            inner.counts.over_admitted.fetch_add(over, Ordering::Relaxed);
            tracing::info!(over_admitted_units = over, "the counters' store answers again");
        });
    }
}

impl Inner {
    fn decide_blindly(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        let closed = |charge: &Charge<'_>| charge.on_failure == OnStoreFailure::Closed && charge.cost > 0;
        let denied = charges.iter().any(|charge| closed(charge) && charge.binding);
        // What is denied anyway spends nothing.
        let local_intent = if denied { Intent::Peek } else { intent };
        let local: Vec<_> =
            charges.iter().filter(|charge| charge.on_failure == OnStoreFailure::Local).copied().collect();
        self.with_shares(&local, |shares| self.fallback.decide(now, shares, local_intent, answer));
        let allowed = answer.allowed && !denied;
        let mut local = std::mem::take(&mut answer.verdicts).into_iter();
        let verdict = |charge: &Charge<'_>| match charge.on_failure {
            OnStoreFailure::Local => {
                local.next().map_or_else(|| unknown(charge, allowed), |own| patient(own, charge))
            }
            OnStoreFailure::Open => unknown(charge, true),
            OnStoreFailure::Closed => unknown(charge, charge.cost == 0),
        };
        let verdicts = charges.iter().map(verdict).collect();
        let (degraded, count) = if denied {
            (Degraded::Closed, &self.counts.closed)
        } else if charges.iter().any(|charge| charge.on_failure == OnStoreFailure::Local) {
            (Degraded::Local, &self.counts.local)
        } else {
            (Degraded::Open, &self.counts.open)
        };
        count.fetch_add(1, Ordering::Relaxed);
        if allowed && matches!(intent, Intent::Spend(_)) {
            let units = charges.iter().map(|charge| charge.cost).max().unwrap_or(0);
            self.counts.blind_units.fetch_add(units, Ordering::Relaxed);
            hold(&self.outage).note(charges);
        }
        *answer = Answer { allowed, verdicts, degraded: Some(degraded) };
    }

    /// The same charges under this node's shares of their limits.
    fn with_shares<R>(&self, charges: &[Charge<'_>], act: impl FnOnce(&[Charge<'_>]) -> R) -> R {
        let limits: Vec<Limit> =
            charges.iter().map(|charge| share(charge.limit, self.config.instances)).collect();
        let shares: Vec<_> =
            charges.iter().zip(&limits).map(|(charge, limit)| Charge { limit, ..*charge }).collect();
        act(&shares)
    }
}

/// A verdict that nobody counted.
fn unknown(charge: &Charge<'_>, allowed: bool) -> Verdict {
    let quota = charge.limit.quota();
    let (remaining, wait, reset) =
        if allowed { (quota, Wait::None, 0) } else { (0, Wait::For(CLOSED_WAIT), CLOSED_WAIT) };
    Verdict { allowed, limit: quota, remaining, wait, reset, delay: 0, next: 0 }
}

/// What exceeds this node's share but not the limit is possible again once the store is back.
fn patient(own: Verdict, charge: &Charge<'_>) -> Verdict {
    let possible = charge.cost <= charge.limit.quota();
    let wait = if own.wait == Wait::Never && possible { Wait::For(CLOSED_WAIT) } else { own.wait };
    Verdict { wait, ..own }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
