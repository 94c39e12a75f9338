//! Several demands of one request, decided as one: all are charged or none is.
//!
//! Envoy asks about several descriptors at once and turns a request away if any is over its limit. The
//! reference service charges the others all the same; here a denial charges nobody, as for several
//! policies of one demand, so that a client that is denied by one limit does not use up another. Nor does it get
//! units back: these come back only if all demands are allowed, and never more than were charged.

use std::ops::Range;

use smallvec::SmallVec;
use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::policy::{Attributes, Mode, OnStoreFailure, counted};
use tidegate_store::{Answer, Charge, Intent};

use super::applying::Charges;
use super::beside::{AppliedBeside, ChargeOwner, DecisionMade, count};
use super::keys::Keys;
use super::own::{OwnLimit, put_pair};
use super::{Engine, barred, check, matching};
use crate::answers::Door;
use crate::decision::{Decision, Part, Parts};
use crate::denied::DeniedBy;
use crate::error::AskError;
use crate::policy_set::{CLIENT_ID, PolicySet};

/// A demand, of which a request may make several at once.
#[derive(Debug)]
pub struct Demand<'a> {
    /// Its attributes.
    pub attributes: Attributes<'a>,
    /// Units; 0 reads what remains.
    pub cost: u64,
    /// Units that come back if the request is allowed; the reply shows the limits as they were before that.
    pub given_back: u64,
    /// A limit that it brings along, instead of policies; counted by all the attributes.
    pub own: Option<OwnLimit<'a>>,
}

/// All shares of a request: up to two need no allocation.
type Shares<'a> = SmallVec<[Share<'a>; 2]>;

/// One limit's share in one demand.
struct Share<'a> {
    demand: usize,
    /// Its policy's place in the set; none for a demand's own limit.
    policy: Option<usize>,
    limit: &'a Limit,
    key: Range<usize>,
}

