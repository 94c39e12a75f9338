//! Some of the servers fail and the others work: as long as one does, requests are answered, once it has been noticed that those
//! others do not. FAULTS 40, and decision 0316.

use std::net::SocketAddr;

use crate::support::{Backend, PATIENCE, Reaction, TestGateway, config, reply, status};
use serde_json::{Value, json};
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

const BALANCES: [&str; 4] = ["round_robin", "least_requests", "peak_ewma", "ring_hash"];

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Refusing,
    Silent,
    Failing,
}

impl Wrong {
    const ALL: [Self; 3] = [Self::Refusing, Self::Silent, Self::Failing];

    /// Such servers, and where they are.
    fn servers(self, count: usize) -> (Vec<Backend>, Vec<String>) {
        let backends: Vec<Backend> = match self {
            Self::Refusing => Vec::new(),
            Self::Silent => (0..count).map(|_| Backend::start(|_| Reaction::Silence)).collect(),
            Self::Failing => (0..count).map(|_| Backend::start(|_| reply(500, &[], ""))).collect(),
        };
        let nobody = || SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
        let urls = match self {
            Self::Refusing => (0..count).map(|_| format!("http://{}", nobody())).collect(),
            _ => backends.iter().map(Backend::url).collect(),
        };
        (backends, urls)
    }
}

fn gateway(upstream: Value) -> TestGateway {
    let mut app = json!({"name": "app", "eject_seconds": 3600});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let route = json!({"name": "all", "upstream": "app", "first_byte_timeout_seconds": 2});
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([app]), json!([route])))
}

fn ask(gateway: &TestGateway, count: usize) -> Vec<u16> {
    (0..count).map(|_| status(&gateway.get("/"))).collect()
}

/// `wrong` of so many servers are out of order, and one works.
fn some_are_wrong(balance: &str, kind: Wrong, wrong: usize) {
    const EJECT_AFTER: usize = 2;
    let what = format!("{balance}, {wrong} of {} {kind:?}", wrong + 1);
    let good = Backend::named("good");
    let (_wrong, mut urls) = kind.servers(wrong);
    urls.push(good.url());
    let gateway = gateway(json!({"servers": urls, "balance": balance, "eject_after": EJECT_AFTER}));
    let statuses = ask(&gateway, 100);
    let unanswered: Vec<&u16> = statuses.iter().filter(|status| **status != 200).collect();
    // Each of them can fail so often until it is noticed, and what it does is all that a client is told.
    assert!(unanswered.len() <= wrong * EJECT_AFTER, "{what}: {statuses:?}");
    assert!(!unanswered.contains(&&503), "{what}: the breaker stays closed: {statuses:?}");
    let app = gateway.gateway.upstreams().remove(0);
    assert_eq!(app.breaker, Some(Phase::Closed), "{what}");
    assert!(!app.servers[wrong].1.is_ejected, "{what}");
    for (_, server) in &app.servers[..wrong] {
        assert!(server.failures <= EJECT_AFTER as u64, "{what}: {server:?}");
    }
}

/// The same where checks have found it out.
fn some_are_down(balance: &str, kind: Wrong, wrong: usize) {
    let what = format!("{balance}, {wrong} of {} {kind:?}, checked", wrong + 1);
    let good = Backend::named("good");
    let (_wrong, mut urls) = kind.servers(wrong);
    urls.push(good.url());
    let check = json!({"path": "/", "interval_seconds": 0.05, "timeout_seconds": 2, "rise": 1, "fall": 2});
    let gateway = gateway(json!({"servers": urls, "balance": balance, "check": check}));
    let begun = monotonic();
    while gateway.gateway.upstreams()[0].servers[..wrong].iter().any(|(_, server)| server.is_up) {
        assert!(begun.elapsed() < PATIENCE, "{what}: the checks fail");
        std::thread::yield_now();
    }
    let statuses = ask(&gateway, 100);
    assert!(statuses.iter().all(|status| *status == 200), "{what}: {statuses:?}");
}

