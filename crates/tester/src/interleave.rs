//! Two targets turn by turn in one run: what a machine does over minutes then falls on both alike.
//!
//! The order is A B, B A, A B, ...: a steady drift cancels out, and neither side is always the one
//! that finds the caches warm. Each side's steps become a report of its own, so that the comparison is
//! that of `tidegate_judge::compare`.

use crate::load::Stop;
use tidegate_judge::discover::{Discovery, Settings};
use tidegate_judge::measurement::Bench;

/// Shows the steps of both sides as they end; the first argument says which side.
pub type OnStep<'a> = &'a mut dyn FnMut(Side, &Discovery);

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is compared with.
    A,
    /// The one that is judged.
    B,
}

/// Measures sides A and B at the same levels, each `settings.repeats` times. A stop ends both.
///
/// # Errors
/// When a step cannot be run.
pub fn interleave<T: Bench>(
    bench_a: &mut T,
    bench_b: &mut T,
    settings: &Settings,
    stop: &Stop,
    on_step: OnStep<'_>,
) -> Result<(Discovery, Discovery), T::Error> {
    // A side that looks noisy gets no more repeats than the other.
    let settings = Settings { max_repeats: settings.repeats, ..settings.clone() };
    let mut a = (bench_a, Discovery::new(settings.clone()), Side::A);
    let mut b = (bench_b, Discovery::new(settings), Side::B);
    for round in 0.. {
        let order = if round % 2 == 0 { [&mut a, &mut b] } else { [&mut b, &mut a] };
        let mut done = 0;
        for (bench, discovery, side) in order {
            let plan = if stop.is_stopped() { None } else { discovery.next_step() };
            let Some(plan) = plan else {
                done += 1;
                continue;
            };
            let measured = bench.run(&plan)?;
            // What was cut short would compare another length of time.
            if !stop.is_stopped() {
                discovery.observe(&measured);
                on_step(*side, discovery);
            }
        }
        if done > 0 {
            break;
        }
    }
    if stop.is_stopped() {
        a.1.interrupt();
        b.1.interrupt();
    }
    Ok((a.1, b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_judge::compare::{Change, compare};
    use tidegate_judge::report::{Context, Report};
    use tidegate_judge::simulated::Service;

    #[test]
    fn sides_take_turns_and_their_difference_is_found() {
        let (mut a, mut b) = (Service::new(8, 10_000.0), Service::new(8, 9_000.0));
        let settings = Settings { levels: vec![16.0], repeats: 4, ..Settings::default() };
        let mut order = String::new();
        let mut note = |side: Side, _: &Discovery| order.push(if side == Side::A { 'A' } else { 'B' });
        let (left, right) = interleave(&mut a, &mut b, &settings, &Stop::default(), &mut note).unwrap();
        assert_eq!(order, "ABBAABBA");
        let report = |side: &Discovery| Report::build(Context::default(), side, &[], &[]);
        let found = compare(&report(&left), &report(&right), 1).unwrap();
        assert_eq!((found.loads[0].throughput.change, found.loads[0].repeats), (Change::Better, 4));
    }

    #[test]
    fn a_stop_ends_both() {
        let (mut a, mut b) = (Service::new(8, 10_000.0), Service::new(8, 9_000.0));
        let stop = Stop::default();
        let settings = Settings { levels: vec![16.0], ..Settings::default() };
        let (left, right) = interleave(&mut a, &mut b, &settings, &stop, &mut |_, _| stop.stop()).unwrap();
        assert_eq!((left.steps().len(), right.steps().len()), (1, 0));
    }
}