impl Engine {
    /// Decides all of `demands`: each one's decision, in order.
    ///
    /// # Errors
    /// As [`Engine::decide`]; nothing is charged when one of them is out of bounds.
    pub async fn decide_together(&self, demands: &[Demand<'_>]) -> Result<Vec<Decision>, AskError> {
        for demand in demands {
            check(demand.cost.max(demand.given_back))?;
        }
        let set = self.set.load();
        let mut keys = Keys::new();
        let shares = shares(&set, demands, &mut keys);
        let charges: Charges<'_> =
            shares.iter().map(|share| share.charge(&set, &keys, demands[share.demand].cost)).collect();
        let mut answer = Answer { allowed: true, ..Answer::default() };
        if charges.is_empty() {
            answer.allowed = self.no_match.allows();
            let requests = || demands.iter().map(|demand| demand.attributes);
            let barred = || requests().flat_map(|attributes| barred(&set, &attributes, None)).collect();
            self.no_match.see(self.clock.tick(), requests(), barred);
        } else {
            let intent = Intent::Spend(self.permits.next());
            self.counters.decide(self.clock.now(), &charges, intent, &mut answer).await?;
        }
        if answer.allowed {
            self.give_back(&set, &shares, demands, &keys).await?;
        }
        // A demand that no policy applies to is within its limits where another of the request has some.
        let allowed = answer.allowed || !charges.is_empty();
        let undecided = Decision { allowed, parts: Parts::new(), degraded: answer.degraded, permit: None };
        let mut decisions = vec![undecided; demands.len()];
        for (share, verdict) in shares.iter().zip(&answer.verdicts) {
            let (demand, decision) = (&demands[share.demand], &mut decisions[share.demand]);
            let binding = share.mode(&set) == Mode::Enforce;
            let (spends, is_degraded) = (demand.cost > 0, answer.degraded.is_some());
            let part = match (share.policy, &demand.own) {
                (None, Some(own)) => {
                    if spends {
                        own.counters.tally().count(verdict.allowed, true, is_degraded);
                    }
                    own.part(*verdict)
                }
                (index, _) => {
                    let index = index.unwrap_or_default();
                    let in_force = &set.policies()[index];
                    if spends {
                        in_force.count(verdict.allowed, is_degraded);
                    }
                    let (policy, quota) = (&in_force.policy, set.quota(index, &demand.attributes).0);
                    Part::new(policy.name.clone(), policy.mode, quota, *verdict)
                }
            };
            decision.allowed &= verdict.allowed || !binding;
            decision.parts.push(part);
        }
        if demands.iter().any(|demand| demand.cost > 0) {
            let allowed = decisions.iter().all(|decision| decision.allowed);
            self.answers.count(Door::Grpc, allowed, !charges.is_empty());
        }
        self.see_clients(&set, demands, &decisions);
        self.judge_together(&set, demands, &decisions);
        Ok(decisions)
    }

    /// Counts each client of a request once, however many demands name it: as denied if one of these is denied, as
    /// allowed if all demands are allowed.
    fn see_clients(&self, set: &PolicySet, demands: &[Demand<'_>], decisions: &[Decision]) {
        let (now, denied_clients) = (self.clock.tick(), &self.denied_clients);
        let allowed = decisions.iter().all(|decision| decision.allowed);
        let is_counted =
            |demand: &Demand<'_>, decision: &Decision| demand.cost > 0 && decision.allowed == allowed;
        for (place, (demand, decision)) in demands.iter().zip(decisions).enumerate() {
            let Some(named) = demand.client().filter(|_| is_counted(demand, decision)) else { continue };
            let mut earlier = demands[..place].iter().zip(decisions);
            if earlier.any(|(other, told)| other.client() == Some(named) && is_counted(other, told)) {
                continue;
            }
            if allowed {
                denied_clients.see_allowed(&counted(named), now);
            } else {
                let by = DeniedBy::from_decision(set, decision);
                denied_clients.see(&counted(named), by, &demand.attributes, now);
            }
        }
    }

    /// Has the candidate judge a request.
    fn judge_together(&self, set: &PolicySet, demands: &[Demand<'_>], decisions: &[Decision]) {
        let Some(candidate) = set.candidate() else { return };
        let Some(next) = candidate.set() else { return };
        let denied = decisions.iter().position(|decision| !decision.allowed).unwrap_or_default();
        let Some(decision) = decisions.get(denied) else { return };
        if decision.degraded.is_some() || demands.iter().all(|demand| demand.cost == 0) {
            return;
        }
        let mut keys = Keys::new();
        let shares = shares(next, demands, &mut keys);
        let unmatched = !shares.is_empty() || self.no_match.allows();
        let mut applied = AppliedBeside::new(candidate, next, unmatched);
        for share in &shares {
            let parts = &decisions[share.demand].parts;
            match share.policy {
                None => applied.keep(parts.iter().all(|part| part.verdict.allowed)),
                Some(policy) => {
                    let charge = share.charge(next, &keys, demands[share.demand].cost);
                    applied.add(ChargeOwner { policy, demand: share.demand }, charge, parts);
                }
            }
        }
        let now = self.clock.now();
        let decided = applied.decide(now, self.permits.next());
        if decided.allowed {
            applied.refund(now, |demand| demands[demand].given_back);
        }
        let attributes = &demands[denied].attributes;
        let made = DecisionMade { set, decision, attributes, door: Door::Grpc };
        let beside = decided.denied_by.map_or(denied, |owner| owner.demand);
        count(candidate, &made, &decided, &demands[beside].attributes);
    }

    /// Gives back what the demands bring, each under all its limits.
    async fn give_back(
        &self,
        set: &PolicySet,
        shares: &[Share<'_>],
        demands: &[Demand<'_>],
        keys: &[u8],
    ) -> Result<(), AskError> {
        let units = |share: &Share<'_>| demands[share.demand].given_back;
        let giving = shares.iter().filter(|share| units(share) > 0);
        let given_back: Charges<'_> = giving.map(|share| share.charge(set, keys, units(share))).collect();
        if !given_back.is_empty() {
            self.counters.refund(self.clock.now(), &given_back).await?;
        }
        Ok(())
    }
}

impl<'a> Demand<'a> {
    fn client(&self) -> Option<&'a [u8]> {
        self.attributes.value(CLIENT_ID)
    }
}

impl Share<'_> {
    fn charge<'c>(&'c self, set: &PolicySet, keys: &'c [u8], cost: u64) -> Charge<'c> {
        Charge {
            limit: self.limit,
            key: &keys[self.key.clone()],
            cost,
            binding: self.mode(set) == Mode::Enforce,
            on_failure: self.on_failure(set),
        }
    }

    fn mode(&self, set: &PolicySet) -> Mode {
        self.policy.map_or(Mode::Enforce, |index| set.policies()[index].policy.mode)
    }

    /// What happens without a store, by the policy; a demand's own limit then counts in this node's memory.
    fn on_failure(&self, set: &PolicySet) -> OnStoreFailure {
        self.policy.map_or(OnStoreFailure::Local, |index| set.policies()[index].policy.on_store_failure)
    }
}

/// Every limit that is to be charged, with its key in `keys`. A policy that applies to one demand
/// replaces others in all of them: they are one request.
fn shares<'a>(set: &'a PolicySet, demands: &'a [Demand<'_>], keys: &mut Vec<u8>) -> Shares<'a> {
    let mut shares = Shares::with_capacity(demands.len());
    for (index, demand) in demands.iter().enumerate() {
        if let Some(own) = &demand.own {
            let start = keys.len();
            own.counters.start_key(keys);
            for (name, value) in demand.attributes.iter() {
                put_pair(name, value, keys);
            }
            shares.push(Share { demand: index, policy: None, limit: &own.limit, key: start..keys.len() });
        } else {
            // A request of this kind cannot give a permit back.
            let matching = matching(set, &demand.attributes, false, keys);
            shares.extend(matching.into_iter().map(|applies| Share {
                demand: index,
                policy: Some(applies.index),
                limit: applies.limit,
                key: applies.key,
            }));
        }
    }
    set.leave_out_replaced(&mut shares, |share| share.policy);
    shares
}
