//! Placing: limits that hold under threads, affinity that obeys them, panic, drain.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_algorithms::balance::eligibility::Thresholds;
use tidegate_algorithms::balance::round_trip::FRESH;

use super::*;
use crate::backend::Beside;
use crate::config::BackendConfig;

fn pool(backends: &[Value]) -> Pool {
    pool_by(None, backends)
}

fn pool_by(bounds: Option<TierBounds>, backends: &[Value]) -> Pool {
    let read = |(index, value): (usize, &Value)| {
        let mut value = value.clone();
        value["address"] = json!(format!("127.0.0.1:{}", index + 1));
        let config = BackendConfig::read(&value, "").expect("a backend");
        Arc::new(EdgeBackend::new(Arc::new(config), Tick(0), Beside::Nobody))
    };
    let location = |backend: &EdgeBackend| Location {
        country: backend.config.country,
        region: backend.config.region.as_ref().map(|name| Region(name.len() as u16)),
    };
    let backends = backends.iter().enumerate().map(read).collect();
    Pool::new("web".into(), backends, Arc::default(), location, bounds)
}

fn origin(before: Option<&str>) -> Origin<'_> {
    Origin { location: Location::default(), node: None, before, spill: Spill::AtHard }
}

fn down(pool: &Pool, index: usize) {
    let thresholds = Thresholds { rise: 1, fall: 1 };
    assert!(pool.backends()[index].known.backend.checked(false, thresholds, Tick(0)));
    pool.troubles.fetch_add(1, Relaxed);
}

#[test]
fn fault_67_limits_hold_while_many_threads_place_at_once() {
    let pool = pool(&[json!({"name": "a", "hard_limit": 7}), json!({"name": "b", "hard_limit": 5})]);
    let most = [AtomicU32::new(0), AtomicU32::new(0)];
    let refused = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (pool, most, refused) = (&pool, &most, &refused);
            scope.spawn(move || {
                let before = ["a", "b"][thread % 2];
                let mut held = Vec::new();
                for _ in 0..10_000 {
                    match pool.place(origin(Some(before)), &[], Tick(0)) {
                        Ok(placed) => {
                            let now = placed.backend.known.backend.in_flight();
                            most[placed.index].fetch_max(now, Relaxed);
                            held.push(placed);
                        }
                        Err(unplaced) => {
                            assert_eq!(unplaced, Unplaced::Full);
                            refused.fetch_add(1, Relaxed);
                            held.clear();
                        }
                    }
                }
            });
        }
    });
    assert!(most[0].load(Relaxed) <= 7 && most[1].load(Relaxed) <= 5, "{most:?}");
    assert!(refused.load(Relaxed) > 0, "the limits were reached");
    assert!(pool.backends().iter().all(|backend| backend.known.backend.in_flight() == 0));
}

#[test]
fn a_client_goes_where_it_was_unless_that_is_full_down_or_drained() {
    let backends =
        [json!({"name": "a"}), json!({"name": "b", "hard_limit": 1}), json!({"name": "c", "drain": true})];
    let pool = pool(&backends);
    let name = |placed: &Placed| placed.backend.config.name.to_string();
    let held = pool.place(origin(Some("b")), &[], Tick(0)).expect("there is room");
    assert!(held.is_affine && name(&held) == "b");
    let other = pool.place(origin(Some("b")), &[], Tick(0)).expect("there is room elsewhere");
    assert!(!other.is_affine && name(&other) == "a");
    drop((held, other));
    let drained = pool.place(origin(Some("c")), &[], Tick(0)).expect("there is room elsewhere");
    assert!(!drained.is_affine);
    down(&pool, 1);
    let moved = pool.place(origin(Some("b")), &[], Tick(0)).expect("there is room elsewhere");
    assert_eq!(name(&moved), "a");
    assert!(pool.place(origin(Some("gone")), &[], Tick(0)).is_ok());
}

#[test]
fn what_was_tried_is_not_tried_again() {
    let pool = pool(&[json!({"name": "a"}), json!({"name": "b"})]);
    let first = pool.place(origin(None), &[], Tick(0)).expect("there is room");
    let second = pool.place(origin(Some("a")), &[first.index], Tick(0)).expect("there is another");
    assert_ne!(first.index, second.index);
    assert_eq!(pool.place(origin(None), &[0, 1], Tick(0)).expect_err("all were tried"), Unplaced::None);
}

