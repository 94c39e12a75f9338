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

#[test]
fn fault_40_fewer_than_half_that_are_usable_make_all_count() {
    let list: Vec<Value> = ["a", "b", "c", "d"].map(|name| json!({"name": name})).into();
    let pool = pool(&list);
    down(&pool, 0);
    down(&pool, 1);
    assert!(!pool.is_panic(Tick(0)));
    let indices = |pool: &Pool| {
        let mut held: Vec<Placed> = Vec::new();
        held.extend((0..8).map(|_| pool.place(origin(None), &[], Tick(0)).expect("there is room")));
        let mut indices: Vec<usize> = held.iter().map(|placed| placed.index).collect();
        indices.sort_unstable();
        indices.dedup();
        indices
    };
    assert_eq!(indices(&pool), [2, 3]);
    down(&pool, 2);
    assert!(pool.is_panic(Tick(0)));
    assert_eq!(indices(&pool), [0, 1, 2, 3]);
    let thresholds = Thresholds { rise: 1, fall: 1 };
    for index in 0..3 {
        assert!(pool.backends()[index].known.backend.checked(true, thresholds, Tick(1)));
        pool.troubles.fetch_add(1, Relaxed);
    }
    assert!(!pool.is_panic(Tick(1)));
}

#[test]
fn fault_40_a_panic_ends_when_those_are_back_that_were_out_for_a_time() {
    let list: Vec<Value> = ["a", "b", "c"].map(|name| json!({"name": name})).into();
    let pool = pool(&list);
    let fail = |index: usize, now: Tick| {
        // The others are not asked for how many are out: more than half would never be.
        let known = &pool.backends()[index].known;
        assert_eq!((0..5).filter(|_| known.failed(now, true)).count(), 1);
        pool.troubles.fetch_add(1, Relaxed);
    };
    assert!(!pool.is_panic(Tick(0)));
    fail(0, Tick(0));
    assert!(!pool.is_panic(Tick(1)));
    fail(1, Tick(2 * SECOND));
    for (second, is_panic) in [(2, true), (9, true), (10, false), (11, false)] {
        assert_eq!(pool.is_panic(Tick(second * SECOND)), is_panic, "{second} s");
    }
    // The count is that of a look at all of them, whatever is asked in between.
    assert_eq!(pool.count_usable(0, Tick(11 * SECOND)).count, 2);
    assert!(!pool.is_panic(Tick(12 * SECOND)));
    assert_eq!(pool.count_usable(0, Tick(12 * SECOND)).count, 3);
}

#[test]
fn fault_40_cores_that_fail_to_connect_at_once_take_out_no_more_than_half() {
    let list: Vec<Value> = ["a", "b", "c", "d"].map(|name| json!({"name": name})).into();
    for _ in 0..200 {
        let pool = pool(&list);
        let together = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for backend in pool.backends() {
                let (pool, together) = (&pool, &together);
                scope.spawn(move || {
                    assert!((0..4).all(|_| !pool.failed(backend, Tick(0))));
                    together.wait();
                    pool.failed(backend, Tick(0));
                });
            }
        });
        let out = pool.backends().iter().filter(|it| it.known.backend.is_ejected(Tick(0))).count();
        assert_eq!(out, 2);
    }
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
    let (chosen, _) = pool.preview(from, Tick(SECOND)).expect("there is room");
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
