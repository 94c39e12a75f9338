//! A split: each upstream gets its share of the clients, who stay where they are unless the share's end passes them.

use crate::support::{Backend, TestGateway, config, reply, status, text};
use serde_json::{Value, json};
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

const TENANTS: usize = 1_000;

/// Three upstreams that say their names.
struct Three([Backend; 3]);

impl Three {
    fn start() -> Self {
        Self(["v1", "v2", "v3"].map(Backend::named))
    }

    /// One route in front of them, with these keys.
    fn behind(&self, route: &Value) -> GatewayConfig {
        let named = self.0.iter().zip(["v1", "v2", "v3"]);
        let upstreams = named.map(|(server, name)| json!({"name": name, "servers": [server.url()]}));
        let mut route = route.clone();
        route["name"] = json!("all");
        config(Value::Array(upstreams.collect()), json!([route]))
    }

    fn split(&self, shares: &[(&str, f64)]) -> GatewayConfig {
        self.behind(&json!({"split": of(shares), "split_by": "header:x-tenant"}))
    }
}

fn of(shares: &[(&str, f64)]) -> Value {
    shares.iter().map(|(upstream, percent)| json!({"upstream": upstream, "percent": percent})).collect()
}

fn start(config: &GatewayConfig) -> TestGateway {
    TestGateway::start(Unlimited, GatewaySettings::default(), config)
}

fn ask(gateway: &TestGateway, fields: &str) -> String {
    let got = gateway.send(&format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n"));
    assert_eq!(status(&got), 200);
    text(&got)
}

/// Where each tenant is.
fn places(gateway: &TestGateway) -> Vec<String> {
    (0..TENANTS).map(|tenant| ask(gateway, &format!("x-tenant: t{tenant}\r\n"))).collect()
}

fn count(places: &[String], upstream: &str) -> usize {
    places.iter().filter(|place| *place == upstream).count()
}

/// From where to where tenants went.
fn moves<'p>(before: &'p [String], after: &'p [String]) -> Vec<(&'p str, &'p str)> {
    let both = before.iter().map(String::as_str).zip(after.iter().map(String::as_str));
    both.filter(|(old, new)| old != new).collect()
}

#[test]
fn each_upstream_gets_its_share_and_a_changed_percentage_moves_no_other_client() {
    let three = Three::start();
    let gateway = start(&three.split(&[("v1", 50.0), ("v2", 29.5), ("v3", 20.5)]));
    let first = places(&gateway);
    // Four standard deviations of 1,000 draws.
    for (upstream, expected, deviations) in [("v1", 500, 63), ("v2", 295, 58), ("v3", 205, 51)] {
        let found = count(&first, upstream);
        assert!(found.abs_diff(expected) <= deviations, "{upstream}: {found} of {expected}");
    }
    assert_eq!(places(&gateway), first, "each is where it was");
    gateway.apply(&three.split(&[("v1", 60.0), ("v2", 19.5), ("v3", 20.5)]));
    let second = places(&gateway);
    let moved = moves(&first, &second);
    assert!((62..=138).contains(&moved.len()), "{} of 1,000 moved for a tenth", moved.len());
    assert!(moved.iter().all(|way| *way == ("v2", "v1")), "the third upstream's clients stay: {moved:?}");
    // Nobody is sent to an upstream without a share.
    gateway.apply(&three.split(&[("v1", 0.0), ("v2", 100.0), ("v3", 0.0)]));
    assert_eq!(count(&places(&gateway), "v2"), TENANTS);
}

#[test]
fn from_half_and_half_to_sixty_and_forty_a_tenth_of_the_clients_moves() {
    let three = Three::start();
    let gateway = start(&three.split(&[("v1", 50.0), ("v2", 50.0)]));
    let before = places(&gateway);
    gateway.apply(&three.split(&[("v1", 60.0), ("v2", 40.0)]));
    let after = places(&gateway);
    let moved = moves(&before, &after);
    assert!((62..=138).contains(&moved.len()), "{}", moved.len());
    assert!(moved.iter().all(|way| *way == ("v2", "v1")), "{moved:?}");
}

#[test]
fn a_canary_that_becomes_the_first_of_a_split_keeps_its_clients() {
    let three = Three::start();
    let canary = json!({"upstream": "v2", "percent": 12, "sticky_by": "header:x-tenant"});
    let gateway = start(&three.behind(&json!({"upstream": "v1", "canary": canary})));
    let before = places(&gateway);
    gateway.apply(&three.split(&[("v2", 12.0), ("v1", 88.0)]));
    assert_eq!(places(&gateway), before, "a canary is a split of two");
    gateway.apply(&three.split(&[("v2", 12.0), ("v1", 50.0), ("v3", 38.0)]));
    let after = places(&gateway);
    let moved = moves(&before, &after);
    assert_eq!(moved.len(), count(&after, "v3"));
    assert!(moved.iter().all(|way| *way == ("v1", "v3")), "{moved:?}");
}

