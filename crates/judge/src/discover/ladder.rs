//! The closed-loop search: climb by doubling, then refine on both sides of the knee.
//!
//! The knee is the last level of a chain of significant gains. Each level is compared with the last
//! link of the chain, not with its neighbour, so that many small gains add up to one that counts.
//! A gain counts when Welch's interval leaves out 0 AND throughput grew by at least a tenth of what
//! the load grew (elasticity): without the second rule a long enough run would call any asymptote a
//! gain and put the knee at the ceiling. The chain ends at the first level past which the objective
//! fails.
//!
//! Stop rules: two levels beyond the knee without a gain, a broken or generator-bound level, or the
//! ceiling. Then the levels around the knee get their repeats, and the gaps on both sides are
//! bisected (geometric mean) until neighbours are within the resolution.

use tidegate_algorithms::stats::welch;

use super::level::Level;
use super::settings::Settings;
use super::zones::ERRORS_BROKEN;
use super::{Move, Stop};

/// Growth of throughput over growth of load, in logarithms. Less than this is not a gain.
const ELASTICITY: f64 = 0.10;
/// Factor between levels of the climb.
const FACTOR: f64 = 2.0;
/// Levels without a gain that end the climb.
const FLAT_LEVELS: usize = 2;

/// What the search wants next.
pub(super) fn next(settings: &Settings, levels: &[Level]) -> Move {
    let Some(last) = levels.last() else { return Move::Measure(settings.rounded(settings.first)) };
    let Some(knee) = knee(settings, levels) else { return no_knee(settings, levels) };
    if let Some(load) = climb(settings, levels, knee, last) {
        return Move::Measure(load);
    }
    if let Some(load) = replicate(settings, levels, knee) {
        return Move::Measure(load);
    }
    if let Some(load) = bisect(settings, levels, knee) {
        return Move::Measure(load);
    }
    Move::Done(end(levels, knee))
}

/// Index of the knee: the last link of the chain of significant gains; none when no level has a
/// usable figure whose objective holds.
pub(super) fn knee(settings: &Settings, levels: &[Level]) -> Option<usize> {
    let mut link: Option<usize> = None;
    for (i, level) in levels.iter().enumerate() {
        if level.throughput().is_none() {
            continue;
        }
        if !level.holds(settings) {
            break;
        }
        match link {
            None => link = Some(i),
            Some(before) if gains(&levels[before], level) => link = Some(i),
            Some(_) => {}
        }
    }
    link
}

/// Whether `b`, at a higher load, has significantly and materially more throughput than `a`.
pub(super) fn gains(a: &Level, b: &Level) -> bool {
    let (Some(from), Some(to)) = (a.throughput(), b.throughput()) else { return false };
    if from.mean <= 0.0 {
        return to.mean > 0.0;
    }
    let elasticity = (to.mean / from.mean).ln() / (b.load / a.load).ln();
    elasticity >= ELASTICITY && welch::difference(&from, &to).interval.low > 0.0
}

/// Whether the throughput was still growing when the search could not go on.
pub(super) fn unbounded(levels: &[Level], knee: usize) -> bool {
    levels[knee + 1..].iter().all(|l| l.throughput().is_none() && l.error_ratio() < ERRORS_BROKEN)
}

fn no_knee(settings: &Settings, levels: &[Level]) -> Move {
    let lowest = &levels[0];
    if lowest.throughput().is_none() {
        let again = lowest.repeats() < settings.repeats;
        return match (again, lowest.generator_bound()) {
            (true, _) => Move::Measure(lowest.load),
            (false, true) => Move::Done(Stop::Generator),
            (false, false) => Move::Done(Stop::Found),
        };
    }
    let lower = settings.rounded(lowest.load / FACTOR);
    if lower < lowest.load { Move::Measure(lower) } else { Move::Done(Stop::ObjectiveNeverHolds) }
}

fn climb(settings: &Settings, levels: &[Level], knee: usize, last: &Level) -> Option<f64> {
    let beyond = levels.len() - 1 - knee;
    let over = beyond >= FLAT_LEVELS && last.load >= levels[knee].load * FACTOR * FACTOR * 0.99;
    let failed = levels[knee + 1..]
        .iter()
        .any(|l| l.generator_bound() || l.error_ratio() >= ERRORS_BROKEN || !l.holds(settings));
    let higher = settings.rounded(last.load * FACTOR);
    (!over && !failed && last.load < settings.ceiling && higher > last.load).then_some(higher)
}

/// The levels that decide where the knee is, and the one with the highest throughput.
pub(super) fn deciding(settings: &Settings, levels: &[Level], knee: usize) -> Vec<usize> {
    let usable = |i: &usize| levels[*i].throughput().is_some();
    let below = (0..knee).rev().find(usable);
    let above = (knee + 1..levels.len()).find(usable);
    let mut found: Vec<usize> =
        [below, Some(knee), above, best(settings, levels)].into_iter().flatten().collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The level with the highest throughput among those that keep the objective.
pub(super) fn best(settings: &Settings, levels: &[Level]) -> Option<usize> {
    let mean = |i: &usize| levels[*i].throughput().map_or(0.0, |t| t.mean);
    (0..levels.len())
        .filter(|&i| levels[i].throughput().is_some() && levels[i].holds(settings))
        .max_by(|a, b| mean(a).total_cmp(&mean(b)))
}

fn replicate(settings: &Settings, levels: &[Level], knee: usize) -> Option<f64> {
    deciding(settings, levels, knee).into_iter().map(|i| &levels[i]).find_map(|level| {
        let few = level.usable() < settings.repeats || level.noisy(settings.precision);
        (few && level.repeats() < settings.max_repeats).then_some(level.load)
    })
}

fn bisect(settings: &Settings, levels: &[Level], knee: usize) -> Option<f64> {
    let gap = |low: f64, high: f64| {
        let middle = settings.rounded((low * high).sqrt());
        (high / low > settings.resolution && middle > low && middle < high).then_some(middle)
    };
    let below = knee.checked_sub(1).and_then(|i| gap(levels[i].load, levels[knee].load));
    let above = levels.get(knee + 1).and_then(|l| gap(levels[knee].load, l.load));
    below.or(above)
}

fn end(levels: &[Level], knee: usize) -> Stop {
    if !unbounded(levels, knee) {
        Stop::Found
    } else if levels[knee + 1..].iter().any(Level::generator_bound) {
        Stop::Generator
    } else {
        Stop::Ceiling
    }
}
