//! A group's picks: by weight, by load, by key, and only of usable backends.

use std::net::Ipv4Addr;

use super::*;
use crate::backend::{BackendSettings, Host, Target};
use tidegate_algorithms::balance::eligibility::Thresholds;
use tidegate_algorithms::time::SECOND;

#[test]
fn weights_hold_while_requests_come_one_after_another() {
    for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::PeakEwma] {
        let group = weighted(balance, &[(5, 100), (1, 100), (0, 100)]);
        let mut picks = [0_u32; 3];
        for number in 0..600 {
            let (index, place) = group.pick(0, &[], Tick(number)).unwrap();
            picks[index] += 1;
            group.succeeded(&group.backends()[index], 1_000_000, Tick(number));
            drop(place);
        }
        assert!(picks[0].abs_diff(500) < 40 && picks[2] == 0, "{balance:?}: {picks:?}");
    }
}

fn group(balance: Balance, hard_limits: &[u32]) -> Group {
    let all: Vec<(u32, u32)> = hard_limits.iter().map(|limit| (1, *limit)).collect();
    weighted(balance, &all)
}

/// A group of backends, each of a weight and a hard limit.
fn weighted(balance: Balance, backends: &[(u32, u32)]) -> Group {
    let backend = |(port, (weight, hard_limit)): (u16, &(u32, u32))| {
        let target = Target { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port };
        let settings = BackendSettings { target, weight: *weight, hard_limit: *hard_limit };
        Arc::new(Backend::new(settings, Tick(0)))
    };
    let backends = (1u16..).zip(backends).map(backend).collect();
    Group::new(backends, GroupSettings { balance, ..GroupSettings::default() }, 1)
}

fn port((_, place): &(usize, Place)) -> u16 {
    place.backend().target().port
}

const ALL: [Balance; 4] = [Balance::RoundRobin, Balance::LeastRequests, Balance::PeakEwma, Balance::RingHash];

#[test]
fn every_policy_fills_all_backends_and_then_says_that_they_are_full() {
    for balance in ALL {
        let group = group(balance, &[2, 3, 1]);
        let mut held = Vec::new();
        for key in 0..6 {
            held.push(group.pick(key, &[], Tick(0)).expect("there is room"));
        }
        assert_eq!(group.pick(7, &[], Tick(0)).unwrap_err(), NoBackend::Full, "{balance:?}");
        held.remove(0);
        assert!(group.pick(7, &[], Tick(0)).is_ok(), "{balance:?}");
    }
}

#[test]
fn an_explained_pick_is_the_one_that_comes_next_and_changes_nothing() {
    for balance in ALL {
        let group = group(balance, &[2, 3, 1, 9]);
        let mut held = Vec::new();
        for key in 0..15 {
            let explained = group.explain(key, Tick(0));
            assert_eq!(explained, group.explain(key, Tick(0)), "{balance:?}");
            let (index, place) = group.pick(key, &[], Tick(0)).expect("there is room");
            assert_eq!(explained.next, Some(index), "{balance:?} {key}: {explained:?}");
            held.push(place);
        }
        let full = group.explain(0, Tick(0));
        assert!(full.next.is_none() && full.candidates.iter().all(|it| it.is_full), "{balance:?}");
    }
}

#[test]
fn what_was_tried_is_not_tried_again() {
    for balance in ALL {
        let group = group(balance, &[9, 9, 9]);
        let mut tried = Vec::new();
        for _ in 0..3 {
            let (index, _place) = group.pick(5, &tried, Tick(0)).expect("one is left");
            assert!(!tried.contains(&index));
            tried.push(index);
        }
        assert_eq!(group.pick(5, &tried, Tick(0)).unwrap_err(), NoBackend::None);
    }
}

#[test]
fn fault_40_a_backend_that_is_out_gets_nothing_while_another_one_is_left() {
    let down = |group: &Group, index: usize| {
        let thresholds = Thresholds { rise: 1, fall: 1 };
        assert!(group.backends()[index].checked(false, thresholds, Tick(0)));
    };
    let eject = |group: &Group, index: usize| {
        assert!((0..5).any(|_| group.failed(&group.backends()[index], Tick(0))));
    };
    for balance in ALL {
        let group = group(balance, &[1_000; 4]);
        down(&group, 0);
        eject(&group, 1);
        let picked = |group: &Group| -> Vec<u16> {
            let mut ports: Vec<u16> = (0..400)
                .filter_map(|key| group.pick(hash(&[key as u8]), &[], Tick(0)).ok())
                .map(|place| port(&place))
                .collect();
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        assert_eq!(picked(&group), [3, 4], "{balance:?}");
        down(&group, 2);
        assert_eq!(picked(&group), [4], "{balance:?}: one is left");
        eject(&group, 3);
        assert_eq!(picked(&group), [2, 4], "{balance:?}: none is left, so those count that are up");
        assert!(group.explain(0, Tick(0)).is_panic);
        down(&group, 1);
        down(&group, 3);
        assert_eq!(picked(&group), [1, 2, 3, 4], "{balance:?}: none is up, so all count");
    }
}

#[test]
fn fault_40_failed_requests_eject_any_number_and_where_all_are_out_all_are_asked() {
    let group = group(Balance::RoundRobin, &[9; 5]);
    for (out, backend) in group.backends().iter().enumerate() {
        assert!(!group.explain(0, Tick(0)).is_panic, "{out} are out");
        assert!((0..5).any(|_| group.failed(backend, Tick(0))));
    }
    let places: Vec<(usize, Place)> = (0..5).filter_map(|_| group.pick(0, &[], Tick(0)).ok()).collect();
    let mut asked: Vec<u16> = places.iter().map(port).collect();
    asked.sort_unstable();
    assert_eq!(asked, [1, 2, 3, 4, 5]);
    assert!(group.backends().iter().all(|backend| backend.is_usable(Tick(10 * SECOND))));
}

#[test]
fn fault_40_a_backend_of_weight_0_stands_for_no_other_one() {
    let thresholds = Thresholds { rise: 1, fall: 1 };
    for balance in ALL {
        // Two were taken out by hand: one is all that is left, so nothing may take that out.
        let group = weighted(balance, &[(1, 1_000), (0, 1_000), (0, 1_000)]);
        let last = Arc::clone(&group.backends()[0]);
        for _ in 0..20 {
            assert!(!group.failed(&last, Tick(0)), "{balance:?}");
        }
        assert_eq!(port(&group.pick(7, &[], Tick(0)).expect("it is asked")), 1, "{balance:?}");
        // Nor may its checks, as they may of any other that is alone.
        assert!(last.checked(false, thresholds, Tick(0)));
        let explained = group.explain(7, Tick(0));
        assert!(explained.is_panic && explained.next == Some(0), "{balance:?}: {explained:?}");
        assert_eq!(port(&group.pick(7, &[], Tick(0)).expect("it is asked")), 1, "{balance:?}");
    }
}

#[test]
fn a_slow_backend_gets_less_by_latency() {
    let group = group(Balance::PeakEwma, &[1_000; 3]);
    group.succeeded(&group.backends()[1], 500 * 1_000_000, Tick(0));
    let picked = (0..300).filter(|key| port(&group.pick(*key, &[], Tick(1)).expect("there is room")) == 2);
    assert_eq!(picked.count(), 0, "of two choices the slow one is never the cheaper");
}
