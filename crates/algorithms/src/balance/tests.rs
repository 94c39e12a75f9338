//! The shares, bounds and hystereses of balancing, checked against what their pages promise; properties
//! where every input must hold, tables where a figure is stated.

use proptest::prelude::*;

use super::budget::Budget;
use super::eligibility::{Ejection, EjectionSettings, Health, Thresholds, is_panic, may_eject};
use super::ewma::{DECAY, PeakEwma};
use super::region::{Load, Spill, Tier};
use super::ring::{BOUND, Ring, is_within_bound};
use super::*;
use crate::time::{SECOND, Tick};

#[test]
fn round_robin_spreads_a_heavy_backend_out() {
    let weights = [5.0, 1.0, 1.0];
    let mut turn = RoundRobin::default();
    let picks: Vec<usize> = (0..7).filter_map(|_| turn.pick(3, |index| weights[index])).collect();
    assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn nothing_is_picked_where_all_weights_are_zero() {
    let mut random = Random::seeded(1);
    assert_eq!(RoundRobin::default().pick(3, |_| 0.0), None);
    assert_eq!(least(3, 0, |_| 0.0, |_| 0), None);
    assert_eq!(two_choices(3, &mut random, |_| 0.0, |_| 0.0), None);
    assert_eq!(two_choices(0, &mut random, |_| 1.0, |_| 0.0), None);
    assert_eq!(least(0, 7, |_| 1.0, |_| 0), None);
}

proptest! {
    /// Over a whole round each backend is picked exactly as often as its weight says.
    #[test]
    fn round_robin_is_exact(weights in proptest::collection::vec(0u32..6, 1..8), rounds in 1usize..4) {
        let total: u32 = weights.iter().sum();
        let mut turn = RoundRobin::default();
        let mut picks = vec![0; weights.len()];
        for _ in 0..total as usize * rounds {
            picks[turn.pick(weights.len(), |index| f64::from(weights[index])).expect("one has a weight")] += 1;
        }
        for (picked, weight) in picks.iter().zip(&weights) {
            prop_assert_eq!(*picked, *weight as usize * rounds);
        }
    }

    /// No backend has less load for its weight than the one that `least` picks.
    #[test]
    fn least_is_the_least(backends in proptest::collection::vec((1u32..5, 0u32..50), 1..12), start in 0usize..99) {
        let load = |index: usize| (f64::from(backends[index].1) + 1.0) / f64::from(backends[index].0);
        let picked = least(backends.len(), start, |index| f64::from(backends[index].0), |index| backends[index].1);
        let picked = picked.expect("all have a weight");
        prop_assert!((0..backends.len()).all(|index| load(picked) <= load(index)));
    }

    /// Of two choices the dearest of all is never taken, and draws follow the weights.
    #[test]
    fn two_choices_never_take_the_dearest(count in 2usize..20, seed: u64) {
        let mut random = Random::seeded(seed);
        for _ in 0..100 {
            let picked = two_choices(count, &mut random, |_| 1.0, |index| index as f64).expect("all have a weight");
            prop_assert!(picked < count - 1);
        }
    }

    /// A backend that leaves takes its own keys with it and no others.
    #[test]
    fn a_ring_moves_only_the_keys_of_what_left(
        weights in proptest::collection::vec(1u32..4, 2..10), gone in 0usize..10, keys in proptest::collection::vec(any::<u64>(), 1..100)
    ) {
        let gone = gone % weights.len();
        let backends: Vec<(u64, u32)> = (0u64..).zip(&weights).map(|(name, weight)| (name * 7_919, *weight)).collect();
        let ring = Ring::new(&backends);
        for key in keys {
            let before = ring.pick(key, |_| true, |_| true).expect("there are points");
            let after = ring.pick(key, |index| index != gone, |_| true).expect("another one is left");
            prop_assert!(before == gone || before == after);
        }
    }

    /// With bounded load no backend has more than its bound, whatever the keys.
    #[test]
    fn a_ring_keeps_its_bound(keys in proptest::collection::vec(0u64..3, 1..400), count in 2usize..8) {
        let ring = Ring::new(&(0..count as u64).map(|name| (name, 1)).collect::<Vec<_>>());
        let mut loads = vec![0u32; count];
        for (total, key) in (0u64..).zip(keys) {
            let has_room = |index: usize| is_within_bound(loads[index], total, 1.0, count as f64, BOUND);
            let picked = ring.pick(key, |_| true, has_room).expect("there is always room");
            loads[picked] += 1;
            let bound = ((total as f64 + 1.0) / count as f64 * BOUND).ceil();
            prop_assert!(f64::from(loads[picked]) <= bound);
        }
    }

    /// In any second, attempts beyond the first are at most their share or their floor; a fifth more is
    /// what the estimate of the second can be off by.
    #[test]
    fn a_budget_holds_in_every_second(rate in 1u64..2_000, percent in 1u32..50) {
        let settings = budget::Settings { percent, least_per_second: 10 };
        let mut budget = Budget::new(settings);
        let mut granted = Vec::new();
        for number in 0..rate * 3 {
            let now = Tick(5 * SECOND + number * SECOND / rate);
            budget.request(now);
            if budget.try_attempt(now) {
                granted.push(now);
            }
        }
        let allowed = (rate as f64 * f64::from(percent) / 100.0).max(10.0) * 1.2 + 1.0;
        for from in &granted {
            let within = granted.iter().filter(|at| **at >= *from && at.since(*from) < SECOND).count();
            prop_assert!(within as f64 <= allowed, "{} of {}", within, allowed);
        }
    }
}

#[test]
fn an_outage_at_full_load_costs_a_tenth_more_attempts() {
    let mut budget = Budget::new(budget::Settings::default());
    let mut further = 0;
    for number in 0..60_000_u64 {
        let now = Tick(number * SECOND / 1_000);
        budget.request(now);
        further += u64::from(budget.try_attempt(now));
    }
    assert!((5_900..=6_010).contains(&further), "{further} of 60,000 requests");
}

#[test]
fn a_ring_gives_shares_by_weight() {
    let ring = Ring::new(&[(11, 1), (22, 2), (33, 1), (44, 0)]);
    let mut random = Random::seeded(7);
    let mut picks = [0u32; 4];
    for _ in 0..40_000 {
        picks[ring.pick(random.bits(), |_| true, |_| true).expect("there are points")] += 1;
    }
    assert_eq!(picks[3], 0);
    for (picked, share) in picks.iter().zip([10_000.0, 20_000.0, 10_000.0]) {
        assert!((f64::from(*picked) / share - 1.0).abs() < 0.25, "{picks:?}");
    }
    assert_eq!(Ring::default().pick(1, |_| true, |_| true), None);
}

#[test]
fn a_peak_is_believed_at_once_and_forgotten_slowly() {
    let mut latency = PeakEwma::new(1_000_000, Tick(0));
    latency.observe(200_000_000, Tick(SECOND), DECAY);
    assert!(latency.nanos(Tick(SECOND), DECAY) >= 200_000_000.0);
    latency.observe(1_000_000, Tick(2 * SECOND), DECAY);
    let after = latency.nanos(Tick(2 * SECOND), DECAY);
    assert!((180_000_000.0..185_000_000.0).contains(&after), "{after}");
    assert!(latency.nanos(Tick(60 * SECOND), DECAY) < 1_000_000.0, "silence forgives");
    assert!(latency.cost(3, Tick(2 * SECOND), DECAY) > 3.9 * after);
    // A reading from before the last one changes no past.
    latency.observe(5, Tick(0), DECAY);
    assert!(latency.nanos(Tick(2 * SECOND), DECAY) > 180_000_000.0);
}

#[test]
fn a_new_backend_gets_its_share_by_and_by() {
    let share = |second: u64| slow_start::share(Tick(10 * SECOND), 30 * SECOND, Tick(second * SECOND));
    assert!(
        (share(10) - 0.1).abs() < 1e-9 && (share(25) - 0.5).abs() < 1e-9 && (share(99) - 1.0).abs() < 1e-9
    );
    assert!((slow_start::share(Tick(10), 0, Tick(10)) - 1.0).abs() < 1e-9);
}

#[test]
fn a_flapping_backend_neither_comes_nor_goes() {
    let thresholds = Thresholds::default();
    let mut health = Health::new(true);
    for passed in [false, false, true, false, false, true] {
        assert!(!health.checked(passed, thresholds));
    }
    assert!(health.is_up());
    let changes: Vec<bool> = (0..3).map(|_| health.checked(false, thresholds)).collect();
    assert_eq!((changes, health.is_up()), (vec![false, false, true], false));
    for passed in [true, false, true, false] {
        assert!(!health.checked(passed, thresholds));
    }
    assert!(!health.checked(true, thresholds) && health.checked(true, thresholds) && health.is_up());
}

#[test]
fn ejections_grow_and_are_forgiven() {
    let settings = EjectionSettings::default();
    let mut state = Ejection::default();
    let fail = |state: &mut Ejection, second: u64| {
        (0..5).any(|_| state.failed(Tick(second * SECOND), settings, true))
    };
    assert!(fail(&mut state, 0) && state.until() == Tick(10 * SECOND));
    assert!(!fail(&mut state, 5), "it is out already");
    assert!(fail(&mut state, 10) && state.until() == Tick(30 * SECOND));
    for _ in 0..2 {
        state.succeeded(Tick(100 * SECOND), settings);
    }
    state.succeeded(Tick(200 * SECOND), settings);
    assert!(fail(&mut state, 300) && state.until() == Tick(310 * SECOND), "both were forgiven");
    let mut spared = Ejection::default();
    assert!((0..9).all(|_| !spared.failed(Tick(0), settings, false)), "too many are out");
    spared.succeeded(Tick(0), settings);
    assert!((0..4).all(|_| !spared.failed(Tick(0), settings, true)), "a success starts the count anew");
}

#[test]
fn at_most_half_are_ejected_and_too_few_are_all() {
    assert!(may_eject(0, 2) && !may_eject(1, 2) && !may_eject(0, 1) && may_eject(1, 4) && !may_eject(2, 5));
    assert!(is_panic(0, 1) && is_panic(1, 3) && !is_panic(1, 2) && !is_panic(0, 0));
}

fn load(tier: Tier, connections: u32) -> Load {
    Load { tier, connections, soft_limit: 100, hard_limit: 150, weight: 2 }
}

#[test]
fn near_backends_win_until_their_limit() {
    let pick = |spill, loads: &[Load]| region::pick(loads.len(), spill, |index| Some(loads[index]));
    let near_full = [load(Tier::Elsewhere, 0), load(Tier::Country, 149), load(Tier::Region, 0)];
    assert_eq!(pick(Spill::AtHard, &near_full), Some(1));
    assert_eq!(pick(Spill::AtSoft, &near_full), Some(2));
    let near_gone = [load(Tier::Elsewhere, 0), load(Tier::Country, 150), load(Tier::Region, 0)];
    assert_eq!(pick(Spill::AtHard, &near_gone), Some(2));
    assert_eq!(pick(Spill::Never, &near_gone), None);
    assert_eq!(pick(Spill::AtHard, &[load(Tier::Country, 150)]), None);
    let equal = [load(Tier::Node, 40), load(Tier::Node, 39), load(Tier::Node, 39)];
    assert_eq!(pick(Spill::AtHard, &equal), Some(1), "the first of the least loaded");
}

#[test]
fn scores_are_those_that_the_pages_state() {
    let scored = |load: Load| load.score(Spill::AtHard).expect("below its hard limit");
    assert!((scored(load(Tier::Region, 50)) - 100.25).abs() < 1e-9);
    let zeroes = Load { soft_limit: 0, weight: 0, ..load(Tier::Country, 3) };
    assert!((scored(zeroes) - 3.0).abs() < 1e-9);
}
