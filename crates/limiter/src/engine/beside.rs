//! A decision as the candidate's policies would have made it, beside the one that was made.
//!
//! ```text
//!   policies of the candidate that apply ── as they are in force, and asked ──> what they said just now
//!                                       `── new, changed, or not asked ───────> charged in the candidate's own counters
//! ```
//!
//! So what did not change is judged by its true counts, and nothing in force is touched. What a policy in force would have
//! counted of a request that only the candidate lets through is not known, and is not counted.
//!
//! Not judged: decisions without the store, whose verdicts are guesses; bytes of connections, which wait; and concurrency limits
//! that are new or changed: a permit is given back by its holder, who knows of none of the candidate's. Where such a
//! policy is in force as another one, that one's verdict stands for it.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::policy::Attributes;
use tidegate_algorithms::time::Now;
use tidegate_store::{Answer, Charge, Intent};

use super::applying::{AllApplying, Charges, applying, charges};
use super::keys::Keys;
use super::listed::listed;
use super::{Ask, Engine, PendingAsk};
use crate::answers::Door;
use crate::candidate::{CandidateLimits, ExampleOf, LimitDifference, LimitDifferenceCounts, no_limit_counts};
use crate::decision::{Decision, Part, Parts};
use crate::denied::{DeniedBy, is_credential};
use crate::policy_set::{CLIENT_ID, PolicyCandidate, PolicySet};

/// The attribute that says which route of the gateway a request takes.
const ROUTE: &str = "route";

/// The policies of the candidate that apply to a request.
pub(super) struct AppliedBeside<'c> {
    candidate: &'c PolicyCandidate,
    set: &'c PolicySet,
    /// Whether those that are in force, too, let it through.
    kept_allow: bool,
    /// Charges of the candidate's own counters.
    charges: Charges<'c>,
    /// Whose each charge is.
    owners: SmallVec<[ChargeOwner; 2]>,
}

/// What makes a charge.
#[derive(Clone, Copy)]
pub(super) struct ChargeOwner {
    /// The policy's place in the candidate's set.
    pub(super) policy: usize,
    /// Which of the request's demands it is about.
    pub(super) demand: usize,
}

/// How the candidate decides.
pub(super) struct DecidedBeside {
    pub(super) allowed: bool,
    /// The first that denies, if it is one of the candidate's own charges.
    pub(super) denied_by: Option<ChargeOwner>,
}

/// The decision that was made, and what it was about.
pub(super) struct DecisionMade<'a> {
    pub(super) set: &'a PolicySet,
    pub(super) decision: &'a Decision,
    pub(super) attributes: &'a Attributes<'a>,
    pub(super) door: Door,
}

impl<'c> AppliedBeside<'c> {
    /// None yet; `unmatched`: what the request is answered if none is added.
    pub(super) fn new(candidate: &'c PolicyCandidate, set: &'c PolicySet, unmatched: bool) -> Self {
        Self { candidate, set, kept_allow: unmatched, charges: Charges::new(), owners: SmallVec::new() }
    }

    /// Adds a policy that would make this charge for a demand of which `parts` are the decision's.
    pub(super) fn add(&mut self, owner: ChargeOwner, charge: Charge<'c>, parts: &[Part]) {
        let policy = &self.set.policies()[owner.policy].policy;
        let said = parts.iter().find(|part| part.policy == policy.name);
        let is_concurrent = matches!(charge.limit, Limit::Concurrency(_));
        match said {
            Some(part) if self.candidate.keeps(owner.policy) || is_concurrent => {
                self.keep(part.verdict.allowed || !charge.binding);
            }
            None if is_concurrent => {}
            _ => {
                self.charges.push(charge);
                self.owners.push(owner);
            }
        }
    }

    /// Adds what the decision in force says in any case.
    pub(super) fn keep(&mut self, allowed: bool) {
        self.kept_allow &= allowed;
    }

    /// Decides, and charges the candidate's counters if the request is let through.
    pub(super) fn decide(&self, now: Now, permit: PermitId) -> DecidedBeside {
        let mut answer = Answer { allowed: true, ..Answer::default() };
        if !self.kept_allow || self.charges.is_empty() {
            return DecidedBeside { allowed: self.kept_allow, denied_by: None };
        }
        self.candidate.judged().memory().decide(now, &self.charges, Intent::Spend(permit), &mut answer);
        let denies = |place: &usize| self.charges[*place].binding && !answer.verdicts[*place].allowed;
        let denied_by = if answer.allowed { None } else { (0..self.charges.len()).find(denies) };
        DecidedBeside { allowed: answer.allowed, denied_by: denied_by.map(|place| self.owners[place]) }
    }

    /// Gives units back under the candidate's own counters, as many for each demand as `units` says.
    pub(super) fn refund(&self, now: Now, units: impl Fn(usize) -> u64) {
        let given = self.charges.iter().zip(&self.owners);
        let given = given.map(|(charge, owner)| Charge { cost: units(owner.demand), ..*charge });
        let given: Charges<'_> = given.filter(|charge| charge.cost > 0).collect();
        self.candidate.judged().memory().refund(now, &given);
    }
}

