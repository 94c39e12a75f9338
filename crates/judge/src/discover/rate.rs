//! The open-loop search: the highest rate at which the objectives hold.
//!
//! Double until a rate fails, then bisect between the highest rate that holds and the lowest that
//! does not. A verdict near the boundary is noisy, so the answer must hold in most of its repeats; if
//! repeating turns it over, it becomes the new upper end and the search goes on below. A rate that
//! the generator could not send ends the search upward, as "at least".

use super::level::Level;
use super::settings::Settings;
use super::{Move, Stop};

/// Factor between rates while no failing one is known.
const FACTOR: f64 = 2.0;

/// The bracket: highest level that holds below the lowest that fails.
pub(super) fn bracket(settings: &Settings, levels: &[Level]) -> (Option<usize>, Option<usize>) {
    let measured = |l: &Level| l.throughput().is_some() || l.generator_bound();
    let fails = levels.iter().position(|l| measured(l) && (l.generator_bound() || !l.holds(settings)));
    let holds = (0..fails.unwrap_or(levels.len()))
        .rev()
        .find(|&i| levels[i].throughput().is_some() && levels[i].holds(settings));
    (holds, fails)
}

/// What the search wants next.
pub(super) fn next(settings: &Settings, levels: &[Level]) -> Move {
    if levels.is_empty() {
        return Move::Measure(settings.rounded(settings.first));
    }
    match bracket(settings, levels) {
        (None, None) => Move::Done(Stop::Generator),
        (None, Some(fails)) => downward(settings, &levels[fails]),
        (Some(holds), None) => upward(settings, &levels[holds]),
        (Some(holds), Some(fails)) => between(settings, &levels[holds], &levels[fails]),
    }
}

fn downward(settings: &Settings, fails: &Level) -> Move {
    let lower = settings.rounded(fails.load / FACTOR);
    if lower >= 1.0 && lower < fails.load {
        Move::Measure(lower)
    } else {
        Move::Done(if fails.generator_bound() { Stop::Generator } else { Stop::ObjectiveNeverHolds })
    }
}

fn upward(settings: &Settings, holds: &Level) -> Move {
    let higher = settings.rounded(holds.load * FACTOR);
    if holds.load < settings.ceiling && higher > holds.load {
        Move::Measure(higher)
    } else if holds.usable() < settings.repeats && holds.repeats() < settings.max_repeats {
        Move::Measure(holds.load)
    } else {
        Move::Done(Stop::Ceiling)
    }
}

fn between(settings: &Settings, holds: &Level, fails: &Level) -> Move {
    let middle = settings.rounded((holds.load * fails.load).sqrt());
    if fails.load / holds.load > settings.resolution && middle > holds.load && middle < fails.load {
        return Move::Measure(middle);
    }
    for level in [holds, fails] {
        if level.usable() < settings.repeats
            && level.repeats() < settings.max_repeats
            && !level.generator_bound()
        {
            return Move::Measure(level.load);
        }
    }
    Move::Done(if fails.generator_bound() { Stop::Generator } else { Stop::Found })
}
