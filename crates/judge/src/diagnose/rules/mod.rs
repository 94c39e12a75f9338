//! One rule per cause, one file per family. A rule is a function of the evidence alone.

mod accept_queue;
mod admission;
mod client;
mod cpu;
mod descriptors;
mod drift;
mod fixed_concurrency;
mod generator;
mod opening;
mod periodic_stall;
mod round_trip;
mod upstream;

use super::{Cause, Evidence};

/// A rule: the cause when its signature is there and nothing excludes it.
pub(super) type CauseRule = fn(&Evidence) -> Option<Cause>;

/// Every rule there is.
pub(super) const ALL: [CauseRule; 15] = [
    generator::cpu,
    client::ports,
    client::descriptors,
    descriptors::server,
    accept_queue::overflow,
    round_trip::floor,
    cpu::saturated,
    cpu::hot_thread,
    fixed_concurrency::pool,
    admission::refusals,
    periodic_stall::stall,
    drift::slower_with_time,
    upstream::slower,
    opening::drops,
    opening::refused,
];

/// The mean of a figure over what has it; none when nothing has.
fn mean_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = values.flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// A share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
