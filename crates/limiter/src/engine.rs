//! The engine: attributes in, decision out, for every protocol.
//!
//! ```text
//!   attributes --> policies that apply --> charges --> store --> verdicts --> Decision
//!                  (PolicySet, swapped     (key and limit        (all or
//!                   whole on a change)      of each)              nothing)
//! ```
//!
//! Invariants: a decision uses one policy set from start to end; it spends under all policies that
//! apply or under none; it holds no lock across the store's answer.
//!
//! Deliberately absent: protocols (each has a module that turns its bytes into [`Ask`] and a
//! [`Decision`] into its bytes), and changing the configuration (`config`).

mod applying;
mod beside;
mod keys;
mod listed;
mod own;
mod permit_ids;
mod reset;
mod together;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::policy::{Attributes, MAX_UNITS, Mode, counted};
use tidegate_algorithms::time::Now;
use tidegate_net::clock::Clock;
use tidegate_store::{Answer, Counters, Intent};

use crate::answers::{Answers, Door};
use crate::decision::{Decision, Part, Parts};
use crate::denied::{DeniedBy, DeniedClients};
use crate::error::AskError;
use crate::nearest::NearestClients;
use crate::no_match::{NoMatch, OnNoMatch};
use crate::policy_set::{CLIENT_ID, PolicySet};
use crate::tally::{Tallies, TallyCount};
use applying::{AllApplying, Applying, Charges, applying, barred, charges, counter, granting, matching};
use keys::Keys;
pub use own::OwnLimit;
use permit_ids::PermitIds;
pub use reset::Reset;
pub use together::Demand;

/// Most policies of a decision that is made at once.
const MOST_AT_ONCE: usize = 16;

/// A request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is known of the request.
    pub attributes: Attributes<'a>,
    /// Units; 0 reads what remains.
    pub cost: u64,
    /// Answer as if spending, and spend nothing.
    pub peek: bool,
    /// Whether who asks can give a permit back. Concurrency limits do not apply to those who cannot: what they
    /// took would be held until its lease ends, however short the request was (decision 0050).
    pub can_release: bool,
    /// Through which door it came.
    pub door: Door,
}

/// A permit, as its holder names it.
#[derive(Clone, Copy, Debug)]
pub struct HeldPermit<'a> {
    /// The name under which it was granted.
    pub id: PermitId,
    /// The policies that granted it. No others are asked.
    pub policies: &'a [&'a str],
    /// What was known of the request: at least what these policies are keyed on.
    pub attributes: Attributes<'a>,
}

/// The decision service.
#[derive(Debug)]
pub struct Engine {
    set: ArcSwap<PolicySet>,
    counters: Counters,
    clock: Clock,
    tallies: Tallies,
    answers: Answers,
    permits: PermitIds,
    denied_clients: DeniedClients,
    no_match: NoMatch,
    nearest_clients: NearestClients,
}

/// A request on its way to the store.
struct PendingAsk<'a> {
    ask: &'a Ask<'a>,
    set: &'a PolicySet,
    applying: AllApplying<'a>,
    /// The policies that are asked; `None`: all.
    listed: Option<&'a [Arc<str>]>,
    permit: PermitId,
    /// Read last, right before the store is asked.
    now: Now,
}

impl PendingAsk<'_> {
    fn charges<'c>(&'c self, keys: &'c [u8]) -> Charges<'c> {
        charges(self.set, &self.applying, keys, self.ask.cost)
    }

    fn intent(&self) -> Intent {
        if self.ask.peek { Intent::Peek } else { Intent::Spend(self.permit) }
    }
}

impl Engine {
    /// An engine over `counters` that starts with `set`.
    #[must_use]
    pub fn new(set: PolicySet, tallies: Tallies, counters: Counters, clock: Clock) -> Self {
        set.count_in(&tallies);
        Self {
            set: ArcSwap::from_pointee(set),
            counters,
            clock,
            tallies,
            answers: Answers::default(),
            permits: PermitIds::default(),
            denied_clients: DeniedClients::default(),
            no_match: NoMatch::default(),
            nearest_clients: NearestClients::default(),
        }
    }

    /// The engine with this answer to requests that no policy applies to; they are allowed otherwise.
    #[must_use]
    pub fn on_no_match(mut self, answer: OnNoMatch) -> Self {
        self.no_match.answer = answer;
        self
    }

    /// How many requests no policy applied to, by what they were answered.
    #[must_use]
    pub fn unmatched(&self) -> TallyCount {
        self.no_match.count()
    }

    /// The policies in force.
    #[must_use]
    pub fn set(&self) -> Arc<PolicySet> {
        self.set.load_full()
    }

    /// As [`Engine::set`], for a request: no core waits for another's reference count.
    pub(crate) fn in_force(&self) -> arc_swap::Guard<Arc<PolicySet>> {
        self.set.load()
    }

