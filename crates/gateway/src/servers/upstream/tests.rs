//! What an upstream keeps when it changes, whom its breaker blames, and where a further attempt goes.

use serde_json::{Value, json};
use tidegate_algorithms::balance::eligibility::Thresholds;

use super::*;
use crate::config::{Source, read_upstream};
use crate::observed::flow::FlowSet;

fn upstream(document: &Value, now: Tick, before: Option<&Upstream>) -> Upstream {
    let config = read_upstream(document, "", Source::File).expect("an upstream");
    Upstream::new(Arc::new(config), &mut FlowSet::new(1).to_come(std::iter::empty()), 1, now, before)
}

fn up_since(upstream: &Upstream) -> Vec<Option<Tick>> {
    upstream.group.backends().iter().map(|backend| backend.up_since()).collect()
}

#[test]
fn a_server_that_comes_when_others_serve_starts_slowly_and_no_other_does() {
    let one = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
    let two = json!({"name": "a", "servers": ["http://127.0.0.1:1", "http://127.0.0.1:2"]});
    let heavy =
        json!({"name": "a", "servers": ["http://127.0.0.1:1", {"url": "http://127.0.0.1:2", "weight": 3}]});
    let first = upstream(&two, Tick(5), None);
    assert_eq!(up_since(&first), [None, None], "at the start");
    let alone = upstream(&one, Tick(6), Some(&first));
    let beside = upstream(&two, Tick(7), Some(&alone));
    assert_eq!(up_since(&beside), [None, Some(Tick(7))]);
    let changed = upstream(&heavy, Tick(8), Some(&first));
    assert_eq!(up_since(&changed), [None, None], "it was there, at another weight");
}

#[test]
fn a_server_that_comes_when_others_serve_gets_nothing_before_its_first_check() {
    let servers = |list: Value| json!({"name": "a", "servers": list, "check": {"path": "/healthz"}});
    let [one, two, three] = [1, 2, 3].map(|port| format!("http://127.0.0.1:{port}"));
    let usable = |upstream: &Upstream| -> Vec<bool> {
        upstream.group.backends().iter().map(|backend| backend.is_usable(Tick(9))).collect()
    };
    let first = upstream(&servers(json!([one])), Tick(0), None);
    assert_eq!(usable(&first), [true], "a process serves from its first second");
    let next = upstream(&servers(json!([one, two])), Tick(1), Some(&first));
    assert_eq!(usable(&next), [true, false]);
    for _ in 0..10 {
        assert_eq!(next.group.pick(0, &[], Tick(2)).map(|(server, _)| server), Ok(0));
    }
    // An edit before that check forgets nothing; one without any check has it serve.
    let edited = json!([one, {"url": two, "weight": 2}]);
    let again = upstream(&servers(edited), Tick(3), Some(&next));
    assert_eq!(usable(&again), [true, false]);
    let thresholds = Thresholds { rise: 2, fall: 3 };
    assert!(again.group.backends()[1].checked(true, thresholds, Tick(4)));
    assert_eq!(usable(&again), [true, true], "one check is enough");
    let unchecked = json!({"name": "a", "servers": [one, two, three]});
    assert_eq!(usable(&upstream(&unchecked, Tick(5), Some(&again))), [true, true, true]);
    // Where all are new, all are asked until one is known.
    let replaced = upstream(&servers(json!([three])), Tick(6), Some(&first));
    assert_eq!(replaced.group.pick(0, &[], Tick(6)).map(|(server, _)| server), Ok(0));
}

#[test]
fn what_is_known_of_a_server_and_its_upstream_outlives_a_change_of_anything_else() {
    let server = |weight: u32| json!([{"url": "http://127.0.0.1:1", "weight": weight}]);
    let check = json!({"path": "/healthz"});
    let first = upstream(&json!({"name": "a", "servers": server(1), "check": check}), Tick(0), None);
    assert!(first.group.backends()[0].checked(false, Thresholds { rise: 1, fall: 1 }, Tick(1)));
    let open = |upstream: &Upstream| upstream.breaker.as_ref().map(|breaker| breaker.phase());
    for _ in 0..100 {
        let admitted = first.breaker.as_ref().expect("it has one").admit(Tick(1));
        if let Ok(admitted) = admitted {
            admitted.ended(Outcome::failure(0), Tick(1));
        }
    }
    assert_eq!(open(&first), Some(Phase::Open));
    let heavy = json!({"name": "a", "servers": server(9), "check": check, "idle_timeout_seconds": 3});
    let next = upstream(&heavy, Tick(2), Some(&first));
    assert!(!next.group.backends()[0].is_usable(Tick(2)), "it is down");
    assert_eq!((next.group.backends()[0].settings().weight, open(&next)), (9, Some(Phase::Open)));
    let rule = json!({"name": "a", "servers": server(9), "check": check, "breaker": {"open_seconds": 1}});
    assert_eq!(open(&upstream(&rule, Tick(3), Some(&next))), Some(Phase::Closed), "another rule begins anew");
}

