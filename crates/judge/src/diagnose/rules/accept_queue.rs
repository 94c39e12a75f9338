//! `accept-queue`: connections are dropped because the listener's queue is full.
//!
//! Positive: ListenOverflows or ListenDrops rose, and someone waited for it: connects near 1, 3 or 7 s
//! (the SYN's retransmissions), a queue at its limit, or connections that were not made at all while
//! SYNs were sent again and the listener had others waiting. Excluded: no rise, and one that is the rest
//! of opening: connections that are kept, all there, of which the listener dropped some while they were
//! opened ([`super::opening`] tells of these). Without the server's kernel counters nothing is said, for a
//! lossy network has the same connect times.

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::percent;

/// Where the retransmitted SYNs arrive, in microseconds: after 1, 3 and 7 s.
const MODES_US: [(u64, u64); 3] = [(950_000, 1_400_000), (2_900_000, 3_500_000), (6_800_000, 7_600_000)];
/// Share of connects in those modes from which users notice.
const NOTICED: f64 = 0.01;
/// Share of the connections that were never made from which they are missed.
const MISSED: f64 = 0.05;

pub(in super::super) fn overflow(evidence: &Evidence) -> Option<Cause> {
    let focus: Vec<_> = evidence.at_focus().into_iter().filter(|step| !is_rest_of_opening(step)).collect();
    let kernel: Vec<_> = focus.iter().filter_map(|s| s.kernel).collect();
    let overflows: u64 = kernel.iter().map(|k| k.listen_overflows.max(k.listen_drops)).sum();
    if overflows == 0 {
        return None;
    }
    let late = focus
        .iter()
        .map(|s| MODES_US.iter().map(|&(low, high)| s.step.connect.share_between(low, high)).sum())
        .fold(0.0, f64::max);
    let full =
        kernel.iter().any(|k| matches!((k.accept_queue, k.accept_queue_limit), (Some(q), Some(l)) if q > l));
    let retransmits: u64 = kernel.iter().map(|k| k.syn_retransmits).sum();
    let connections: u64 = focus.iter().map(|s| u64::from(s.step.plan.connections)).sum();
    let dropped = overflows as f64 / connections.max(1) as f64;
    let queued = kernel.iter().any(|k| k.accept_queue.is_some_and(|waiting| waiting > 0));
    let missing = focus
        .iter()
        .map(|s| 1.0 - f64::from(s.step.established) / f64::from(s.step.plan.connections.max(1)))
        .fold(0.0, f64::max);
    let stuck = missing >= MISSED && queued && retransmits > 0;
    // A few drops in a burst of connects hurt nobody: they must show in what the client saw.
    if late < NOTICED && !(full && dropped >= NOTICED) && !stuck {
        return None;
    }
    let fullest = kernel.iter().filter_map(|k| Some((k.accept_queue?, k.accept_queue_limit?))).max();
    let mut cause = Cause::new(
        CauseName::AcceptQueue,
        if late >= NOTICED && retransmits > 0 { 0.94 } else { 0.85 },
        "the listener's accept queue overflows: raise its backlog, or accept faster",
    )
    .saw(format!("{overflows} connections were dropped at the listener"))
    .saw(format!(
        "{} of the connects took about 1, 3 or 7 s; {retransmits} SYNs were sent again",
        percent(late)
    ))
    .saw(format!("{} of the connections could not be made", percent(missing)))
    .number("listen_overflows", overflows as f64)
    .number("late_connects", late)
    .number("syn_retransmits", retransmits as f64);
    if let Some((waiting, limit)) = fullest {
        cause = cause
            .saw(format!("the listener's queue held {waiting} where its limit is {limit}"))
            .number("accept_queue_limit", limit as f64);
    }
    Some(cause)
}

/// Whether what was dropped while a step was measured had been opened before: nothing connected any more.
fn is_rest_of_opening(step: &StepEvidence) -> bool {
    let connections = step.step.plan.connections;
    let opening = step.kernel.and_then(|kernel| kernel.opening);
    opening.is_some_and(|it| it.listen_overflows.max(it.listen_drops) > 0)
        && step.step.connect.count <= u64::from(connections)
        && step.step.established >= connections
}