/// Each row in a thread of its own, since silent servers take their time.
fn for_each_row(check: fn(&str, Wrong, usize)) {
    std::thread::scope(|scope| {
        for balance in BALANCES {
            for kind in Wrong::ALL {
                scope.spawn(move || (1..=3).for_each(|wrong| check(balance, kind, wrong)));
            }
        }
    });
}

#[test]
fn fault_40_while_one_server_works_no_client_hears_of_the_others_once_they_were_noticed() {
    for_each_row(some_are_wrong);
}

#[test]
fn fault_40_while_one_server_is_up_none_that_is_down_is_asked() {
    for_each_row(some_are_down);
}

/// More servers than the breaker waits for calls before it judges.
#[test]
fn fault_40_one_of_many_servers_is_enough() {
    some_are_wrong("round_robin", Wrong::Failing, 30);
    some_are_wrong("least_requests", Wrong::Refusing, 30);
}

/// Until they are ejected, three of four requests need a further attempt: far more than the budget is for. Since nobody has any work of
/// an attempt that is refused, they need no leave of it.
#[test]
fn fault_40_servers_that_have_just_died_cost_no_client_its_reply_for_lack_of_budget() {
    for balance in BALANCES {
        let good = Backend::named("good");
        let (_none, mut urls) = Wrong::Refusing.servers(3);
        urls.push(good.url());
        // None is ever ejected, so that all of a hundred requests meet the dead ones.
        let retries = json!({"percent": 0, "least_per_second": 0});
        let gateway =
            gateway(json!({"servers": urls, "balance": balance, "eject_after": 0, "retries": retries}));
        let statuses = ask(&gateway, 100);
        // The three attempts of the first request may have been at the three dead ones. After that it is known who works.
        let unanswered = statuses.iter().filter(|status| **status != 200).count();
        assert!(unanswered <= 1, "{balance}: {statuses:?}");
        assert_eq!(good.got().len(), statuses.len() - unanswered, "{balance}: each of them once");
    }
}

#[test]
fn fault_40_servers_that_are_asked_again_and_again_while_they_refuse_cost_no_client_its_reply() {
    let good = [Backend::named("good"), Backend::named("good")];
    let (_none, mut urls) = Wrong::Refusing.servers(2);
    urls.extend(good.iter().map(Backend::url));
    // They come back far more often than anybody's, and far more often than the budget is for.
    let gateway = gateway(json!({"servers": urls, "eject_seconds": 0.02}));
    let ejections = || gateway.gateway.upstreams()[0].servers.iter().map(|(_, it)| it.ejections).min();
    let wrong = || gateway.gateway.upstreams()[0].servers[..2].iter().map(|(_, it)| it.ejections).min();
    let begun = monotonic();
    while wrong() < Some(5) {
        assert!(begun.elapsed() < PATIENCE, "they come back, and are out again");
        let statuses = ask(&gateway, 20);
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    }
    assert_eq!(ejections(), Some(0), "none that works is out");
    let app = gateway.gateway.upstreams().remove(0);
    assert_eq!(app.breaker, Some(Phase::Closed));
    // Once out, one failed request is enough each time.
    for (_, server) in &app.servers[..2] {
        assert!(server.failures <= 4 + server.ejections, "{server:?}");
    }
}

/// The last one that works fails, too: nobody is left to be spared.
#[test]
fn fault_40_where_all_fail_all_are_asked_and_the_breaker_opens() {
    let bad: Vec<Backend> = (0..4).map(|_| Backend::start(|_| reply(500, &[], ""))).collect();
    let urls: Vec<String> = bad.iter().map(Backend::url).collect();
    let breaker = json!({"first_open_seconds": 60});
    let app = json!({"servers": urls, "balance": "round_robin", "eject_after": 2, "breaker": breaker});
    let gateway = gateway(app);
    let statuses = ask(&gateway, 40);
    // The first three were the servers' own, as far as was known.
    assert_eq!(statuses.iter().filter(|status| **status == 500).count(), 23, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&503));
    assert!(bad.iter().all(|server| server.got().len() >= 4), "all in turn, ejected or not");
    assert_eq!(gateway.gateway.upstreams()[0].breaker, Some(Phase::Open));
}