/// The backends that connections get, of some that stay.
fn used(pool: &Pool, from: Origin<'_>) -> Vec<usize> {
    let held: Vec<Placed> = (0..8).map(|_| pool.place(from, &[], Tick(0)).expect("there is room")).collect();
    let mut indices: Vec<usize> = held.iter().map(|placed| placed.index).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

#[test]
fn fault_40_while_one_is_healthy_the_others_get_nothing_and_when_none_is_all_count() {
    let list: Vec<Value> = ["a", "b", "c", "d"].map(|name| json!({"name": name})).into();
    let pool = pool(&list);
    for index in 0..3 {
        down(&pool, index);
        assert_eq!(used(&pool, origin(None)), (index + 1..4).collect::<Vec<_>>());
    }
    assert!(!pool.is_panic(Tick(0)));
    down(&pool, 3);
    assert!(pool.is_panic(Tick(0)));
    assert_eq!(used(&pool, origin(None)), [0, 1, 2, 3], "the fault may be on this side");
    let thresholds = Thresholds { rise: 1, fall: 1 };
    assert!(pool.backends()[2].known.backend.checked(true, thresholds, Tick(1)));
    pool.troubles.fetch_add(1, Relaxed);
    assert!(!pool.is_panic(Tick(1)));
    assert_eq!(used(&pool, origin(None)), [2]);
}

#[test]
fn fault_40_healthy_ones_elsewhere_and_of_other_priorities_come_before_near_ones_that_are_not() {
    // "sa" has the number 2 here.
    let list = [
        json!({"name": "a", "region": "sa"}),
        json!({"name": "b", "region": "sa", "priority": 1}),
        json!({"name": "c", "region": "eu1"}),
        json!({"name": "d", "region": "eu1", "priority": 2, "hard_limit": 8}),
    ];
    let from = Origin { location: Location { country: None, region: Some(Region(2)) }, ..origin(None) };
    for spill in [Spill::Never, Spill::AtSoft, Spill::AtHard] {
        let (pool, from) = (pool(&list), Origin { spill, ..from });
        assert_eq!(used(&pool, from), [0]);
        down(&pool, 0);
        assert_eq!(used(&pool, from), [2]);
        down(&pool, 2);
        assert_eq!(used(&pool, from), [1]);
        down(&pool, 1);
        assert_eq!(used(&pool, from), [3]);
        // The last healthy one is full: a tier that is down as a whole may be so for this side's fault.
        let _all: Vec<Placed> =
            (0..8).map(|_| pool.place(from, &[], Tick(0)).expect("there is room")).collect();
        assert_eq!(pool.place(from, &[], Tick(0)).expect("a last resort").index, 0);
        assert!(pool.preview(from, &[], Tick(0)).expect("a last resort").is_last_resort);
    }
}

#[test]
fn fault_40_one_that_is_down_among_healthy_ones_gets_nothing_however_full_these_are() {
    let list = [json!({"name": "a"}), json!({"name": "b", "hard_limit": 1})];
    let pool = pool(&list);
    down(&pool, 0);
    let _held = pool.place(origin(None), &[], Tick(0)).expect("there is room");
    assert_eq!(pool.place(origin(None), &[], Tick(0)).expect_err("b is full"), Unplaced::Full);
}

/// As if a connection to it had failed.
fn fail(pool: &Pool, index: usize, now: Tick) {
    assert!(pool.backends()[index].known.failed(now), "that is news");
    pool.troubles.fetch_add(1, Relaxed);
}

#[test]
fn fault_40_a_panic_ends_when_the_first_is_back_that_was_out_for_a_time() {
    let list: Vec<Value> = ["a", "b"].map(|name| json!({"name": name})).into();
    let pool = pool(&list);
    fail(&pool, 0, Tick(0));
    assert!(!pool.is_panic(Tick(1)));
    fail(&pool, 1, Tick(2 * SECOND));
    for (second, is_panic) in [(2, true), (9, true), (10, false), (11, false)] {
        assert_eq!(pool.is_panic(Tick(second * SECOND)), is_panic, "{second} s");
    }
    // The count is that of a look at all of them, whatever is asked in between.
    assert_eq!(pool.count_usable(0, Tick(11 * SECOND)).count, 1);
    assert_eq!(pool.count_usable(0, Tick(12 * SECOND)).count, 2);
}

#[test]
fn fault_40_one_connection_alone_tries_a_backend_again_and_no_connection_tries_two_of_them() {
    let list: Vec<Value> = ["a", "b", "c"].map(|name| json!({"name": name})).into();
    let pool = pool(&list);
    fail(&pool, 0, Tick(0));
    fail(&pool, 1, Tick(0));
    let later = Tick(10 * SECOND);
    let place = |tried: &[usize]| pool.place(origin(None), tried, later).expect("there is room");
    let first = place(&[]);
    assert_eq!(first.index, 0, "it is tried");
    assert_eq!(place(&[0]).index, 2, "who has tried one gets one that is healthy");
    let second = place(&[]);
    assert_eq!(second.index, 1);
    let others = [place(&[]), place(&[])];
    assert!(others.iter().all(|placed| placed.index == 2), "{others:?}");
    assert!(first.backend.known.reached(1, later));
    pool.troubles.fetch_add(1, Relaxed);
    drop(first);
    assert_eq!(place(&[]).index, 0, "it is back");
    // However many come at once, one tries it.
    for _ in 0..50 {
        let pool = pool_by(None, &list);
        fail(&pool, 0, Tick(0));
        assert_eq!(pool.usable(later).count, 3);
        let together = std::sync::Barrier::new(4);
        let trying = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    let placed = pool.place(origin(Some("a")), &[], later).expect("there is room");
                    trying.fetch_add(u32::from(placed.index == 0), Relaxed);
                });
            }
        });
        assert_eq!(trying.load(Relaxed), 1);
    }
}