    /// Puts `set` in force. Blocks for a moment: taking a large set apart takes time, which a thread
    /// that serves must not spend because it happened to be the last to look at it.
    pub(crate) fn replace(&self, set: Arc<PolicySet>) {
        const PATIENCE: usize = 1_000;
        set.count_in(&self.tallies);
        set.take_over_asked(&self.set.load());
        let old = self.set.swap(set.clone());
        (0..PATIENCE).take_while(|_| Arc::strong_count(&old) > 1).for_each(|_| std::thread::yield_now());
        // Once more, for who asked in between.
        set.take_over_asked(&old);
    }

    /// What each policy has decided.
    #[must_use]
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// What requests were answered, each counted once however many policies it is under.
    #[must_use]
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The clients that were denied most, by `client_id`.
    #[must_use]
    pub fn denied_clients(&self) -> &DeniedClients {
        &self.denied_clients
    }

    /// The clients that are nearest to a limit, by `client_id`.
    #[must_use]
    pub fn nearest_clients(&self) -> &NearestClients {
        &self.nearest_clients
    }

    /// The store.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The clock that decisions are made by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Decides one request.
    ///
    /// # Errors
    /// When the request is out of bounds (nothing is charged) or the store gave no answer.
    pub async fn decide(&self, ask: &Ask<'_>) -> Result<Decision, AskError> {
        let (set, mut keys) = (self.set.load(), Keys::new());
        let asked = self.prepare(ask, &set, &mut keys)?;
        self.settle(&asked, &keys).await
    }

    /// Has the store decide.
    async fn settle(&self, asked: &PendingAsk<'_>, keys: &[u8]) -> Result<Decision, AskError> {
        let (charges, mut answer) = (asked.charges(keys), Answer { allowed: true, ..Answer::default() });
        if charges.is_empty() {
            answer.allowed = self.allows_unmatched(asked);
        } else {
            self.counters.decide(asked.now, &charges, asked.intent(), &mut answer).await?;
        }
        Ok(self.conclude(asked, &answer))
    }

    /// As [`Engine::decide`], if the store need not be waited for, nothing is wrong, and few policies apply: a reply
    /// about many is long, and is charged to its connection. `None`: nothing was charged, and `decide` is to be
    /// asked.
    pub(crate) fn decide_now(&self, ask: &Ask<'_>) -> Option<Decision> {
        let (set, mut keys) = (self.set.load(), Keys::new());
        let asked = self.prepare(ask, &set, &mut keys).ok()?;
        if asked.applying.len() > MOST_AT_ONCE {
            return None;
        }
        let (charges, mut answer) = (asked.charges(&keys), Answer { allowed: true, ..Answer::default() });
        if charges.is_empty() {
            answer.allowed = self.allows_unmatched(&asked);
        } else if !self.counters.decide_now(asked.now, &charges, asked.intent(), &mut answer) {
            return None;
        }
        Some(self.conclude(&asked, &answer))
    }

    /// What a request is answered that no policy applies to.
    fn allows_unmatched(&self, asked: &PendingAsk<'_>) -> bool {
        let PendingAsk { ask, set, listed, now, .. } = asked;
        if !ask.peek {
            let barred = || if ask.can_release { Vec::new() } else { barred(set, &ask.attributes, *listed) };
            self.no_match.see(now.tick, [ask.attributes].into_iter(), barred);
        }
        self.no_match.allows()
    }

