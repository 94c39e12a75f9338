//! `fixed-concurrency`: a pool of k inside the server; more load only waits for it.
//!
//! Positive: past the knee throughput stays flat while latency grows in line with the connections,
//! and below the knee latency is flat. From the law of the pool, k = capacity x service time, with
//! the service time taken where nothing waits yet (the load with the fastest mean reply) less the round
//! trip.
//! Excluded: throughput that moves with the connections; and whatever else makes a plateau (CPU, hot
//! thread, admission, upstream, ...: see `explains`). Seen from the client alone, c busy cores have
//! exactly the curve of c workers, so the rule says nothing unless the server's process or its
//! machine was seen with CPU to spare.

use tidegate_algorithms::stats::mean::mean;

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::{mean_of, percent};
use crate::discover::is_closed;

/// Most that throughput past the knee may vary around its mean.
const FLAT: f64 = 0.08;
/// Growth of load that the plateau must span.
const SPAN: f64 = 1.4;
/// Most that the model min(N / S, k / S) may miss a step by, for the higher confidence.
const SHARP: f64 = 0.06;
/// CPU, as a share of the server's cores, above which idle workers are not shown.
const CPU_IDLE: f64 = 0.80;

pub(in super::super) fn pool(evidence: &Evidence) -> Option<Cause> {
    // Below the knee the pool has room: it limits nothing there.
    let knee = evidence.knee.filter(|&k| evidence.focus >= k)?;
    let past: Vec<&StepEvidence> =
        evidence.steps.iter().filter(|s| s.step.usable() && s.step.load() >= knee).collect();
    let below: Vec<&StepEvidence> = evidence.below().into_iter().filter(|s| s.step.usable()).collect();
    if past.iter().chain(&below).any(|s| !is_closed(&s.step.plan)) || below.is_empty() {
        return None;
    }
    let plateaus = levels(&past);
    let rates: Vec<f64> = plateaus.iter().map(|level| level.rate).collect();
    let plateau = mean(&rates);
    let loads = past.iter().map(|s| s.step.load());
    let widest = loads.clone().fold(0.0, f64::max);
    let spans = widest / loads.fold(f64::INFINITY, f64::min) >= SPAN;
    if !spans || plateau <= 0.0 || rates.iter().any(|r| (r / plateau - 1.0).abs() > FLAT) {
        return None;
    }
    if past.iter().any(|s| s.step.error_ratio() > 0.01) {
        return None;
    }
    let unloaded = levels(&below);
    let reply_us = unloaded.iter().map(|level| level.reply_us).reduce(f64::min)?;
    let service_us = (reply_us - evidence.round_trip_us().unwrap_or(0.0)).max(0.0);
    let size = plateau * service_us / 1e6;
    if size < 0.8 || size > 1.3 * knee {
        return None;
    }
    let process = mean_of(past.iter().map(|s| s.server.as_ref().map(|v| v.cpu / v.cores.max(1.0))));
    let machine = mean_of(past.iter().map(|s| Some(1.0 - s.kernel?.idle?)));
    let used = process.or(machine).filter(|&share| share <= CPU_IDLE)?;
    let sharp = unloaded.iter().chain(&plateaus).all(|level| {
        let expected = (level.load * 1e6 / reply_us).min(plateau);
        (level.rate / expected - 1.0).abs() <= SHARP
    });
    let confidence = if sharp && process.is_some() { 0.90 } else { 0.70 };
    Some(describe(&past, plateau, service_us, size, confidence, used))
}

/// One load.
struct ConcurrencyLevel {
    load: f64,
    rate: f64,
    reply_us: f64,
}

/// The loads with the medians over their repeats: one disturbed repeat hides no plateau.
fn levels(steps: &[&StepEvidence]) -> Vec<ConcurrencyLevel> {
    let mut loads: Vec<f64> = steps.iter().map(|s| s.step.load()).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let of = |load: f64| {
        let at = || steps.iter().filter(move |s| s.step.load() == load);
        ConcurrencyLevel {
            load,
            rate: median(at().map(|s| s.step.throughput.mean).collect()),
            reply_us: median(at().map(|s| s.step.response.mean_us).collect()),
        }
    };
    loads.into_iter().map(of).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn describe(
    past: &[&StepEvidence],
    plateau: f64,
    service_us: f64,
    size: f64,
    confidence: f64,
    used: f64,
) -> Cause {
    let at = |s: &StepEvidence| format!("{:.1} ms at {:.0}", s.step.response.mean_us / 1e3, s.step.load());
    let by_load = |a: &&&StepEvidence, b: &&&StepEvidence| a.step.load().total_cmp(&b.step.load());
    let (first, last) = (past.iter().min_by(by_load), past.iter().max_by(by_load));
    let mut cause = Cause::new(
        CauseName::FixedConcurrency,
        confidence,
        format!(
            "the server works on {size:.0} requests at a time, {:.1} ms each; the rest wait",
            service_us / 1e3
        ),
    )
    .saw(format!("throughput stays at {plateau:.0}/s past the knee"))
    .number("pool_size", size)
    .number("service_time_ms", service_us / 1e3);
    if let (Some(first), Some(last)) = (first, last) {
        cause = cause.saw(format!("latency grows with the connections: {}, {}", at(first), at(last)));
    }
    cause = cause
        .saw(format!("the cores at the server are used to {} only", percent(used)))
        .number("cpu_share", used);
    if let Some(waiting) = mean_of(past.iter().map(|s| s.server.as_ref().and_then(|v| v.futex_waiting))) {
        cause = cause
            .saw(format!("{waiting:.0} of its threads wait on a futex"))
            .number("futex_waiting", waiting);
    }
    cause
}
