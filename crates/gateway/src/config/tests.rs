//! Documents that are read, and documents that are refused: every mistake at once, each with its place.

use serde_json::{Value, json};

use super::*;

fn mistakes(upstream: Value, route: Value) -> Vec<String> {
    match GatewayConfig::check(&[upstream], &[route], &["known"]) {
        Ok(config) => panic!("nothing was found wrong: {config:?}"),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

fn good_upstream() -> Value {
    json!({"name": "app", "servers": ["http://127.0.0.1:3000", {"url": "[::1]:80", "weight": 3}]})
}

fn good_route() -> Value {
    json!({"name": "all", "upstream": "app"})
}

#[test]
fn a_minute_s_file_is_read_with_its_defaults() {
    let config = GatewayConfig::check(&[good_upstream()], &[good_route()], &[]).expect("nothing is wrong");
    let upstream = &config.upstreams[0];
    let targets: Vec<String> = upstream.servers.iter().map(|it| it.backend.target.to_string()).collect();
    assert_eq!(targets, ["127.0.0.1:3000", "[::1]:80"]);
    assert_eq!(upstream.servers[1].backend.weight, 3);
    assert_eq!(upstream.breaker, Some(tidegate_algorithms::breaker::Settings::default()));
    assert_eq!(upstream.retries.attempts, 3);
    assert_eq!(config.routes[0].path, PathPattern::Prefix("".into()));
}

#[test]
fn every_mistake_is_found_at_once_and_has_its_place() {
    let upstream = json!({
        "name": "app", "servers": ["ftp://a", {"url": "http://a/path", "weigth": 1}], "balance": "fair",
        "breaker": {"calls": 10, "seconds": 1, "open_seconds": 0, "first_open_seconds": 61}, "check": {"path": "health"}, "hash_by": "cookie"
    });
    let route = json!({
        "name": "r", "host": ["a b", "*x"], "path": "/a/../b", "method": "get", "upstream": "nowhere",
        "redirect": {"status": 305, "location": "/x"}, "policies": ["unknown"], "strip_prefix": "/z",
        "request_fields": {"set": {"connection": "close"}}, "max_body_bytes": -1
    });
    let found = mistakes(upstream, route);
    for part in [
        "/upstream/0/servers/0 is \"ftp://a\"",
        "/upstream/0/servers/1/weigth is not a known key",
        "/upstream/0/balance is \"fair\"",
        "/upstream/0/breaker/seconds stands beside calls",
        "/upstream/0/breaker/open_seconds is 0",
        "/upstream/0/breaker/first_open_seconds is above open_seconds",
        "/upstream/0/check/path is \"health\"",
        "/upstream/0/hash_by has no effect",
        "/route/0/host/0 is \"a b\"",
        "/route/0/host/1 is \"*x\"",
        "/route/0/path is \"/a/../b\"",
        "/route/0/method/0 is \"get\"",
        "/route/0/redirect stands beside upstream",
        "/route/0/redirect/status is 305",
        "/route/0/strip_prefix is \"/z\"",
        "/route/0/request_fields/set has \"connection\"",
        "/route/0/max_body_bytes is -1",
    ] {
        assert!(found.iter().any(|mistake| mistake.starts_with(part)), "{part} is not among {found:#?}");
    }
}

#[test]
fn names_are_unique_and_references_lead_somewhere() {
    let twice = [good_upstream(), good_upstream()];
    let found = GatewayConfig::check(&twice, &[good_route()], &[]).expect_err("two have one name");
    assert_eq!(found[0].pointer, "/upstream/1/name");
    let mut route = good_route();
    route["upstream"] = json!("ap");
    route["policies"] = json!(["known", "unknown"]);
    let found = mistakes(good_upstream(), route);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("/route/0/upstream is \"ap\"") && found[1].starts_with("/route/0/policies/1")
    );
}

#[test]
fn servers_without_a_file_are_urls() {
    let config =
        GatewayConfig::reverse_proxy(&["http://127.0.0.1:3000".to_owned(), "b.example:80".to_owned()]);
    let config = config.expect("good servers");
    assert_eq!(config.upstreams[0].servers[1].backend.target.to_string(), "b.example:80");
    assert!(config.upstreams[0].check.is_some(), "a breaker may stay open for up to a minute");
    for bad in [
        "foo",
        "b.example",
        "[::1]",
        "foo:",
        "ftp://a",
        "http://a:99999",
        "http://a:0",
        "http://127.0.0.1:0",
        "http://127.0.0.1:99999",
        "http://a:+80",
        "http://a:",
        "http://[fe80::1%25eth0]:80",
        "http://[127.0.0.1]:80",
        "http://a@b:80",
        "http://a:80/path",
    ] {
        assert!(GatewayConfig::reverse_proxy(&[bad.to_owned()]).is_err(), "{bad}");
    }
    for (good, expected) in [
        ("https://a", "a:443"),
        ("http://A:080/", "a:80"),
        ("http://b.example", "b.example:80"),
        ("[::1]:65535", "[::1]:65535"),
        ("https://[::1]", "[::1]:443"),
    ] {
        let config = GatewayConfig::reverse_proxy(&[good.to_owned()]).expect(good);
        assert_eq!(config.upstreams[0].servers[0].backend.target.to_string(), expected);
    }
    assert!(GatewayConfig::reverse_proxy(&[]).is_err());
}

#[test]
fn what_no_route_gets_is_a_mistake() {
    for method in ["TRACE", "CONNECT"] {
        let mut route = good_route();
        route["method"] = json!(["GET", method]);
        let found = mistakes(good_upstream(), route);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("/route/0/method/1 ") && found[0].contains("501"), "{found:?}");
    }
    // Two ways to write one host are one: the second route gets nothing.
    let routes = [
        json!({"name": "a", "host": "a.example", "upstream": "app"}),
        json!({"name": "b", "host": "A.example.", "upstream": "app"}),
    ];
    let found =
        GatewayConfig::check(&[good_upstream()], &routes, &[]).expect_err("the second one never matches");
    assert!(found[0].problem.contains("can never match"), "{found:?}");
}

#[test]
fn sources_are_addresses_from_which_each_server_can_be_reached() {
    let upstream =
        |sources: Value, server: &str| json!({"name": "app", "servers": [server], "sources": sources});
    let read = |sources: Value, server: &str| {
        GatewayConfig::check(&[upstream(sources, server)], &[good_route()], &[])
    };
    let good = read(json!(["10.0.0.5", "2001:db8::5"]), "http://10.0.0.1:80").expect("one of each version");
    assert_eq!(good.upstreams[0].sources.len(), 2);
    assert!(read(json!(["2001:db8::5"]), "http://a.example").is_ok(), "the name may have such an address");
    for (sources, server, pointer) in [
        (json!(["10.0.0.5", "10.0.0.5"]), "http://10.0.0.1", "/upstream/0/sources/1"),
        (json!(["0.0.0.0"]), "http://10.0.0.1", "/upstream/0/sources/0"),
        (json!(["10.0.0.5:80"]), "http://10.0.0.1", "/upstream/0/sources/0"),
        (json!(["2001:db8::5"]), "http://10.0.0.1", "/upstream/0/sources"),
    ] {
        let found = read(sources, server).expect_err("a mistake");
        assert!(found.iter().any(|mistake| mistake.pointer == pointer), "{found:?}");
    }
}