impl Engine {
    /// Whether a candidate's policies are judged beside those in force.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.in_force().candidate().is_some()
    }

    /// What was found of the policies that are judged beside those in force.
    #[must_use]
    pub fn candidate_limits(&self) -> Option<CandidateLimits> {
        self.in_force().candidate_limits()
    }

    /// How many decisions would be the same, and how many in which way otherwise.
    #[must_use]
    pub fn candidate_counts(&self) -> LimitDifferenceCounts {
        let set = self.in_force();
        set.candidate().map_or_else(no_limit_counts, |candidate| candidate.judged().counts())
    }

    /// Has the candidate judge a decision that spends. `unmatched`: what it answers if none of its policies applies. `is_own`: the
    /// request brought its own limit, which decided.
    pub(super) fn judge(&self, asked: &PendingAsk<'_>, decision: &Decision, unmatched: bool, is_own: bool) {
        let Some(candidate) = asked.set.candidate() else { return };
        let (PendingAsk { ask, permit, now, .. }, Some(set)) = (asked, candidate.set()) else { return };
        if ask.door == Door::EdgeBytes || decision.degraded.is_some() {
            return;
        }
        let mut keys = Keys::new();
        let applying = applying_beside(candidate, set, asked.listed, ask, &mut keys);
        if is_own && self.is_undecided(set, &applying, &ask.attributes) {
            candidate.judged().count(LimitDifference::Same);
            return;
        }
        let unmatched = unmatched || !applying.is_empty();
        let mut applied = AppliedBeside::new(candidate, set, unmatched);
        for (applies, charge) in applying.iter().zip(charges(set, &applying, &keys, ask.cost)) {
            let owner = ChargeOwner { policy: applies.index, demand: 0 };
            applied.add(owner, charge, &decision.parts);
        }
        let decided = applied.decide(*now, *permit);
        let made = DecisionMade { set: asked.set, decision, attributes: &ask.attributes, door: ask.door };
        count(candidate, &made, &decided, &ask.attributes);
    }

    /// Has the candidate judge a request that is let through without being charged, since its route lists no policies.
    pub(crate) fn judge_listed(&self, ask: &Ask<'_>) {
        let set = self.set.load();
        let asked = PendingAsk { listed: Some(&[]), ..self.asked(ask, &set, AllApplying::new()) };
        let decision = Decision { allowed: true, parts: Parts::new(), degraded: None, permit: None };
        self.judge(&asked, &decision, true, false);
    }

    /// Gives units back under the candidate's own counters.
    pub(super) fn refund_beside(&self, set: &PolicySet, list: Option<&[Arc<str>]>, ask: &Ask<'_>) {
        let Some(candidate) = set.candidate() else { return };
        let Some(set) = candidate.set() else { return };
        let mut keys = Keys::new();
        let mut applying = applying_beside(candidate, set, list, ask, &mut keys);
        applying.retain(|applies| {
            !candidate.keeps(applies.index) && !matches!(applies.limit, Limit::Concurrency(_))
        });
        let charges = charges(set, &applying, &keys, ask.cost);
        candidate.judged().memory().refund(self.clock.now(), &charges);
    }
}

/// The policies of the candidate that apply: of all, or of those that are listed where the request came in.
fn applying_beside<'s>(
    candidate: &PolicyCandidate,
    set: &'s PolicySet,
    list: Option<&[Arc<str>]>,
    ask: &Ask<'_>,
    keys: &mut Vec<u8>,
) -> AllApplying<'s> {
    let Some(policies) = list else { return applying(set, &ask.attributes, ask.can_release, keys) };
    let route = ask.attributes.value(ROUTE).filter(|_| ask.door == Door::Gateway);
    let policies = route.and_then(|route| candidate.list(route)).unwrap_or(policies);
    listed(set, policies, ask, keys)
}

/// Counts a request by what both say, and keeps an example if they differ. `attributes`: of the demand that the candidate denies.
pub(super) fn count(
    candidate: &PolicyCandidate,
    made: &DecisionMade<'_>,
    decided: &DecidedBeside,
    attributes: &Attributes<'_>,
) {
    let judged = candidate.judged();
    let (difference, by, attributes) = match (made.decision.allowed, decided.allowed) {
        (true, false) => {
            let by = decided.denied_by.zip(candidate.set()).map_or(DeniedBy::NoMatch, |(owner, set)| {
                DeniedBy::Policy(&set.policies()[owner.policy].policy, set.sources())
            });
            (LimitDifference::WouldLimit, by, attributes)
        }
        (false, true) => {
            (LimitDifference::WouldAllow, DeniedBy::from_decision(made.set, made.decision), made.attributes)
        }
        _ => return judged.count(LimitDifference::Same),
    };
    judged.count(difference);
    let (policy, shown) = by.told(attributes);
    let client = attributes.value(CLIENT_ID).filter(|_| !is_credential(made.set.sources(), CLIENT_ID));
    judged.keep(difference, made.door.label(), ExampleOf { policy, attributes: shown }, client);
}
