//! What services are told of a decision that denies.

use tidegate_algorithms::policy::Mode;
use tidegate_limiter::decision::Decision;
use tidegate_net::limits::Denial;

/// Why a decision denies, if it does.
pub(super) fn denial(decision: &Decision) -> Option<Denial> {
    if decision.allowed {
        return None;
    }
    if decision.no_match() {
        return Some(Denial::NoMatch);
    }
    let denied = decision.parts.iter().filter(|part| !part.verdict.allowed && part.mode == Mode::Enforce);
    Some(Denial::Quota { policies: denied.map(|part| part.policy.to_string()).collect() })
}
