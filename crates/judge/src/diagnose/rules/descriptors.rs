//! `server-descriptors`: the server cannot open another file, so it stops accepting.
//!
//! Positive: descriptors at the limit, and connections that are waiting or failing for it. Excluded:
//! less than 90 % in use. Between the two nothing is said.

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::percent;
use crate::measurement::ErrorClass;

/// Share of the limit from which it is reached.
const FULL: f64 = 0.98;

pub(in super::super) fn server(evidence: &Evidence) -> Option<Cause> {
    let focus = evidence.at_focus();
    let full = focus.iter().copied().find(|s| used(s).is_some_and(|u| u >= FULL))?;
    let server = full.server.as_ref()?;
    let (open, limit) = (server.descriptors?, server.descriptor_limit?);
    let step = &full.step;
    let lost = step.errors_of(ErrorClass::Timeout)
        + step.errors_of(ErrorClass::Reset)
        + step.errors_of(ErrorClass::Refused);
    let queued = full.kernel.and_then(|k| k.accept_queue).unwrap_or(0);
    if lost == 0 && queued == 0 && step.established >= step.plan.connections {
        return None;
    }
    Some(
        Cause::new(
            CauseName::ServerDescriptors,
            0.93,
            format!("the server is out of file descriptors: {open} of {limit} are open"),
        )
        .saw(format!("{} of the server's descriptors are open", percent(open as f64 / limit.max(1) as f64)))
        .saw(format!("{lost} requests timed out or were reset; {queued} connections wait to be accepted"))
        .number("descriptors", open as f64)
        .number("descriptor_limit", limit as f64)
        .number("accept_queue", queued as f64),
    )
}

fn used(step: &StepEvidence) -> Option<f64> {
    let server = step.server.as_ref()?;
    Some(server.descriptors? as f64 / server.descriptor_limit?.max(1) as f64)
}
