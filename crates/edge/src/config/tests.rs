//! Documents of the edge: what they end as, and every mistake with its place.

use serde_json::{Value, json};

use super::*;
use tidegate_algorithms::balance::region::Spill;

fn pointers<T: std::fmt::Debug>(read: Result<T, Vec<Mistake>>) -> Vec<String> {
    read.expect_err("it has mistakes").into_iter().map(|mistake| mistake.pointer).collect()
}

#[test]
fn a_backend_has_the_defaults_of_the_registration_api() {
    let read = BackendConfig::read(&json!({"name": "a", "address": "10.0.0.7:80"}), "").expect("it is good");
    assert_eq!((read.soft_limit, read.hard_limit, read.weight, &*read.app), (100, 150, 1, DEFAULT_APP));
    assert_eq!(read.check, Some(CheckConfig::default()));
    let small = BackendConfig::read(&json!({"name": "a", "address": "b:1", "hard_limit": 5}), "")
        .expect("it is good");
    assert_eq!((small.soft_limit, small.hard_limit), (5, 5));
    let large = BackendConfig::read(&json!({"name": "a", "address": "b:1", "soft_limit": 500}), "")
        .expect("it is good");
    assert_eq!((large.soft_limit, large.hard_limit), (500, 500));
    let off = json!({"name": "a", "address": "b:1", "check": {"kind": "off"}});
    assert_eq!(BackendConfig::read(&off, "").expect("it is good").check, None);
}

#[test]
fn every_mistake_of_a_backend_has_its_place() {
    let wrong = json!({
        "name": "A", "app": "", "address": "10.0.0.300:80", "region": 7, "country": "BRA", "weight": -1,
        "soft_limit": 0, "hard_limit": 0, "priority": 101, "drain": "yes", "slow_start_seconds": -1,
        "check": {"kind": "icmp", "path": "x", "interval_seconds": 0, "fall": 0, "what": 1}, "ip": "x",
    });
    let mut found = pointers(BackendConfig::read(&wrong, "/b"));
    found.sort();
    assert_eq!(
        found,
        [
            "/b/address",
            "/b/app",
            "/b/check/fall",
            "/b/check/interval_seconds",
            "/b/check/kind",
            "/b/check/path",
            "/b/check/what",
            "/b/country",
            "/b/drain",
            "/b/hard_limit",
            "/b/ip",
            "/b/name",
            "/b/priority",
            "/b/region",
            "/b/slow_start_seconds",
            "/b/soft_limit",
            "/b/weight"
        ]
    );
    let above = json!({"name": "a", "address": "b:1", "soft_limit": 9, "hard_limit": 8});
    assert_eq!(pointers(BackendConfig::read(&above, "")), ["/soft_limit"]);
}

#[test]
fn addresses_are_hosts_and_ports() {
    for (text, read) in [
        ("10.0.0.7:80", Some("10.0.0.7:80")),
        ("[::1]:80", Some("[::1]:80")),
        ("DB.Internal:5432", Some("db.internal:5432")),
        ("::1:80", None),
        ("[10.0.0.7]:80", None),
        ("10.0.0:80", None),
        ("a:0", None),
        ("a:+1", None),
        ("a:65536", None),
        ("a b:1", None),
        (":80", None),
        ("a", None),
    ] {
        assert_eq!(address(text).map(|target| target.to_string()).as_deref(), read, "{text}");
    }
}

