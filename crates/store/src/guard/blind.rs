//! Answers without the store, by each policy's own mode, and the account of what they admitted.

use std::sync::atomic::Ordering;

use tidegate_algorithms::limit::{Limit, Verdict, Wait};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};

use super::outage::Settled;
use super::{GuardParts, hold, share};
use crate::{Answer, Charge, Degraded, Intent, StoreError};

/// How long a client that was denied blindly is told to wait.
const CLOSED_WAIT: u64 = SECOND;
impl GuardParts {
    pub(super) fn decide_blindly(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) {
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
        *answer = Answer { allowed, verdicts, degraded: Some(degraded) };
    }

    /// The same charges under this node's shares of their limits.
    pub(super) fn with_shares<R>(&self, charges: &[Charge<'_>], act: impl FnOnce(&[Charge<'_>]) -> R) -> R {
        let limits: Vec<Limit> =
            charges.iter().map(|charge| share(charge.limit, self.config.instances)).collect();
        let shares: Vec<_> =
            charges.iter().zip(&limits).map(|(charge, limit)| Charge { limit, ..*charge }).collect();
        act(&shares)
    }

    /// Notes what was allowed blindly, to be charged later. What the store may have charged is not, nor
    /// is what it could not be charged.
    pub(super) fn note(&self, now: Now, charges: &[Charge<'_>], error: &StoreError) {
        let units = charges.iter().map(|charge| charge.cost).max().unwrap_or(0);
        self.counts.blind_units.fetch_add(units, Ordering::Relaxed);
        let unsettled = if error.may_have_happened() || matches!(error, StoreError::Unreadable(_)) {
            units
        } else {
            let mut outage = hold(&self.outage);
            self.owes.store(true, Ordering::Relaxed);
            outage.note(now, charges)
        };
        self.counts.unsettled.fetch_add(unsettled, Ordering::Relaxed);
    }

    /// Charges the store what was admitted without it.
    pub(super) async fn settle(&self, now: Now) {
        let outage = {
            let mut outage = hold(&self.outage);
            self.owes.store(false, Ordering::Relaxed);
            std::mem::take(&mut *outage)
        };
        let settled = outage.settle(&self.store, now).await;
        let Settled { charged, over_admitted, unsettled } = settled;
        self.counts.charged.fetch_add(charged, Ordering::Relaxed);
        self.counts.over_admitted.fetch_add(over_admitted, Ordering::Relaxed);
        self.counts.unsettled.fetch_add(unsettled, Ordering::Relaxed);
        self.settling.store(false, Ordering::Relaxed);
        tracing::info!(
            over_admitted_units = over_admitted,
            charged_units = charged,
            unsettled_units = unsettled,
            "what was admitted without the counters' store is charged to it"
        );
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

/// What the store found, or else this node's own memory.
pub(super) fn or_here(
    found: Result<bool, StoreError>,
    here: impl FnOnce() -> bool,
) -> Result<bool, StoreError> {
    match found {
        Ok(true) => Ok(true),
        Ok(false) => Ok(here()),
        Err(error) => {
            if here() {
                Ok(true)
            } else {
                Err(error)
            }
        }
    }
}
