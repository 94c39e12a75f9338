//! `opening-drops` and `refused-connects`: what happened to connections that were to be opened.
//!
//! Both are findings: they say that opening was slow or failed, and never why throughput stops growing.

use super::super::{Cause, CauseName, Evidence};
use crate::measurement::ErrorClass;

/// Connections dropped at the listener before the first request of a step.
pub(in super::super) fn drops(evidence: &Evidence) -> Option<Cause> {
    let dropped = |step: &super::super::StepEvidence| {
        let kernel = step.kernel?;
        let opening = kernel.opening?;
        let count = opening.listen_overflows.max(opening.listen_drops);
        (count > 0).then_some((count, opening, step.step.plan.connections, kernel))
    };
    let (count, opening, connections, kernel) =
        evidence.steps.iter().filter_map(dropped).max_by_key(|found| found.0)?;
    let later = kernel.listen_overflows.max(kernel.listen_drops);
    Some(
        Cause::new(
            CauseName::OpeningDrops,
            0.95,
            format!(
                "while {connections} connections were opened the listener dropped {count} of them: that is how the step began, not why throughput stops"
            ),
        )
        .saw(format!("opening took {:.1} s; {} SYNs were sent again", opening.seconds, opening.syn_retransmits))
        .saw(format!("{later} connections were dropped while it was measured"))
        .number("dropped", count as f64)
        .number("dropped_while_measured", later as f64)
        .number("opening_seconds", opening.seconds),
    )
}

/// Connections that nothing listened for.
pub(in super::super) fn refused(evidence: &Evidence) -> Option<Cause> {
    let count: u64 = evidence.steps.iter().map(|s| s.step.errors_of(ErrorClass::Refused)).sum();
    let steps = evidence.steps.iter().filter(|s| s.step.errors_of(ErrorClass::Refused) > 0).count();
    (count > 0).then(|| {
        Cause::new(
            CauseName::RefusedConnects,
            0.95,
            format!(
                "{count} connections were refused (ECONNREFUSED), in {steps} of {} steps",
                evidence.steps.len()
            ),
        )
        .number("refused", count as f64)
    })
}
