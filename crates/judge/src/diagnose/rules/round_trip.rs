//! `round-trip-floor`: each connection waits for the network, and the server waits for connections.
//!
//! Positive: throughput = connections / minimum round trip, with a median that is hardly above the
//! round trip and does not move with the load. Excluded: throughput below 90 % of connections / round
//! trip. A round trip below 1 ms is a local one: there the wait is the server's, not the distance's.

use super::super::{Cause, CauseName, Evidence};
use super::mean_of;
use crate::discover::is_closed;

/// Share of connections / round trip that must be reached.
const REACHED: f64 = 0.90;
/// Most that the median may be above the round trip.
const FLAT: f64 = 1.15;
/// Round trips below this are not a distance, in microseconds.
const SHORTEST_US: f64 = 1_000.0;

pub(in super::super) fn floor(evidence: &Evidence) -> Option<Cause> {
    let round_trip = evidence.round_trip_us().filter(|&us| us >= SHORTEST_US)?;
    let focus = evidence.at_focus();
    if focus.is_empty() || focus.iter().any(|s| !is_closed(&s.step.plan) || s.step.error_ratio() > 0.01) {
        return None;
    }
    let connections = mean_of(focus.iter().map(|s| Some(f64::from(s.step.plan.connections))))?;
    let rate = mean_of(focus.iter().map(|s| Some((s.step.good + s.step.denied) as f64 / s.step.seconds)))?;
    let median = mean_of(focus.iter().map(|s| Some(s.step.response.p50_us as f64)))?;
    let most = connections * 1e6 / round_trip;
    let reached = rate / most;
    if !(REACHED..=1.05).contains(&reached) || median > FLAT * round_trip {
        return None;
    }
    Some(
        Cause::new(
            CauseName::RoundTripFloor,
            0.92,
            "the distance is the limit: each connection does one request per round trip, and no server could do more",
        )
        .saw(format!("the round trip is {:.1} ms, the median reply {:.1} ms", round_trip / 1e3, median / 1e3))
        .saw(format!("{connections:.0} connections / round trip allow {most:.0}/s; {rate:.0}/s were done"))
        .number("round_trip_ms", round_trip / 1e3)
        .number("reached", reached)
        .number("most_per_second", most),
    )
}
