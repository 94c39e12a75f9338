//! Why would this request be denied?
//!
//! Every policy in force, in order: whether it applies and if not, because of which attribute;
//! under which numbers and whose; and what it would say to the request now. Nothing is spent.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::policy::Attributes;
use tidegate_store::lease::Bounds;
use tidegate_store::{Counters, Degraded};
use tidegate_wire::bodies::LimitsBody;
use tidegate_wire::problem::Problem;
use utoipa::ToSchema;

use crate::answers::Door;
use crate::decision::Decision;
use crate::engine::{Ask, Engine};
use crate::error::AskError;
use crate::http::{PartReply, Stated, limit_of, problem_of, same_counters, value_of};
use crate::policy_set::PolicySet;

/// What would happen to a request, and why.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explanation {
    /// Whether it would be allowed.
    allowed: bool,
    /// True where no policy applies, so that `on_no_match` in the configuration would decide.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_match: bool,
    /// Revision of the stored configuration.
    revision: u64,
    /// How the answer was found without the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    degraded: Option<&'static str>,
    /// Every policy in force, but for those that are only counted in `not_listed`.
    policies: Vec<PolicyExplanation>,
    /// How many policies that do not apply are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_listed: Option<usize>,
    /// The numbers that came with the request, if some did.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_limits: Option<RequestLimitsExplanation>,
}

/// The numbers that came with a request, in its explanation.
#[derive(Debug, Serialize, ToSchema)]
struct RequestLimitsExplanation {
    /// The numbers, as the request stated them.
    #[schema(value_type = Object)]
    limits: Value,
    /// Whether they decide: no policy applies that somebody wrote, the client has no numbers of its own, and `on_no_match` allows.
    decide: bool,
    /// What they would say, if they decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<PartReply>,
}

/// One policy's part in an explanation.
#[derive(Debug, Serialize, ToSchema)]
struct PolicyExplanation {
    /// The policy as a document.
    #[schema(value_type = Object)]
    policy: Value,
    /// `built-in`, `file` or `stored`.
    #[schema(value_type = String)]
    origin: &'static str,
    /// Whether it applies to the request. It has no verdict if it applies and another that applies
    /// replaces it.
    applies: bool,
    /// The attribute that is absent or does not match, if it does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    because_of: Option<String>,
    /// The client's own numbers, if it has some under this policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    own_limits: Option<Value>,
    /// What taking units ahead can cost under these numbers, where leases are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseExplanation>,
    /// What it would say.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<PartReply>,
}

/// What taking units of a policy ahead can cost, over all nodes.
#[derive(Debug, Serialize, ToSchema)]
struct LeaseExplanation {
    /// Nodes that share the limit, as configured.
    nodes: u64,
    /// Most units that a node takes at once; 1: none are taken ahead.
    units: u64,
    /// How long they can be spent, in milliseconds.
    lifetime_ms: u64,
    /// Most units above the limit in any one window.
    over_admission: u64,
    /// Most unspent units that are out of reach: other nodes hold them without demand, or they were lost with a node.
    stranded: u64,
}

impl Engine {
    /// What would become of a request of `cost` units. Of the policies that do not apply at most `listed` are
    /// explained. Charges nothing.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn explain(
        &self,
        attributes: Attributes<'_>,
        cost: u64,
        listed: usize,
    ) -> Result<Explanation, AskError> {
        let decision = self.decide(&peek(attributes, cost)).await?;
        Ok(self.explained(&attributes, &decision, listed))
    }

    /// As [`Engine::explain`], for a request that brings these numbers for itself (`limits` of `POST /v1/decisions`).
    ///
    /// # Errors
    /// As a problem document: what is wrong with the numbers or the request, or that the store does not answer.
    pub async fn explain_with(
        self: &Arc<Self>,
        attributes: Attributes<'_>,
        cost: u64,
        listed: usize,
        limits: &LimitsBody,
    ) -> Result<Explanation, Problem> {
        let (limits, stated, counters) = (value_of(limits), Stated::Flat, same_counters(self));
        let own = limit_of(&limits, stated, || &counters).map_err(|refusal| refusal.0)?;
        let ask = peek(attributes, cost);
        let decided = Box::pin(self.decide_with(&ask, &own)).await;
        let decision = decided.map_err(|error| problem_of(&error, stated))?;
        let part = decision.parts.iter().find(|part| part.policy == *counters.name());
        let (decide, verdict) = (part.is_some(), part.map(PartReply::new));
        let explained = self.explained(&attributes, &decision, listed);
        let request_limits = Some(RequestLimitsExplanation { limits, decide, verdict });
        Ok(Explanation { request_limits, ..explained })
    }

    /// All policies, but at most `listed` of those that do not apply.
    fn explained(&self, attributes: &Attributes<'_>, decision: &Decision, listed: usize) -> Explanation {
        let (set, mut others) = (self.set(), 0);
        let indices = (0..set.policies().len()).filter(|index| {
            let other = set.policies()[*index].policy.first_mismatch(attributes).is_some();
            others += usize::from(other);
            !other || others <= listed
        });
        let explanation = explanation(self, &set, attributes, decision, indices);
        Explanation { not_listed: others.checked_sub(listed).filter(|more| *more > 0), ..explanation }
    }
}

/// A request that is asked about, and charged nothing.
fn peek(attributes: Attributes<'_>, cost: u64) -> Ask<'_> {
    Ask { attributes, cost, peek: true, can_release: true, door: Door::Http }
}

/// What the engine says of routed requests, for [`crate::routed`].
pub(crate) fn of_policies(
    engine: &Engine,
    set: &PolicySet,
    attributes: &Attributes<'_>,
    decision: &Decision,
    policies: &[Arc<str>],
) -> Value {
    let indices = policies.iter().filter_map(|name| set.place(name));
    serde_json::to_value(explanation(engine, set, attributes, decision, indices)).unwrap_or_default()
}

/// Each of the policies at `indices`, and what `decision` has of it.
fn explanation(
    engine: &Engine,
    set: &PolicySet,
    attributes: &Attributes<'_>,
    decision: &Decision,
    indices: impl Iterator<Item = usize>,
) -> Explanation {
    let policies = indices.map(|index| {
        let in_force = &set.policies()[index];
        let policy = &in_force.policy;
        let because_of = policy.first_mismatch(attributes).map(str::to_owned);
        let (quota, own) = set.quota(index, attributes);
        let part = decision.parts.iter().find(|part| part.policy == policy.name);
        PolicyExplanation {
            policy: policy.document(),
            origin: in_force.origin.word(),
            applies: because_of.is_none(),
            because_of,
            own_limits: own.then(|| serde_json::to_value(&quota.spec).unwrap_or_default()),
            lease: lease(engine.counters(), &quota.limit),
            verdict: part.map(PartReply::new),
        }
    });
    Explanation {
        allowed: decision.allowed,
        no_match: decision.no_match(),
        revision: set.revision().0,
        degraded: decision.degraded.map(Degraded::word),
        policies: policies.collect(),
        not_listed: None,
        request_limits: None,
    }
}

fn lease(counters: &Counters, limit: &Limit) -> Option<LeaseExplanation> {
    let leases = counters.leases()?;
    let Bounds { units, lifetime, over_admission, stranded, .. } = leases.bounds(limit);
    let nodes = leases.config().instances;
    Some(LeaseExplanation { nodes, units, lifetime_ms: lifetime / 1_000_000, over_admission, stranded })
}