    /// Finds the policies that apply, with their keys in `keys`.
    fn prepare<'a>(
        &self,
        ask: &'a Ask<'a>,
        set: &'a PolicySet,
        keys: &mut Vec<u8>,
    ) -> Result<PendingAsk<'a>, AskError> {
        check(ask.cost)?;
        let applying = applying(set, &ask.attributes, ask.can_release, keys);
        Ok(self.asked(ask, set, applying))
    }

    fn asked<'a>(&self, ask: &'a Ask<'a>, set: &'a PolicySet, applying: AllApplying<'a>) -> PendingAsk<'a> {
        PendingAsk { ask, set, applying, listed: None, permit: self.permits.next(), now: self.clock.now() }
    }

    /// Counts what the store said, and says it.
    fn conclude(&self, asked: &PendingAsk<'_>, answer: &Answer) -> Decision {
        let PendingAsk { ask, set, applying, permit, .. } = asked;
        let parts = parts(set, applying, &ask.attributes, answer);
        let spends = !ask.peek && ask.cost > 0;
        let is_granted = answer.allowed && spends && parts.iter().any(Part::grants);
        let permit = is_granted.then_some(*permit);
        let decision = Decision { allowed: answer.allowed, parts, degraded: answer.degraded, permit };
        if spends {
            let is_degraded = answer.degraded.is_some();
            self.answers.count(ask.door, answer.allowed, !applying.is_empty());
            for (applies, verdict) in applying.iter().zip(&answer.verdicts) {
                set.policies()[applies.index].count(verdict.allowed, is_degraded);
            }
            self.see_client(asked, &decision);
            self.judge(asked, &decision, self.no_match.allows(), false);
        }
        decision
    }

    /// Counts whose request it was.
    fn see_client(&self, asked: &PendingAsk<'_>, decision: &Decision) {
        let PendingAsk { ask, set, permit, now, .. } = asked;
        let Some(client) = ask.attributes.value(CLIENT_ID).map(counted) else { return };
        if ask.door == Door::EdgeBytes {
            // Bytes that may not pass wait: nobody is denied, and there is no request.
        } else if decision.allowed {
            self.denied_clients.see_allowed(&client, now.tick);
        } else {
            let by = DeniedBy::from_decision(set, decision);
            self.denied_clients.see(&client, by, &ask.attributes, now.tick);
        }
        self.nearest_clients.see(permit.0, &client, &decision.parts, now.tick);
    }

    /// Gives back `cost` units under every policy that applies; returns their names. Permits are
    /// released, not refunded, so concurrency limits are left out.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn refund(&self, ask: &Ask<'_>) -> Result<Vec<Arc<str>>, AskError> {
        check(ask.cost)?;
        let (set, mut keys) = (self.set.load_full(), Keys::new());
        let mut applying = applying(&set, &ask.attributes, true, &mut keys);
        applying.retain(|applies| !matches!(applies.limit, Limit::Concurrency(_)));
        let charges = charges(&set, &applying, &keys, ask.cost);
        self.counters.refund(self.clock.now(), &charges).await?;
        self.refund_beside(&set, None, ask);
        Ok(applying.iter().map(|applies| set.policies()[applies.index].policy.name.clone()).collect())
    }

    /// Extends a permit under the policies that granted it. The new lease in nanoseconds, `None` if an enforced
    /// one does not hold it any more. A policy in shadow mode renews it if it can, and never refuses.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn renew(&self, permit: &HeldPermit<'_>) -> Result<Option<u64>, AskError> {
        let mut lease = None;
        let (set, mut keys) = (self.set.load_full(), Keys::new());
        for applies in granting(&set, permit, &mut keys) {
            let Limit::Concurrency(slots) = applies.limit else { continue };
            let key = &keys[applies.key];
            if self.counters.renew(self.clock.now(), applies.limit, key, permit.id).await? {
                lease = Some(lease.map_or(slots.lease, |shortest: u64| shortest.min(slots.lease)));
            } else if set.policies()[applies.index].policy.mode == Mode::Enforce {
                return Ok(None);
            }
        }
        Ok(lease)
    }

    /// Gives a permit back under the policies that granted it. False if it was held nowhere.
    ///
    /// # Errors
    /// As [`Engine::decide`]; where several policies granted it, it was tried under each.
    pub async fn release(&self, permit: &HeldPermit<'_>) -> Result<bool, AskError> {
        let mut held = Ok(false);
        let (set, mut keys) = (self.set.load_full(), Keys::new());
        for applies in granting(&set, permit, &mut keys) {
            let key = &keys[applies.key];
            let released = self.counters.release(self.clock.now(), applies.limit, key, permit.id).await;
            match (released, &mut held) {
                (Ok(is_held), Ok(held)) => *held |= is_held,
                (Ok(_), Err(_)) => {}
                (Err(error), _) => held = Err(error.into()),
            }
        }
        held
    }
}

/// Refuses what is out of bounds, before anything is charged.
fn check(cost: u64) -> Result<(), AskError> {
    if cost > MAX_UNITS { Err(AskError::CostTooLarge(cost)) } else { Ok(()) }
}

fn parts(set: &PolicySet, applying: &[Applying<'_>], attributes: &Attributes<'_>, answer: &Answer) -> Parts {
    let part = |(applies, verdict): (&Applying<'_>, _)| {
        let policy = &set.policies()[applies.index].policy;
        Part::new(policy.name.clone(), policy.mode, set.quota(applies.index, attributes).0, verdict)
    };
    applying.iter().zip(answer.verdicts.iter().copied()).map(part).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::policy::Policy;
    use tidegate_store::memory::Memory;

    use super::*;
    use crate::policy_set::FileLayer;

    #[test]
    fn fault_60_what_many_policies_say_is_not_written_at_once() {
        for (number, at_once) in [(MOST_AT_ONCE, true), (MOST_AT_ONCE + 1, false)] {
            let named = |number| Policy { name: format!("p{number}").into(), ..Policy::default_per_client() };
            let file = FileLayer { policies: (0..number).map(named).collect(), ..FileLayer::default() };
            let tallies = Tallies::default();
            let set = PolicySet::assemble(Arc::new(file), tidegate_control::Snapshot::default(), &tallies);
            let engine = Engine::new(set, tallies, Counters::Memory(Memory::new(1 << 20)), Clock::start());
            let pairs = [(CLIENT_ID, &b"c"[..])];
            let attributes = Attributes::new(&pairs);
            let ask = Ask { attributes, cost: 1, peek: false, can_release: false, door: Door::Http };
            assert_eq!(engine.decide_now(&ask).is_some(), at_once);
            assert_eq!(
                engine.answers().read(Door::Http).allowed,
                u64::from(at_once),
                "nothing is counted otherwise"
            );
        }
    }
}