#[test]
fn a_changed_percentage_closes_no_breaker_and_no_connection_and_counts_on() {
    let servers = ["v1", "v2"].map(|name| {
        Backend::start(move |got| reply(if got.line.contains("/bad") { 500 } else { 200 }, &[], name))
    });
    let breaker = json!({"calls": 2, "minimum_calls": 2, "failure_percent": 100, "first_open_seconds": 3600,
        "open_seconds": 3600, "slow_seconds": 3600, "trials": 1});
    let with = |first: f64| {
        let named = servers.iter().zip(["v1", "v2"]);
        let upstreams = named.map(|(server, name)| {
            json!({"name": name, "servers": [server.url()], "breaker": {"enabled": false}, "eject_after": 0})
        });
        let split = of(&[("v1", first), ("v2", 100.0 - first)]);
        let rest = json!({"name": "rest", "split": split, "split_by": "header:x-tenant"});
        let mut shop = json!({"name": "shop", "path": "/shop/*", "breaker": breaker});
        shop["split"] = rest["split"].clone();
        config(Value::Array(upstreams.collect()), json!([shop, rest]))
    };
    // One core, so that each request finds the connection of the one before.
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start_on(1, Unlimited, settings, &with(50.0), |gateway| gateway);
    let phases = || gateway.gateway.route_breakers().into_iter().map(|(_, phase)| phase).collect::<Vec<_>>();
    let asked = || gateway.gateway.route_flows().iter().map(|flow| flow.totals.by_class[1]).sum::<u64>();
    let connections = || servers.iter().map(Backend::connections).collect::<Vec<_>>();
    let ask_twenty = || {
        for tenant in 0..20 {
            ask(&gateway, &format!("x-tenant: t{tenant}\r\n"));
        }
    };
    ask_twenty();
    let bad: Vec<u16> = (0..3).map(|_| status(&gateway.get("/shop/bad"))).collect();
    assert_eq!((bad, phases()), (vec![500, 500, 503], vec![Phase::Open]));
    let open = connections();
    assert_eq!(open, [1, 1]);
    gateway.apply(&with(60.0));
    assert_eq!((phases(), status(&gateway.get("/shop/good"))), (vec![Phase::Open], 503));
    ask_twenty();
    assert_eq!((connections(), asked()), (open, 40));
}

#[test]
fn routes_by_header_and_by_cookie_stand_beside_a_split() {
    let three = Three::start();
    let upstreams = three.0.iter().zip(["v1", "v2", "v3"]);
    let upstreams = upstreams.map(|(server, name)| json!({"name": name, "servers": [server.url()]}));
    let routes = json!([
        {"name": "members", "upstream": "v3", "cookie": {"member": "yes"}},
        {"name": "testers", "header": {"x-test": "1"}, "split": of(&[("v2", 0.0), ("v3", 100.0)])},
        {"name": "all", "split": of(&[("v1", 100.0), ("v2", 0.0)])}
    ]);
    let gateway = start(&config(Value::Array(upstreams.collect()), routes));
    for (fields, expected) in [
        ("", "v1"),
        ("x-test: 2\r\ncookie: member=no\r\n", "v1"),
        ("x-test: 1\r\n", "v3"),
        ("cookie: a=b; member=yes\r\n", "v3"),
    ] {
        assert_eq!(ask(&gateway, fields), expected, "{fields}");
    }
}

#[test]
fn what_is_wrong_with_a_split_is_said_with_its_place() {
    let upstreams = ["v1", "v2"].map(|name| json!({"name": name, "servers": ["http://127.0.0.1:1"]}));
    let mistakes = |route: Value| -> Vec<(String, String)> {
        let mut route = route;
        route["name"] = json!("a");
        let found = GatewayConfig::check(&upstreams, &[route], &[]).unwrap_err();
        found.into_iter().map(|mistake| (mistake.pointer, mistake.problem)).collect()
    };
    let good = || of(&[("v1", 50.0), ("v2", 50.0)]);
    let unknown = "is \"v9\", which is not the name of an upstream";
    let own = "is the route's own upstream";
    for (route, pointer, problem) in [
        (json!({"split": of(&[("v1", 50.0), ("v2", 49.9)])}), "", "has percentages whose sum is 99.9"),
        (json!({"split": of(&[("v1", 50.0), ("v1", 50.0)])}), "/1/upstream", "is \"v1\" again"),
        (json!({"split": of(&[("v9", 50.0), ("v2", 50.0)])}), "/0/upstream", unknown),
        (json!({"split": of(&[("v1", 50.0), ("v9", 50.0)])}), "/1/upstream", unknown),
        (json!({"split": of(&[("v1", 100.0)])}), "", "has fewer than two entries"),
        (json!({"split": []}), "", "has fewer than two entries"),
        (json!({"split": "v1"}), "", "is \"v1\""),
        (json!({"split": vec![json!({}); 21]}), "", "has 21 entries"),
        (json!({"split": of(&[("v1", 50.05), ("v2", 49.95)])}), "/0/percent", "is 50.05"),
        (
            json!({"split": [{"upstream": "v1"}, {"upstream": "v2", "percent": 1}]}),
            "/0/percent",
            "is missing",
        ),
        (json!({"split": [{"percent": 1}, {"upstream": "v2", "percent": 1}]}), "/0/upstream", "is missing"),
        (json!({"split": ["v1", {"upstream": "v2", "percent": 1}]}), "/0", "is a string"),
    ] {
        let found = mistakes(route);
        let first = (format!("/route/0/split{pointer}"), problem.to_owned());
        assert_eq!(found.first(), Some(&first), "{found:?}");
    }
    for (route, pointer, problem) in [
        (json!({"split": good(), "upstream": "v1"}), "split", "stands beside upstream"),
        (json!({"split": good(), "respond": {}}), "respond", "stands beside split"),
        (json!({"split": good(), "canary": {"upstream": "v1"}}), "canary", "stands beside split"),
        (json!({"split": good(), "split_by": "address"}), "split_by", "is unknown"),
        (json!({"upstream": "v1", "split_by": "client"}), "split_by", "has no effect"),
        (json!({"split": good(), "mirror": {"upstream": "v1"}}), "mirror/upstream", own),
        (json!({"split": good(), "fallback": {"upstream": "v2"}}), "fallback/upstream", own),
    ] {
        let expected = [(format!("/route/0/{pointer}"), problem.to_owned())];
        assert_eq!(mistakes(route), expected);
    }
}
