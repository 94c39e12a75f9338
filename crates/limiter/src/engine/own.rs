//! Limits that come with a request, instead of policies or where no policy applies.
//!
//! Over HTTP they are the numbers of an application that asks as it would ask a limiter of its own: they hold from its
//! first request on, and whoever runs the service takes over with a policy for the same attributes (decision 0420). So a
//! policy that somebody wrote always wins, also one in shadow mode, and so do a client's own numbers. The built-in policy
//! is nobody's: as it leaves for the file's policies, it leaves here. Where `on_no_match` denies, it denies these requests, too.
//!
//! A counter is named by all attributes, in the order of their names: JSON objects have no order. Numbers that change keep
//! what is used.

use std::sync::Arc;

use tidegate_algorithms::limit::{Limit, Verdict};
use tidegate_algorithms::policy::{Attributes, Mode, OnStoreFailure, counted};
use tidegate_control::Origin;
use tidegate_store::{Answer, Charge};

use super::applying::{Applying, applying};
use super::keys::Keys;
use super::{Ask, Engine, check};
use crate::ad_hoc::AdHoc;
use crate::decision::{Decision, Part, Parts};
use crate::error::AskError;
use crate::policy_set::PolicySet;

/// A limit that comes with a request or with a demand.
#[derive(Debug)]
pub struct OwnLimit<'a> {
    /// Where it is counted.
    pub counters: &'a AdHoc,
    /// The limit.
    pub limit: Limit,
    /// The quota that replies state for its window.
    pub quota: u64,
    /// Its window, in seconds.
    pub window_seconds: u64,
}

impl Engine {
    /// As [`Engine::decide`], but a request to which no policy applies is decided by its own limit.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub(crate) async fn decide_with(&self, ask: &Ask<'_>, own: &OwnLimit<'_>) -> Result<Decision, AskError> {
        let (set, mut keys) = (self.set.load(), Keys::new());
        let asked = self.prepare(ask, &set, &mut keys)?;
        if !self.is_undecided(&set, &asked.applying, &ask.attributes) {
            return self.settle(&asked, &keys).await;
        }
        own.put_key(&ask.attributes, &mut keys);
        let mut answer = Answer { allowed: true, ..Answer::default() };
        let charge = own.charge(&keys, ask.cost);
        self.counters.decide(asked.now, &[charge], asked.intent(), &mut answer).await?;
        let mut parts = Parts::new();
        parts.extend(answer.verdicts.first().map(|verdict| own.part(*verdict)));
        let decision = Decision { allowed: answer.allowed, parts, degraded: answer.degraded, permit: None };
        if !ask.peek && ask.cost > 0 {
            own.counters.tally().count(decision.allowed, true, decision.degraded.is_some());
            self.answers.count(ask.door, decision.allowed, true);
            self.see_client(&asked, &decision);
            self.judge(&asked, &decision, self.no_match.allows(), true);
        }
        Ok(decision)
    }

    /// As [`Engine::refund`], but where no policy applies the units go back to the request's own limit.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub(crate) async fn refund_with(
        &self,
        ask: &Ask<'_>,
        own: &OwnLimit<'_>,
    ) -> Result<Vec<Arc<str>>, AskError> {
        check(ask.cost)?;
        let (set, mut keys) = (self.set.load_full(), Keys::new());
        let applying = applying(&set, &ask.attributes, true, &mut keys);
        if !self.is_undecided(&set, &applying, &ask.attributes) {
            return self.refund(ask).await;
        }
        own.put_key(&ask.attributes, &mut keys);
        self.counters.refund(self.clock.now(), &[own.charge(&keys, ask.cost)]).await?;
        Ok(vec![Arc::clone(own.counters.name())])
    }

    /// Whether nobody has said what a request is answered to which these policies apply: neither a policy that somebody
    /// wrote, nor a client's own numbers, nor `on_no_match = "deny"`.
    pub(super) fn is_undecided(
        &self,
        set: &PolicySet,
        applying: &[Applying<'_>],
        attributes: &Attributes<'_>,
    ) -> bool {
        let is_written = |applies: &Applying<'_>| {
            set.policies()[applies.index].origin != Origin::BuiltIn || set.quota(applies.index, attributes).1
        };
        self.no_match.allows() && !applying.iter().any(is_written)
    }
}

impl OwnLimit<'_> {
    /// Puts the name of the counter for these attributes in the place of what is in `keys`. Of an attribute with several
    /// values the first is counted.
    fn put_key(&self, attributes: &Attributes<'_>, keys: &mut Vec<u8>) {
        let mut pairs: Vec<_> = attributes.iter().collect();
        pairs.sort_by_key(|(name, _)| *name);
        pairs.dedup_by_key(|(name, _)| *name);
        keys.clear();
        self.counters.start_key(keys);
        for (name, value) in pairs {
            put_pair(name, value, keys);
        }
    }

    fn charge<'c>(&'c self, key: &'c [u8], cost: u64) -> Charge<'c> {
        Charge { limit: &self.limit, key, cost, binding: true, on_failure: OnStoreFailure::Local }
    }

    pub(super) fn part(&self, verdict: Verdict) -> Part {
        Part {
            policy: self.counters.name().clone(),
            mode: Mode::Enforce,
            quota: self.quota,
            window_seconds: self.window_seconds,
            concurrent: false,
            verdict,
        }
    }
}

/// Appends an attribute to the name of a counter, each part with its length before it.
pub(super) fn put_pair(name: &str, value: &[u8], keys: &mut Vec<u8>) {
    for part in [counted(name.as_bytes()), counted(value)] {
        keys.extend_from_slice(&part.len().to_be_bytes());
        keys.extend_from_slice(&part);
    }
}
