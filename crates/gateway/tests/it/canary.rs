//! A canary: a part of the requests goes to another upstream, each client stays on its side, and a step back fails nobody.

use crate::support::{Backend, TestGateway, config, status, text};
use serde_json::{Value, json};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

const TENANTS: usize = 400;

fn served(old: &str, new: &str, canary: &Value) -> GatewayConfig {
    let upstreams = json!([{"name": "v1", "servers": [old]}, {"name": "v2", "servers": [new]}]);
    let mut route = json!({"name": "all", "upstream": "v1"});
    if !canary.is_null() {
        route["canary"] = canary.clone();
    }
    config(upstreams, json!([route]))
}

fn ask(gateway: &TestGateway, fields: &str) -> String {
    let got = gateway.send(&format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n"));
    assert_eq!(status(&got), 200);
    text(&got)
}

/// Which tenants are at the canary.
fn at_canary(gateway: &TestGateway) -> Vec<usize> {
    (0..TENANTS).filter(|tenant| ask(gateway, &format!("x-tenant: {tenant}\r\n")) == "v2").collect()
}

#[test]
fn clients_stay_on_their_side_while_the_share_grows_and_all_come_back_at_once() {
    let (old, new) = (Backend::named("v1"), Backend::named("v2"));
    let (old, new) = (old.url(), new.url());
    let share = |percent: u64| json!({"upstream": "v2", "percent": percent, "sticky_by": "header:x-tenant"});
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start(Unlimited, settings, &served(&old, &new, &share(10)));
    let few = at_canary(&gateway);
    // Four standard deviations around 40.
    assert!((16..=64).contains(&few.len()), "{}", few.len());
    assert_eq!(at_canary(&gateway), few, "each is where it was");
    gateway.apply(&served(&old, &new, &share(50)));
    let more = at_canary(&gateway);
    assert!(more.len() > few.len() && few.iter().all(|tenant| more.contains(tenant)));
    gateway.apply(&served(&old, &new, &share(100)));
    assert_eq!(at_canary(&gateway).len(), TENANTS);
    gateway.apply(&served(&old, &new, &Value::Null));
    assert_eq!(at_canary(&gateway), Vec::<usize>::new());
}

#[test]
fn a_field_sends_a_request_to_the_canary_whatever_the_share() {
    let (old, new) = (Backend::named("v1"), Backend::named("v2"));
    let canary = json!({"upstream": "v2", "header": {"x-canary": "always"}});
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start(Unlimited, settings, &served(&old.url(), &new.url(), &canary));
    assert_eq!(ask(&gateway, "x-canary: always\r\n"), "v2");
    assert_eq!((ask(&gateway, ""), ask(&gateway, "x-canary: never\r\n")), ("v1".to_owned(), "v1".to_owned()));
}

#[test]
fn a_cookie_finds_its_route_and_its_canary() {
    let [old, new, members] = ["v1", "v2", "members"].map(Backend::named);
    let named = |name: &str, server: &Backend| json!({"name": name, "servers": [server.url()]});
    let upstreams = json!([named("v1", &old), named("v2", &new), named("members", &members)]);
    // The second one can match, since the first one asks for more.
    let config = config(
        upstreams,
        json!([
            {"name": "members", "upstream": "members", "cookie": {"member": "yes"}},
            {"name": "all", "upstream": "v1", "canary": {"upstream": "v2", "cookie": {"beta": "on"}}}
        ]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    for (fields, expected) in [
        ("", "v1"),
        ("cookie: beta=off\r\n", "v1"),
        ("cookie: a=b; beta=on\r\n", "v2"),
        ("cookie: member=yes; beta=on\r\n", "members"),
        ("cookie: beta=on\r\ncookie: member=no\r\n", "v2"),
        ("cookie: xmember=yes\r\n", "v1"),
    ] {
        assert_eq!(ask(&gateway, fields), expected, "{fields}");
    }
}

#[test]
fn what_is_wrong_with_a_canary_is_said_with_its_place() {
    let upstreams = [json!({"name": "v1", "servers": ["http://127.0.0.1:1"]})];
    let pointers = |route: Value| -> Vec<String> {
        let mistakes = GatewayConfig::check(&upstreams, &[route], &[]).unwrap_err();
        mistakes.into_iter().map(|mistake| mistake.pointer).collect()
    };
    let with = |canary: Value| json!({"name": "a", "upstream": "v1", "canary": canary});
    for (canary, pointer) in [
        (json!({"upstream": "v1", "percent": 1}), "/route/0/canary/upstream"),
        (json!({"upstream": "v2", "percent": 1}), "/route/0/canary/upstream"),
        (json!({"percent": 1}), "/route/0/canary/upstream"),
        (json!({"upstream": "v2"}), "/route/0/canary/percent"),
        (json!({"upstream": "v2", "percent": 101}), "/route/0/canary/percent"),
        (json!({"upstream": "v2", "percent": 0.25}), "/route/0/canary/percent"),
        (json!({"upstream": "v2", "cookie": {"beta": "on; off"}}), "/route/0/canary/cookie/beta"),
        (json!({"upstream": "v2", "percent": 1, "sticky_by": "cookie:a b"}), "/route/0/canary/sticky_by"),
        (json!({"upstream": "v2", "percent": 1, "sticky_by": "address"}), "/route/0/canary/sticky_by"),
    ] {
        let found = pointers(with(canary));
        assert_eq!(found, [pointer], "{found:?}");
    }
    let reply = json!({"name": "a", "respond": {}, "canary": {"upstream": "v1", "percent": 1}});
    assert_eq!(pointers(reply), ["/route/0/canary/upstream"]);
}
