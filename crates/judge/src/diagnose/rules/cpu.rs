//! `server-cpu` and `hot-thread`: who uses which core.
//!
//! `server-cpu`: the CPU quota ran out in a fifth of its periods or more, or the server used 95 % of
//! all its cores, or its cores had no idle time and the server had half of it or more, or wanted
//! all of it (its threads ran or waited for a core all the time): then the load generator's share is
//! stated. Excluded by more than 20 % idle.
//! `hot-thread`: one thread at 95 % of a core while no other reaches half of one; excluded when no
//! thread reaches 90 %. Between the thresholds nothing is said.

use super::super::cores::CoreUse;
use super::super::evidence::{ServerDelta, StepEvidence};
use super::super::{Cause, CauseName, Evidence, host};
use super::{mean_of, percent};

/// Share of a core or of all cores from which it is used up.
const FULL: f64 = 0.95;
/// Idle time that excludes a saturated CPU.
const IDLE: f64 = 0.20;
/// Idle time below which a machine has none.
const NO_IDLE: f64 = 0.10;
/// Share of quota periods that ran out.
const THROTTLED: f64 = 0.20;
/// Share of a core that another thread may use beside a hot one.
const OTHERS: f64 = 0.50;
/// A thread that is this busy, and waits for a core the rest of the time, is hot too.
const HOT_WITH_DELAY: f64 = 0.90;

pub(in super::super) fn saturated(evidence: &Evidence) -> Option<Cause> {
    let focus = evidence.at_focus();
    quota(&focus).or_else(|| cores(&focus))
}

/// The quota: throttled periods and a tail near one period.
fn quota(focus: &[&StepEvidence]) -> Option<Cause> {
    let servers: Vec<&ServerDelta> = focus.iter().filter_map(|s| s.server.as_ref()).collect();
    let throttled: u64 = servers.iter().filter_map(|s| s.throttled).sum();
    let periods: u64 = servers.iter().filter_map(|s| s.quota_periods).sum();
    let share = if periods > 0 { throttled as f64 / periods as f64 } else { 0.0 };
    if throttled == 0 || share < THROTTLED {
        return None;
    }
    let p99 = mean_of(focus.iter().map(|s| Some(s.step.response.p99_us as f64)))?;
    let allowed = servers.iter().find_map(|s| s.quota_cores);
    let mut cause = Cause::new(
        CauseName::ServerCpu,
        0.93,
        "the server's CPU quota is used up: it stands still until the next period",
    )
    .saw(format!("the quota ran out in {throttled} of {periods} periods"))
    .saw(format!("p99 is {:.0} ms; a period is 100 ms unless set otherwise", p99 / 1e3))
    .number("throttled_share", share)
    .number("p99_ms", p99 / 1e3);
    if let Some(cores) = allowed {
        cause = cause
            .saw(format!("its group may use {cores:.2} cores (cpu.max): raise that, or do less work"))
            .number("quota_cores", cores);
    }
    Some(cause)
}

fn cores(focus: &[&StepEvidence]) -> Option<Cause> {
    let used = mean_of(focus.iter().map(|s| s.server.as_ref().map(|v| v.cpu)))?;
    let cores = mean_of(focus.iter().map(|s| s.server.as_ref().map(|v| v.cores)))?.max(1.0);
    let idle = mean_of(focus.iter().map(|s| s.kernel.and_then(|k| k.idle)));
    if idle.is_some_and(|i| i > IDLE) {
        return None;
    }
    let share = used / cores;
    let wanted = mean_of(focus.iter().map(|s| s.server.as_ref().map(wanted_cores)))?;
    let starved = wanted >= FULL * cores;
    let crowded = idle.is_some_and(|i| i <= NO_IDLE) && (share >= 0.5 || starved);
    if share < FULL && !crowded {
        return None;
    }
    let mut cause = Cause::new(
        CauseName::ServerCpu,
        if share >= FULL { 0.92 } else { 0.75 },
        "the server's cores are used up",
    )
    .saw(format!("the server used {used:.2} of {cores:.0} cores"))
    .number("cpu_cores", used)
    .number("cores", cores);
    if starved && share < FULL {
        cause =
            cause.saw(format!("its threads wanted {wanted:.2}: they waited for a core the rest of the time"));
    }
    if let Some(idle) = idle {
        cause = cause.saw(format!("they were idle {} of the time", percent(idle))).number("idle", idle);
    }
    if let Some(all) = CoreUse::of(focus).filter(|_| share < FULL) {
        cause = cause.saw(all.sentence()).number("generator_cores", all.generator);
    }
    let stolen = focus.iter().filter_map(|s| s.kernel?.stolen).fold(0.0, f64::max);
    if stolen > host::TAKEN {
        cause = cause
            .saw(format!(
                "the machine's host took {} of the time: its cores are not all its own",
                percent(stolen)
            ))
            .number("stolen", stolen);
    }
    Some(cause)
}

/// Cores that the server's threads ran on or waited for.
fn wanted_cores(server: &ServerDelta) -> f64 {
    server.threads.iter().map(|t| (t.cpu + t.run_delay).min(1.0)).sum()
}

pub(in super::super) fn hot_thread(evidence: &Evidence) -> Option<Cause> {
    let focus = evidence.at_focus();
    let server =
        focus.iter().filter_map(|s| s.server.as_ref()).max_by(|a, b| busiest(a).total_cmp(&busiest(b)))?;
    let hottest = server.threads.first()?;
    let hot = hottest.cpu >= FULL
        || (hottest.cpu >= HOT_WITH_DELAY && hottest.cpu + hottest.run_delay >= FULL + 0.02);
    let next = server.threads.get(1).map_or(0.0, |t| t.cpu);
    // With a single core a busy thread is a busy machine.
    if !hot || next > OTHERS || server.cores < 2.0 || server.throttled.is_some_and(|t| t > 0) {
        return None;
    }
    Some(
        Cause::new(
            CauseName::HotThread,
            0.93,
            format!("one thread of the server (`{}`) is busy all the time; the others idle", hottest.name),
        )
        .saw(format!(
            "`{}` used {} of a core, the next busiest {}",
            hottest.name,
            percent(hottest.cpu),
            percent(next)
        ))
        .saw(format!("the server used {:.2} of {:.0} cores", server.cpu, server.cores))
        .number("hot_thread_cpu", hottest.cpu)
        .number("next_thread_cpu", next),
    )
}

fn busiest(server: &ServerDelta) -> f64 {
    server.threads.first().map_or(0.0, |t| t.cpu)
}