#[test]
fn a_backend_that_is_reached_again_after_it_was_out_starts_slowly_from_then() {
    let pool = pool(&[json!({"name": "a", "slow_start_seconds": 100}), json!({"name": "b"})]);
    let known = &pool.backends()[0].known;
    assert!(!known.reached(1, Tick(0)));
    assert_eq!(known.backend.up_since(), None, "it was never out");
    fail(&pool, 0, Tick(SECOND));
    assert!(known.reached(1, Tick(20 * SECOND)));
    assert_eq!(known.backend.share(100 * SECOND, Tick(70 * SECOND)), 0.5);
    fail(&pool, 0, Tick(300 * SECOND));
    assert!(known.check_passed(Tick(301 * SECOND)), "a check found it");
    assert!(!known.check_passed(Tick(302 * SECOND)));
    assert_eq!(known.backend.up_since(), Some(Tick(301 * SECOND)));
}

#[test]
fn measured_backends_are_as_far_as_their_round_trips_say_and_looked_at_once_a_second() {
    const MS: u64 = 1_000_000;
    let bounds = TierBounds::new([10 * MS, 40 * MS, 100 * MS]);
    let near_by_place = json!({"name": "a", "region": "xx"});
    let pool = pool_by(bounds, &[near_by_place, json!({"name": "b"}), json!({"name": "c"})]);
    // "xx" has the number 2 here.
    let from = Origin { location: Location { country: None, region: Some(Region(2)) }, ..origin(None) };
    let placed = |now| {
        let placed = pool.place(from, &[], now).expect("there is room");
        (placed.index, placed.tier, placed.is_measured)
    };
    let measure = |index: usize, millis: u64, now: Tick| {
        let took = Duration::from_millis(millis);
        (0..3).for_each(|_| pool.backends()[index].known.measured(took, now));
    };
    assert_eq!(placed(Tick(0)), (0, Tier::Region, false));
    measure(0, 150, Tick(1));
    measure(1, 5, Tick(1));
    assert_eq!(placed(Tick(SECOND - 1)), (0, Tier::Region, false), "it is not time to look");
    assert_eq!(placed(Tick(SECOND)), (1, Tier::Country, true));
    let chosen = pool.preview(from, &[], Tick(SECOND)).expect("there is room").chosen;
    assert_eq!((chosen.index, chosen.is_measured), (1, true));
    // What is known of the others is old by now, so that places count again.
    let later = Tick(SECOND + FRESH);
    measure(2, 50, later);
    assert_eq!(placed(later), (0, Tier::Region, false));
}

#[test]
fn weight_zero_gets_nothing_and_no_backends_is_no_panic() {
    let weightless = pool(&[json!({"name": "a", "weight": 0})]);
    assert_eq!(
        weightless.place(origin(Some("a")), &[], Tick(0)).expect_err("it gets nothing"),
        Unplaced::None
    );
    assert_eq!(pool(&[]).place(origin(None), &[], Tick(0)).expect_err("there is none"), Unplaced::None);
}