#[test]
fn a_listener_needs_an_address_and_nothing_else() {
    let read = ListenerConfig::read(&json!({"listen": "127.0.0.1:1"}), "").expect("it is good");
    assert_eq!(read, ListenerConfig::new("127.0.0.1:1".parse().expect("an address")));
    let all = json!({
        "listen": "[::]:443", "app": "web", "server_names": [{"names": ["*.Shop.example"], "app": "shop"}],
        "affinity": "server_name", "spill": "at-soft", "connect_seconds": 0.5, "idle_seconds": 5,
        "longest_seconds": 60, "on_unhealthy": "close", "proxy_protocol_to": "v2", "proxy_protocol_from": ["10.0.0.0/8"],
    });
    let read = ListenerConfig::read(&all, "").expect("it is good");
    assert_eq!(
        (read.spill, read.on_unhealthy, read.affinity),
        (Spill::AtSoft, OnUnhealthy::Close, Affinity::ServerName)
    );
    assert!(read.reads_server_name());
    let wrong = json!({
        "app": "A", "server_names": [{"names": ["a*b"], "app": "x"}, {"names": [], "app": "y"}, 7], "affinity": "x",
        "spill": "x", "connect_seconds": 0, "idle_seconds": 0, "longest_seconds": 1e9, "on_unhealthy": "x",
        "proxy_protocol_to": "v3", "proxy_protocol_from": ["x"], "tls_key": "k", "port": 1,
    });
    let mut found = pointers(ListenerConfig::read(&wrong, ""));
    found.sort();
    assert_eq!(
        found,
        [
            "/affinity",
            "/app",
            "/connect_seconds",
            "/idle_seconds",
            "/listen",
            "/longest_seconds",
            "/on_unhealthy",
            "/port",
            "/proxy_protocol_from/0",
            "/proxy_protocol_to",
            "/server_names/0/names/0",
            "/server_names/1/names",
            "/server_names/2",
            "/spill",
            "/tls_key"
        ]
    );
}

#[test]
fn a_server_name_leads_to_the_most_exact_app() {
    let names = json!([
        {"names": ["*.example"], "app": "all"},
        {"names": ["*.shop.example", "b.example"], "app": "shop"},
    ]);
    let read = ListenerConfig::read(&json!({"listen": "127.0.0.1:1", "server_names": names}), "")
        .expect("it is good");
    for (name, app) in [
        (None, DEFAULT_APP),
        (Some("other"), DEFAULT_APP),
        (Some("example"), DEFAULT_APP),
        (Some(".example"), DEFAULT_APP),
        (Some("a.example"), "all"),
        (Some("b.example"), "shop"),
        (Some("a.shop.example"), "shop"),
        (Some("shop.example"), "all"),
    ] {
        assert_eq!(&**read.app_for(name), app, "{name:?}");
    }
}

#[test]
fn a_place_is_of_networks_or_of_countries() {
    for good in [
        json!({"networks": ["127.1.0.0/16", "2001:db8::/32"], "country": "br", "region": "sa"}),
        json!({"networks": ["10.0.0.1"], "region": "sa"}),
        json!({"countries": ["BR", "AR"], "region": "sa"}),
    ] {
        assert!(PlaceConfig::read(&good, "").is_ok(), "{good}");
    }
    for (wrong, place) in [
        (json!({"region": "sa"}), "/networks"),
        (json!({"networks": ["10.0.0.1"], "countries": ["BR"], "region": "sa"}), "/networks"),
        (json!({"networks": ["10.0.0.1"]}), "/region"),
        (json!({"countries": ["BR"], "country": "BR", "region": "sa"}), "/country"),
        (json!({"countries": ["BR", "X"], "region": "sa"}), "/countries/1"),
        (json!({"networks": ["10.0.0.0/33"], "region": "sa"}), "/networks/0"),
    ] {
        assert_eq!(pointers(PlaceConfig::read(&wrong, "")), [place], "{wrong}");
    }
}

#[test]
fn names_are_the_backends_own() {
    let backend = |name: &str| json!({"name": name, "address": "a:1"});
    let list: Vec<Value> = ["a", "b", "a"].map(backend).into();
    assert_eq!(pointers(check(&list, &[])), ["/edge/backend/2/name"]);
    assert_eq!(check(&list[..2], &[]).expect("they are good").0.len(), 2);
}

#[test]
fn a_stored_place_has_a_name_and_one_of_the_file_has_none() {
    let place = json!({"name": "offices", "networks": ["10.0.0.0/8"], "region": "sa"});
    let (name, read) = PlaceConfig::read_named(&place, "").expect("it is good");
    assert_eq!((&*name, read.region.as_deref()), ("offices", Some("sa")));
    assert_eq!(pointers(PlaceConfig::read(&place, "")), ["/name"]);
    let (nameless, called) = (json!({"countries": ["BR"], "region": "sa"}), json!({"name": "file:0"}));
    assert_eq!(pointers(PlaceConfig::read_named(&nameless, "/p")), ["/p/name"]);
    assert_eq!(pointers(PlaceConfig::read_named(&called, "/p")), ["/p/name"]);
}
