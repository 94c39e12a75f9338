//! The numbers that a request brings for itself: checked as a policy's are, and counted under a name of their own.
//!
//! Whoever may ask for decisions may choose them. So they decide only where nobody wrote a policy and `on_no_match` allows:
//! there such a request was allowed without a limit. [`Engine::decide_with`] has the rule.

use std::sync::{Arc, OnceLock};

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
        self.0.get_or_init(|| AdHoc::new(Arc::clone(engine), NAME))
    }
}

/// The limit that a request brings.
pub(super) fn own_limit<'s>(
    shared: &'s ApiState,
    body: &DecisionBody<'_>,
    stated: Stated,
) -> Result<Option<OwnLimit<'s>>, Refusal> {
    let limit = |numbers: &LimitsBody| -> Result<OwnLimit<'s>, Refusal> {
        // Invariant: it is a plain struct, which always serialises.
        let numbers = serde_json::to_value(numbers).unwrap_or_default();
        let quota = parse_own_limit(&numbers, &stated.limits()).map_err(refusal)?;
        let window_seconds = quota.spec.stated_window_seconds();
        let counters = shared.own.made(&shared.engine);
        Ok(OwnLimit { counters, quota: quota.spec.limit, limit: quota.limit, window_seconds })
    };
    body.limits.as_ref().map(limit).transpose()
}

fn refusal(mistakes: Vec<Mistake>) -> Refusal {
    let error = |Mistake { pointer, problem, accepted }| FieldError { pointer, detail: problem, accepted };
    Refusal::fields("the numbers of a limit are wrong", mistakes.into_iter().map(error).collect())
}
