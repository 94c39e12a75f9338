//! `upstream`: what stands behind the server is the limit.
//!
//! Positive: a plateau with the server's CPU idle, while the count of its own outgoing connections
//! stays flat. Excluded: its upstream is not slower under load. Without a measurement of the upstream, the signature
//! alone gives a low confidence: a small pool of the proxy's own towards a fast upstream looks the same.

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::{mean_of, percent};

/// CPU share from which the server is not idle.
const BUSY: f64 = 0.80;
/// Most that the outgoing connections may vary past the knee.
const FLAT: f64 = 0.10;
/// How much slower an upstream must be under load.
const SLOWER: f64 = 1.3;

pub(in super::super) fn slower(evidence: &Evidence) -> Option<Cause> {
    let knee = evidence.knee.filter(|&k| evidence.focus >= k)?;
    let past: Vec<&StepEvidence> =
        evidence.steps.iter().filter(|s| s.step.load() >= knee && s.step.usable()).collect();
    let used = mean_of(past.iter().map(|s| s.server.as_ref().map(|v| v.cpu / v.cores.max(1.0))))?;
    let outgoing: Vec<f64> =
        past.iter().filter_map(|s| s.server.as_ref()?.outgoing).map(|n| n as f64).collect();
    let most = outgoing.iter().copied().fold(0.0, f64::max);
    let least = outgoing.iter().copied().fold(f64::INFINITY, f64::min);
    if used > BUSY || outgoing.len() < 2 || least < 1.0 || (most - least) > FLAT * most {
        return None;
    }
    let time = |steps: &[&StepEvidence]| {
        mean_of(steps.iter().map(|s| s.server.as_ref().and_then(|v| v.upstream_us)))
    };
    let lowest = evidence.steps.iter().map(|s| s.step.load()).fold(f64::INFINITY, f64::min);
    let unloaded: Vec<&StepEvidence> =
        evidence.steps.iter().filter(|s| s.step.load() <= 2.0 * lowest).collect();
    let slower = time(&past).zip(time(&unloaded)).filter(|(_, before)| *before > 0.0).map(|(a, b)| a / b);
    if slower.is_some_and(|ratio| ratio < SLOWER) {
        return None;
    }
    let mut cause = Cause::new(
        CauseName::Upstream,
        if slower.is_some() { 0.92 } else { 0.60 },
        "the server waits for what stands behind it",
    )
    .saw(format!("its own connections towards others stay at {most:.0} while the load grows"))
    .saw(format!("its cores are used to {} only", percent(used)))
    .number("outgoing", most)
    .number("cpu_share", used);
    if let Some(ratio) = slower {
        cause = cause
            .saw(format!("its upstream takes {ratio:.1} times as long under load"))
            .number("upstream_slower", ratio);
    }
    Some(cause)
}
