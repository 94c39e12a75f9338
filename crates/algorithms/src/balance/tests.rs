//! The shares, bounds and hystereses of balancing, checked against what their pages promise; properties
//! where every input must hold, tables where a figure is stated.

use proptest::prelude::*;

use super::budget::Budget;
use super::eligibility::{Ejection, EjectionSettings, Health, Thresholds};
use super::ewma::{DECAY, PeakEwma};
use super::region::{Chosen, Country, Layout, Load, Location, Member, Region, Spill, Tier, Unplaced};
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
    fn least_is_the_least(backends in proptest::collection::vec((1u32..5, 0u32..50), 1..12), turn: u64) {
        let load = |index: usize| f64::from(backends[index].1) / f64::from(backends[index].0);
        let picked = least(backends.len(), turn, |index| f64::from(backends[index].0), |index| backends[index].1);
        let picked = picked.expect("all have a weight");
        prop_assert!((0..backends.len()).all(|index| load(picked) <= load(index)));
    }

    /// While nothing is in flight, each gets its share, whenever one looks: a few picks more or less, never a row of them.
    #[test]
    fn ties_are_picked_by_weight(weights in proptest::collection::vec(0u32..6, 1..8), from: u64) {
        let total: u32 = weights.iter().sum();
        prop_assume!(total > 0);
        let mut picks = vec![0.0; weights.len()];
        for number in 1..=1_000_u32 {
            let turn = from.wrapping_add(number.into());
            let picked = least(weights.len(), turn, |index| f64::from(weights[index]), |_| 0);
            picks[picked.expect("one has a weight")] += 1.0;
            for (picked, weight) in picks.iter().zip(&weights) {
                let share = f64::from(*weight) / f64::from(total) * f64::from(number);
                prop_assert!((picked - share).abs() < 4.0, "{picked} of {share} in {number}");
            }
        }
    }

    /// Of two choices the dearest of all is never taken where it is clearly dearer, and a lone one always is.
    #[test]
    fn two_choices_never_take_the_dearest(count in 2usize..20, seed: u64) {
        let mut random = Random::seeded(seed);
        for _ in 0..100 {
            let cost = |index: usize| if index == count - 1 { 2.1 } else { 1.0 };
            let picked = two_choices(count, &mut random, |_| 1.0, cost).expect("all have a weight");
            prop_assert!(picked < count - 1);
            prop_assert_eq!(two_choices(count, &mut random, |index| if index == 1 { 1.0 } else { 0.0 }, cost), Some(1));
        }
    }

    /// Among equals draws follow the weights, of two backends, too.
    #[test]
    fn two_choices_follow_the_weights(heavy in 1u32..10, seed: u64) {
        let (mut random, mut costs, mut picks) = (Random::seeded(seed), Random::seeded(!seed), 0.0);
        for _ in 0..10_000 {
            let noise = [costs.unit(), costs.unit()].map(|noise| 1.0 + noise / 2.0);
            let weight = |index| if index == 0 { f64::from(heavy) } else { 1.0 };
            picks += f64::from(two_choices(2, &mut random, weight, |index| noise[index]) == Some(0));
        }
        let share = f64::from(heavy) / (f64::from(heavy) + 1.0);
        // Five standard deviations.
        prop_assert!((picks - 10_000.0 * share).abs() < 5.0 * (10_000.0 * share * (1.0 - share)).sqrt());
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
        let settings = budget::BudgetSettings { percent, least_per_second: 10 };
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
    let mut budget = Budget::new(budget::BudgetSettings::default());
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
    assert!(latency.cost(3.0, Tick(2 * SECOND), DECAY) > 3.9 * after);
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
fn one_that_is_down_before_its_first_check_comes_up_by_that_or_as_any_other() {
    let thresholds = Thresholds { rise: 3, fall: 2 };
    let mut health = Health::before_its_first_check();
    assert!(!health.is_up() && health.checked(true, thresholds) && health.is_up());
    let mut health = Health::before_its_first_check();
    assert!(!health.checked(false, thresholds));
    let passed: Vec<bool> = (0..3).map(|_| health.checked(true, thresholds)).collect();
    assert_eq!(passed, [false, false, true]);
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
    assert!(state.failed(Tick(10 * SECOND), settings, true), "one more is enough");
    assert_eq!(state.until(), Tick(30 * SECOND));
    state.succeeded(Tick(30 * SECOND), settings);
    assert!(!state.failed(Tick(31 * SECOND), settings, true), "after a success it is not");
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

const NODE: Region = Region(9);

fn country(letters: &str) -> Country {
    Country::parse(letters).expect("two letters")
}

fn client() -> Location {
    Location { country: Some(country("BR")), region: Some(Region(0)) }
}

/// A place that is as far from [`client`] as `tier` says.
fn at(tier: Tier) -> Location {
    let (country, region) = match tier {
        Tier::Country => (client().country, None),
        Tier::Region => (None, client().region),
        Tier::Node => (None, Some(NODE)),
        Tier::Elsewhere => (None, Some(Region(5))),
    };
    Location { country, region }
}

fn member(tier: Tier) -> Member {
    Member { location: at(tier), measured: None, priority: 0, soft_limit: 100, hard_limit: 150, weight: 2 }
}

/// A pick among members with so many connections each.
fn pick(spill: Spill, members: &[(Member, u32)]) -> Result<Chosen, Unplaced> {
    let layout = Layout::new(members.iter().map(|(member, _)| *member).collect());
    layout
        .pick(client(), Some(NODE), spill, |index| Some(Load { connections: members[index].1, factor: 1.0 }))
}

#[test]
fn near_backends_win_until_their_limit() {
    let index = |spill, loads: &[(Tier, u32)]| {
        let members: Vec<_> = loads.iter().map(|(tier, connections)| (member(*tier), *connections)).collect();
        pick(spill, &members).map(|chosen| chosen.index)
    };
    let near_full = [(Tier::Elsewhere, 0), (Tier::Country, 149), (Tier::Region, 0)];
    assert_eq!(index(Spill::AtHard, &near_full), Ok(1));
    assert_eq!(index(Spill::AtSoft, &near_full), Ok(2));
    let near_gone = [(Tier::Elsewhere, 0), (Tier::Country, 150), (Tier::Region, 0)];
    assert_eq!(index(Spill::AtHard, &near_gone), Ok(2));
    assert_eq!(index(Spill::Never, &near_gone), Err(Unplaced::Full));
    assert_eq!(index(Spill::AtHard, &[(Tier::Country, 150)]), Err(Unplaced::Full));
    assert_eq!(index(Spill::AtHard, &[]), Err(Unplaced::None));
    let equal = [(Tier::Node, 40), (Tier::Node, 39), (Tier::Node, 39)];
    assert_eq!(index(Spill::AtHard, &equal), Ok(1), "the first of the least loaded");
}

#[test]
fn what_was_measured_counts_in_place_of_where_a_backend_is() {
    let measured = |place, tier| (Member { measured: tier, ..member(place) }, 0);
    let near_by_place = measured(Tier::Country, Some(Tier::Elsewhere));
    let near_by_measure = measured(Tier::Elsewhere, Some(Tier::Region));
    let chosen = pick(Spill::AtHard, &[near_by_place, near_by_measure]).expect("there is room");
    assert_eq!((chosen.index, chosen.tier, chosen.is_measured), (1, Tier::Region, true));
    let not_measured = measured(Tier::Country, None);
    let chosen = pick(Spill::AtHard, &[near_by_place, near_by_measure, not_measured]).expect("there is room");
    assert_eq!((chosen.index, chosen.tier, chosen.is_measured), (2, Tier::Country, false));
}

#[test]
fn scores_are_those_that_the_pages_state() {
    let scored = |member: Member, tier, connections| {
        member.score(tier, Load { connections, factor: 1.0 }, Spill::AtHard).expect("below its hard limit")
    };
    assert!((scored(member(Tier::Region), Tier::Region, 50) - 100.25).abs() < 1e-9);
    let zeroes = Member { soft_limit: 0, weight: 0, ..member(Tier::Country) };
    assert!((scored(zeroes, Tier::Country, 3) - 3.0).abs() < 1e-9);
}

#[test]
fn a_backend_that_starts_slowly_has_a_tenth_of_the_others_connections() {
    let layout = Layout::new(vec![member(Tier::Node); 2]);
    let mut connections = [0_u32, 0];
    for _ in 0..110 {
        let factors = [1.0 / slow_start::LEAST, 1.0];
        let load = |index: usize| Some(Load { connections: connections[index], factor: factors[index] });
        let chosen = layout.pick(client(), Some(NODE), Spill::AtHard, load).expect("there is room");
        connections[chosen.index] += 1;
    }
    assert_eq!(connections, [10, 100]);
}

#[test]
fn a_later_priority_is_for_when_the_ones_before_have_no_room() {
    let backup = Member { priority: 7, ..member(Tier::Country) };
    let main = member(Tier::Elsewhere);
    let index = |spill, loads| pick(spill, &[(backup, 0), (main, loads)]).map(|chosen| chosen.index);
    assert_eq!(index(Spill::AtHard, 149), Ok(1));
    assert_eq!(index(Spill::AtHard, 150), Ok(0));
    assert_eq!(index(Spill::Never, 150), Err(Unplaced::Full));
}

#[test]
fn what_is_not_known_of_a_place_is_equal_to_nothing() {
    let nowhere = Location::default();
    assert_eq!(Tier::of(nowhere, nowhere, None), Tier::Elsewhere);
    assert_eq!(Tier::of(nowhere, at(Tier::Node), Some(NODE)), Tier::Node);
    assert_eq!(Country::parse("br"), Some(country("BR")));
    assert_eq!((Country::parse("bra"), Country::parse("b1"), Country::parse("")), (None, None, None));
    assert_eq!(country("BR").to_string(), "BR");
}

/// The best by looking at all of them in turn.
fn oracle(spill: Spill, members: &[(Member, u32)]) -> Result<usize, Unplaced> {
    let tier = |member: &Member| member.tier(client(), Some(NODE));
    let first =
        members.iter().map(|(member, _)| (member.priority, tier(member))).min().ok_or(Unplaced::None)?;
    let mut best: Option<(u16, f64, usize)> = None;
    for (index, (member, connections)) in members.iter().enumerate() {
        if spill == Spill::Never && (member.priority, tier(member)) != first {
            continue;
        }
        let load = Load { connections: *connections, factor: 1.0 };
        let Some(score) = member.score(tier(member), load, spill) else { continue };
        if best.is_none_or(|(priority, lowest, _)| (member.priority, score) < (priority, lowest)) {
            best = Some((member.priority, score, index));
        }
    }
    best.map(|(_, _, index)| index).ok_or(Unplaced::Full)
}

proptest! {
    /// Looking at near zones first finds what looking at all backends finds, loads above a whole tier included.
    #[test]
    fn zones_hide_no_better_backend(
        backends in proptest::collection::vec(
            (0usize..4, 0usize..8, 0u16..3, 1u32..4, 0u32..400, 1u32..400, 1u32..4), 0..20,
        ),
        spill in prop_oneof![Just(Spill::Never), Just(Spill::AtSoft), Just(Spill::AtHard)],
    ) {
        let members: Vec<(Member, u32)> = backends
            .into_iter()
            .map(|(tier, measured, priority, soft_limit, connections, hard_limit, weight)| {
                let (location, measured) = (at(Tier::ALL[tier]), Tier::ALL.get(measured).copied());
                (Member { location, measured, priority, soft_limit, hard_limit, weight }, connections)
            })
            .collect();
        prop_assert_eq!(pick(spill, &members).map(|chosen| chosen.index), oracle(spill, &members));
    }
}
