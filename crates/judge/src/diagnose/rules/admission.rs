//! `admission`: the server turns work away to protect itself, or because a limit says so.
//!
//! Positive: denials (429, 503, or what the scenario calls a denial) rise with the load while good
//! throughput stays flat. Excluded: none of them. 503s with falling good throughput are a service
//! that breaks, not one that chooses.

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::{mean_of, percent};

/// Share of denials from which they count.
const NOTICED: f64 = 0.02;
/// Share of the best good throughput that must be kept.
const KEPT: f64 = 0.80;

pub(in super::super) fn refusals(evidence: &Evidence) -> Option<Cause> {
    let focus = evidence.at_focus();
    let share = mean_of(focus.iter().map(|s| Some(denied(s))))?;
    if share < NOTICED {
        return None;
    }
    let earlier = mean_of(evidence.below().iter().map(|s| Some(denied(s))));
    if earlier.is_some_and(|e| e >= share) {
        return None;
    }
    let good = mean_of(focus.iter().map(|s| Some(s.step.throughput.mean)))?;
    let best = evidence.steps.iter().map(|s| s.step.throughput.mean).fold(0.0, f64::max);
    if good < KEPT * best || good <= 0.0 {
        return None;
    }
    Some(
        Cause::new(
            CauseName::Admission,
            if earlier.is_some() { 0.93 } else { 0.80 },
            format!("the server turns {} of the requests away and keeps {good:.0}/s good", percent(share)),
        )
        .saw(format!(
            "denied or 503: {} at {:.0}, {} below",
            percent(share),
            evidence.focus,
            percent(earlier.unwrap_or(0.0))
        ))
        .saw(format!("good throughput stays at {} of its best", percent(good / best)))
        .number("denied_share", share)
        .number("good_per_second", good),
    )
}

/// Share of replies that say "not now".
fn denied(step: &StepEvidence) -> f64 {
    let unavailable = step.step.statuses.get(&503).copied().unwrap_or(0);
    let limited = step.step.statuses.get(&429).copied().unwrap_or(0);
    // Denials by body have status 200, so they count by the scenario's own word.
    let turned = step.step.denied.max(limited) + unavailable;
    if step.step.ended() == 0 { 0.0 } else { turned as f64 / step.step.ended() as f64 }
}
