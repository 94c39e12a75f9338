//! One function per objection. Each sees a claim and its table, and says what is wrong or nothing.

use tidegate_algorithms::stats::little;

use super::{Audited, Claim, Finding, LatencyOf, Objection};
use crate::discover::gates::SHORTEST_SECONDS;
use crate::report::format::{count, percent, time};

/// Tolerance when only the median was stated: it is not the mean.
const MEDIAN_TOLERANCE: f64 = 0.25;
/// Share of denials from which a rate is mostly denials or partly.
const DENIALS: f64 = 0.05;
/// Rows with one ratio of rate to clients from which the rate was set, not found.
const OFFERED_ROWS: usize = 3;
/// Most that those ratios differ by.
const SAME_RATIO: f64 = 0.01;
/// Share of the stated clients in flight below which a client mostly waits for its own schedule.
const IDLE_CLIENTS: f64 = 0.10;
/// Most that stated and computed rates may differ by.
const ROUNDING: f64 = 0.05;

/// Judges one claim within its file.
pub(super) fn judge(claim: &Claim, all: &[Claim]) -> Audited {
    let table: Vec<&Claim> = all.iter().filter(|c| c.table == claim.table).collect();
    let in_flight = law(claim).map(|check| check.implied);
    let rules = [
        littles_law(claim),
        survivors(claim),
        too_short(claim),
        denials(claim),
        offered(claim, &table),
        ramp(claim),
        wrong_target(claim),
        not_measured(claim),
        arithmetic(claim),
    ];
    Audited {
        name: claim.name.clone(),
        table: claim.table.clone(),
        in_flight,
        findings: rules.into_iter().flatten().collect(),
        checkable: law(claim).is_some() && claim.concurrency.is_some(),
    }
}

fn finding(objection: Objection, says: String) -> Option<Finding> {
    Some(Finding { objection, says })
}

/// Rate x (mean or median latency + think time) against the stated concurrency.
fn law(claim: &Claim) -> Option<little::Check> {
    let latency = claim.mean_ms.or(claim.p50_ms)?;
    let think = claim.think_ms.unwrap_or(0.0) / 1e3;
    Some(little::check(claim.rate_per_second?, latency / 1e3, think, claim.concurrency.unwrap_or(0.0)))
}

fn littles_law(claim: &Claim) -> Option<Finding> {
    let check = law(claim)?;
    let stated = claim.concurrency?;
    let (name, tolerance) =
        if claim.mean_ms.is_some() { ("mean", little::TOLERANCE) } else { ("median", MEDIAN_TOLERANCE) };
    if stated <= 0.0 || check.deviation.abs() <= tolerance {
        return None;
    }
    let latency = claim.mean_ms.or(claim.p50_ms)? * 1e3;
    finding(
        Objection::ContradictsLittlesLaw,
        format!(
            "{}/s x {name} {} is about {} in flight, not {}",
            count(claim.rate_per_second?),
            time(latency),
            count(check.implied),
            count(stated)
        ),
    )
}

fn survivors(claim: &Claim) -> Option<Finding> {
    let failed = claim.errors.or(claim.timeouts).filter(|e| *e > 0.0)?;
    if claim.latency_of != Some(LatencyOf::Successes) || (claim.mean_ms.is_none() && claim.p50_ms.is_none()) {
        return None;
    }
    let timeouts = claim.timeouts.unwrap_or(0.0);
    let left_out = if timeouts > 0.0 {
        format!("{} timeouts", count(timeouts))
    } else {
        format!("{} failed requests", count(failed))
    };
    let with = with_timeouts(claim)
        .map_or(String::new(), |ms| format!("; with them the mean is {}", time(ms * 1e3)));
    finding(Objection::SurvivorsOnly, format!("the latency leaves out {left_out}{with}"))
}

/// The mean in milliseconds when each timeout counts with its deadline: a lower bound of the truth.
fn with_timeouts(claim: &Claim) -> Option<f64> {
    let (timeouts, deadline) = (claim.timeouts.filter(|t| *t > 0.0)?, claim.timeout_ms?);
    let good = claim.requests? - claim.errors.unwrap_or(timeouts);
    (good > 0.0).then(|| Some((good * claim.mean_ms? + timeouts * deadline) / (good + timeouts)))?
}

fn too_short(claim: &Claim) -> Option<Finding> {
    let seconds = claim.duration_seconds.filter(|s| *s < SHORTEST_SECONDS)?;
    finding(
        Objection::StepTooShort,
        format!("measured for {}; a figure needs at least {SHORTEST_SECONDS} s", time(seconds * 1e6)),
    )
}

