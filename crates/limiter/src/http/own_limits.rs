//! The numbers that a request brings for itself: checked as a policy's are, and counted under a name of their own.
//!
//! Whoever may ask for decisions may choose them. So they decide only where nobody wrote a policy and `on_no_match` allows:
//! there such a request was allowed without a limit. [`Engine::decide_with`] has the rule.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tidegate_algorithms::policy::{Mistake, parse_own_limit};
use tidegate_wire::bodies::{DecisionBody, LimitsBody};
use tidegate_wire::problem::FieldError;

use super::ApiState;
use super::reply::{Refusal, Stated};
use crate::ad_hoc::AdHoc;
use crate::engine::{Engine, OwnLimit};

/// What they are counted as, in replies and on the metrics page. No policy can have the name.
const NAME: &str = "LIMITS";

/// Their counters, made for the first request that brings numbers: until then no metric names them.
#[derive(Debug, Default)]
pub(super) struct OwnCounters(OnceLock<AdHoc>);

impl OwnCounters {
    fn made(&self, engine: &Arc<Engine>) -> &AdHoc {
        self.0.get_or_init(|| same_counters(engine))
    }
}

/// The limit that a request brings.
pub(super) fn own_limit<'s>(
    shared: &'s ApiState,
    body: &DecisionBody<'_>,
    stated: Stated,
) -> Result<Option<OwnLimit<'s>>, Refusal> {
    let counters = || shared.own.made(&shared.engine);
    body.limits.as_ref().map(|numbers| limit_of(&value_of(numbers), stated, counters)).transpose()
}

/// Other counters of the same name: the counts are in the engine's store, so these are the same ones.
pub(crate) fn same_counters(engine: &Arc<Engine>) -> AdHoc {
    AdHoc::new(Arc::clone(engine), NAME)
}

/// The numbers as JSON.
pub(crate) fn value_of(numbers: &LimitsBody) -> Value {
    // Invariant: it is a plain struct, which always serialises.
    serde_json::to_value(numbers).unwrap_or_default()
}

/// The limit of these numbers, if they are within bounds.
pub(crate) fn limit_of<'s>(
    numbers: &Value,
    stated: Stated,
    counters: impl FnOnce() -> &'s AdHoc,
) -> Result<OwnLimit<'s>, Refusal> {
    let quota = parse_own_limit(numbers, &stated.limits()).map_err(refusal)?;
    let window_seconds = quota.spec.stated_window_seconds();
    Ok(OwnLimit { counters: counters(), quota: quota.spec.limit, limit: quota.limit, window_seconds })
}

fn refusal(mistakes: Vec<Mistake>) -> Refusal {
    let error = |Mistake { pointer, problem, accepted }| FieldError { pointer, detail: problem, accepted };
    Refusal::fields("the numbers of a limit are wrong", mistakes.into_iter().map(error).collect())
}
