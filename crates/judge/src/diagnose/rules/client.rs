//! `client-ports` and `client-descriptors`: walls of the client's machine that look like a server's.
//!
//! Ports: EADDRNOTAVAIL, with sockets in use and in TIME_WAIT near the port range times the source
//! addresses. Excluded when the ports were mostly free (the same errno says that an address is not
//! this machine's), or when the errors are gone at the same load with more source addresses.
//! Descriptors: EMFILE. Excluded when the client used less than 90 % of its limit.

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::percent;
use crate::measurement::ErrorClass;

/// Share of the ports from which they are near their end.
const NEAR: f64 = 0.80;
/// Share of a limit below which it is no limit.
const FREE: f64 = 0.90;

pub(in super::super) fn ports(evidence: &Evidence) -> Option<Cause> {
    let errors = count(&evidence.at_focus(), ErrorClass::AddressNotAvailable);
    if errors == 0 || lifted_by_sources(evidence) {
        return None;
    }
    let used = evidence.at_focus().iter().filter_map(|s| share_of_ports(s)).reduce(f64::max);
    if used.is_some_and(|u| u < NEAR) {
        return None;
    }
    let most = evidence.at_focus().iter().map(|s| s.step.established).max()?;
    let mut cause = Cause::new(
        CauseName::ClientPorts,
        if used.is_some() { 0.96 } else { 0.90 },
        "the client ran out of ports: add source addresses",
    )
    .saw(format!("{errors} connections failed with EADDRNOTAVAIL"))
    .number("errors", errors as f64)
    .number("established", f64::from(most));
    if let Some(used) = used {
        cause = cause
            .saw(format!("sockets in use and in TIME_WAIT fill {} of the port range", percent(used)))
            .number("ports_used", used);
    }
    Some(cause)
}

pub(in super::super) fn descriptors(evidence: &Evidence) -> Option<Cause> {
    let errors = count(&evidence.at_focus(), ErrorClass::TooManyFiles);
    if errors == 0 {
        return None;
    }
    let used = evidence
        .at_focus()
        .iter()
        .filter_map(|s| {
            let kernel = s.kernel?;
            Some(kernel.client_descriptors? as f64 / kernel.client_descriptor_limit?.max(1) as f64)
        })
        .reduce(f64::max);
    if used.is_some_and(|u| u < FREE) {
        return None;
    }
    let mut cause = Cause::new(
        CauseName::ClientDescriptors,
        if used.is_some() { 0.96 } else { 0.90 },
        "the client ran out of file descriptors: raise `ulimit -n` or use more processes",
    )
    .saw(format!("{errors} sockets failed with EMFILE"))
    .number("errors", errors as f64);
    if let Some(used) = used {
        cause = cause
            .saw(format!("{} of its descriptors were open", percent(used)))
            .number("descriptors_used", used);
    }
    Some(cause)
}

fn count(steps: &[&StepEvidence], class: ErrorClass) -> u64 {
    steps.iter().map(|s| s.step.errors_of(class)).sum()
}

fn share_of_ports(step: &StepEvidence) -> Option<f64> {
    let kernel = step.kernel?;
    let ports = kernel.port_range? * kernel.sources.unwrap_or(1).max(1);
    // Towards a server on the same machine the sockets are both ends of each connection.
    Some(((kernel.sockets_in_use + kernel.time_wait) as f64 / ports.max(1) as f64).min(1.0))
}

/// Whether a step at this load or above, with more source addresses, had no such errors.
fn lifted_by_sources(evidence: &Evidence) -> bool {
    let sources = |s: &StepEvidence| s.kernel.and_then(|k| k.sources).unwrap_or(0);
    let failing = evidence.at_focus().iter().filter(|s| failed(s)).map(|s| sources(s)).max().unwrap_or(0);
    failing > 0 && evidence.saturated().iter().any(|s| sources(s) > failing && !failed(s))
}

fn failed(step: &StepEvidence) -> bool {
    step.step.errors_of(ErrorClass::AddressNotAvailable) > 0
}