#[test]
fn the_budget_and_which_server_failed_last_outlive_a_change_of_anything_else() {
    let with = |servers: Value, least: u64| {
        let retries = json!({"percent": 0, "least_per_second": least});
        json!({"name": "a", "servers": servers, "retries": retries})
    };
    let [one, two] = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
    let first = upstream(&with(json!([one, two]), 1), Tick(0), None);
    let granted = |upstream: &Upstream, now: Tick| upstream.budget().try_attempt(now);
    assert!(granted(&first, Tick(1)));
    assert!(!granted(&first, Tick(1)), "it is spent");
    first.ended(1, true, 0, Tick(1));
    // A server that registers comes first, and the one that failed has another place.
    let joined = json!(["http://127.0.0.1:3", one, {"url": two, "weight": 2}]);
    let next = upstream(&with(joined.clone(), 1), Tick(2), Some(&first));
    assert!(!granted(&next, Tick(2)), "no edit gives a second budget");
    assert_eq!([0, 1, 2].map(|server| next.worked_lately(server)), [true, true, false]);
    let other_rule = upstream(&with(joined, 2), Tick(3), Some(&next));
    assert!(granted(&other_rule, Tick(3)));
}

#[test]
fn connections_are_kept_where_they_would_be_made_in_the_same_way() {
    let first = upstream(&json!({"name": "a", "servers": ["http://127.0.0.1:1"]}), Tick(0), None);
    for (changed, is_kept) in [
        (json!({"name": "a", "servers": [{"url": "http://127.0.0.1:1", "weight": 2}]}), true),
        (json!({"name": "a", "servers": ["https://127.0.0.1:1"]}), false),
        (json!({"name": "a", "servers": ["http://127.0.0.1:1"], "protocol": "http2"}), false),
        (json!({"name": "a", "servers": ["http://127.0.0.1:1"], "sources": ["127.0.0.2"]}), false),
        (json!({"name": "a", "servers": ["http://127.0.0.1:1"], "idle_timeout_seconds": 3}), false),
    ] {
        let next = upstream(&changed, Tick(1), Some(&first));
        assert_eq!(Arc::ptr_eq(&first.pools[0], &next.pools[0]), is_kept, "{changed}");
    }
}

#[test]
fn a_further_attempt_goes_to_a_server_that_works_though_most_are_dead() {
    for balance in ["round_robin", "least_requests", "peak_ewma", "ring_hash"] {
        let servers: Vec<String> = (1..6).map(|port| format!("http://127.0.0.1:{port}")).collect();
        let document = json!({"name": "a", "servers": servers, "balance": balance});
        let five = upstream(&document, Tick(0), None);
        for dead in 0..4 {
            five.ended(dead, true, 0, Tick(1));
        }
        for tried in 0..4 {
            let picked = five.pick_again(7, &[tried], Tick(1)).map(|(server, _)| server);
            assert_eq!(picked, Some(4), "{balance}");
        }
        let (other, _) = five.pick_again(7, &[4], Tick(1)).expect("those that failed are left");
        assert!(other < 4 && five.pick_again(7, &[0, 1, 2, 3, 4], Tick(1)).is_none());
    }
}

#[test]
fn fault_40_what_a_failing_server_does_is_its_own_while_another_one_works() {
    let three = upstream(
        &json!({"name": "a", "servers": ["http://a:1", {"url": "http://b:1", "weight": 0}, "http://c:1"]}),
        Tick(0),
        None,
    );
    let counts = |server: usize, failed: bool| {
        three.ended(server, failed, 7, Tick(0));
        three.counts(server, failed, Tick(0))
    };
    let after_all = || three.breaker.as_ref().expect("it has one").seen(Tick(0)).failed;
    assert!(!counts(2, true), "nobody knows of the others yet");
    assert!(counts(0, true), "one that gets nothing stands for no other one");
    assert!(counts(2, false));
    assert_eq!(after_all(), 1, "it was not this server alone: it works now");
    assert_eq!((counts(0, true), counts(0, true), after_all()), (false, false, 1), "it is this one alone");
    assert_eq!((counts(0, false), counts(0, false), after_all()), (true, true, 2), "it was not, once");
    assert_eq!((counts(0, true), counts(2, true)), (false, true), "all fail");
    assert_eq!((counts(0, true), counts(2, true), counts(2, false)), (true, true, true));
    // Another server made this attempt good.
    three.ended(0, true, 7, Tick(0));
    three.ended(0, false, 7, Tick(0));
    assert_eq!(after_all(), 2);
}

#[test]
fn a_server_that_is_down_is_up_when_its_checks_are_turned_off() {
    let checked = json!({"name": "a", "servers": ["http://127.0.0.1:1"], "check": {"path": "/healthz"}});
    let unchecked = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
    let first = upstream(&checked, Tick(0), None);
    let backend = Arc::clone(&first.group.backends()[0]);
    assert!(backend.checked(false, Thresholds { rise: 1, fall: 1 }, Tick(1)));
    let next = upstream(&unchecked, Tick(2), Some(&first));
    assert!(Arc::ptr_eq(&backend, &next.group.backends()[0]), "it is the same");
    assert!(backend.is_usable(Tick(2)));
}
