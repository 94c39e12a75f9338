//! A decision: what the service answers to one request, whatever the protocol.
//!
//! An enforced policy speaks for the decision. After a denial it is the policy with the longest wait among those that
//! denied (fault 17: a client that obeys a shorter wait would be denied again); otherwise it is the policy with the
//! least remaining, the first of equals.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::limit::{PermitId, Verdict, Wait};
use tidegate_algorithms::policy::{Algorithm, Mode, Quota};
use tidegate_store::Degraded;

/// One policy's part in a decision.
#[derive(Clone, Debug)]
pub struct Part {
    /// The policy's name.
    pub policy: Arc<str>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// Quota that `RateLimit-Policy` states.
    pub quota: u64,
    /// Window that `RateLimit-Policy` states, in seconds.
    pub window_seconds: u64,
    /// Whether the quota counts permits.
    pub concurrent: bool,
    /// What it said.
    pub verdict: Verdict,
}

/// The parts of a decision: up to two, as nearly always, need no allocation.
pub type Parts = SmallVec<[Part; 2]>;

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Whether the request may go ahead.
    pub allowed: bool,
    /// Every policy that applied, in order; empty if none did.
    pub parts: Parts,
    /// Set if the store could not be asked.
    pub degraded: Option<Degraded>,
    /// The permit that was handed out, if a concurrency limit applied and the request was allowed.
    pub permit: Option<PermitId>,
}

impl Part {
    pub(crate) fn new(policy: Arc<str>, mode: Mode, quota: &Quota, verdict: Verdict) -> Self {
        Self {
            policy,
            mode,
            quota: quota.spec.limit,
            window_seconds: quota.spec.stated_window_seconds(),
            concurrent: quota.spec.algorithm == Algorithm::Concurrency,
            verdict,
        }
    }

    /// Whether it grants a permit, if the request is allowed. A policy in shadow mode that has no room does not.
    #[must_use]
    pub fn grants(&self) -> bool {
        self.concurrent && self.verdict.allowed
    }

    /// Nanoseconds to wait if it denied: for a request that can never be allowed, its window.
    #[must_use]
    pub fn wait(&self) -> Option<u64> {
        match self.verdict.wait {
            Wait::None => None,
            Wait::For(nanos) => Some(nanos),
            Wait::Never => Some(self.window_seconds.saturating_mul(1_000_000_000)),
        }
    }
}

impl Decision {
    /// The part that speaks for the decision; `None` if no enforced policy applied.
    #[must_use]
    pub fn deciding(&self) -> Option<&Part> {
        let enforced = || self.parts.iter().filter(|part| part.mode == Mode::Enforce);
        if self.allowed {
            enforced().min_by_key(|part| part.verdict.remaining)
        } else {
            // `max_by_key` gives the last of equals; the reversed order makes it the first.
            enforced().rev().filter(|part| !part.verdict.allowed).max_by_key(|part| part.verdict.wait)
        }
    }

    /// Whether no policy applied, so that `on_no_match` decided.
    #[must_use]
    pub fn no_match(&self) -> bool {
        self.parts.is_empty()
    }

    /// The parts that headers describe: every enforced one, or the deciding one of a denial.
    pub fn described(&self) -> impl Iterator<Item = &Part> {
        let deciding = if self.allowed { None } else { self.deciding() };
        self.parts.iter().filter(move |part| match deciding {
            Some(deciding) => std::ptr::eq(*part, deciding),
            None => part.mode == Mode::Enforce,
        })
    }

    /// Whole seconds to wait if denied.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        if self.allowed {
            return None;
        }
        self.deciding().and_then(Part::wait).map(tidegate_wire::rate_limit_fields::whole_seconds)
    }
}