/// Denials, stated or implied by the limit: no client gets more than its limit per window.
fn denials(claim: &Claim) -> Option<Finding> {
    let (share, why) = match claim.denied_share {
        Some(share) => (share, "by its own account".to_owned()),
        None => {
            let requests = claim.requests.filter(|r| *r > 0.0)?;
            let (clients, limit) = (claim.clients?, claim.limit_per_window?);
            let windows = 1.0 + (claim.duration_seconds? / claim.window_seconds?).floor();
            let admitted = (clients * limit * windows).min(requests);
            let most = format!(
                "{} clients x {} per {} s admit {} of {} requests",
                count(clients),
                count(limit),
                count(claim.window_seconds?),
                count(admitted),
                count(requests)
            );
            (1.0 - admitted / requests, most)
        }
    };
    if share < DENIALS {
        return None;
    }
    let good = claim
        .rate_per_second
        .map_or(String::new(), |r| format!("; {}/s are left as work", count(r * (1.0 - share))));
    finding(
        Objection::DenialsCountedAsSuccess,
        format!("{} of the replies are denials ({why}){good}", percent(share)),
    )
}

/// One ratio of rate to clients in several rows, while the clients are mostly idle.
fn offered(claim: &Claim, table: &[&Claim]) -> Option<Finding> {
    let ratio = |c: &Claim| Some(c.rate_per_second? / c.concurrency.filter(|n| *n > 0.0)?);
    let idle = |c: &Claim| {
        let (Some(check), Some(stated)) = (law(c), c.concurrency) else { return false };
        check.implied < IDLE_CLIENTS * stated
    };
    let own = ratio(claim).filter(|_| idle(claim))?;
    let same = table
        .iter()
        .filter(|c| idle(c) && ratio(c).is_some_and(|r| (r / own - 1.0).abs() <= SAME_RATIO))
        .count();
    if same < OFFERED_ROWS {
        return None;
    }
    finding(
        Objection::OfferedRateAsCapacity,
        format!(
            "{same} rows have exactly {} requests/s per client: the rate was offered, not reached",
            count(own)
        ),
    )
}

fn ramp(claim: &Claim) -> Option<Finding> {
    let from = claim.ramp_from?;
    finding(
        Objection::RampAverage,
        format!("an average over a ramp from {} to {} users", count(from), count(claim.concurrency?)),
    )
}

fn wrong_target(claim: &Claim) -> Option<Finding> {
    finding(Objection::WrongTarget, claim.bypasses.clone()?)
}

fn not_measured(claim: &Claim) -> Option<Finding> {
    (claim.measured == Some(false)).then_some(())?;
    finding(Objection::NotMeasured, "a figure without a measurement".to_owned())
}

fn arithmetic(claim: &Claim) -> Option<Finding> {
    let pairs = [
        ("p50", claim.p50_ms, "p99", claim.p99_ms),
        ("p50", claim.p50_ms, "max", claim.max_ms),
        ("p99", claim.p99_ms, "max", claim.max_ms),
        ("mean", claim.mean_ms, "max", claim.max_ms),
    ];
    for (low, a, high, b) in pairs {
        if let (Some(a), Some(b)) = (a, b)
            && a > b
        {
            return finding(Objection::Arithmetic, format!("{low} {a} ms is above {high} {b} ms"));
        }
    }
    let counts = [
        ("errors", claim.errors, "requests", claim.requests),
        ("timeouts", claim.timeouts, "requests", claim.requests),
        ("timeouts", claim.timeouts, "errors", claim.errors),
    ];
    for (part, a, whole, b) in counts {
        if let (Some(a), Some(b)) = (a, b)
            && a > b
        {
            let says = format!("{} {part} of {} {whole}", count(a), count(b));
            return finding(Objection::Arithmetic, says);
        }
    }
    if let Some(share) = claim.denied_share.filter(|share| *share > 1.0) {
        return finding(
            Objection::Arithmetic,
            format!("{} of the replies are said to be denials", percent(share)),
        );
    }
    let computed = claim.requests? / claim.duration_seconds.filter(|s| *s > 0.0)?;
    let stated = claim.rate_per_second?;
    ((computed / stated - 1.0).abs() > ROUNDING).then_some(())?;
    finding(
        Objection::Arithmetic,
        format!("requests / time is {}/s, {}/s are stated", count(computed), count(stated)),
    )
}
