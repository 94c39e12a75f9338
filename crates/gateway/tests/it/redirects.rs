//! Redirects that keep a request's host, path and query, by bytes on sockets.

use crate::support::{Got, TestGateway, config, status};
use serde_json::json;
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

fn redirecting() -> TestGateway {
    let routes = json!([
        {"name": "same", "redirect": {"status": 308, "location": "https://{host}:8443{uri}"},
         "response_fields": {"set": {"x-why": "tls"}}},
        {"name": "moved", "host": "old.example", "redirect": {"status": 301, "location": "https://new.example/v2{uri}"}},
        {"name": "keyed", "path": "/keyed", "auth": "key", "key_in": ["query:key"],
         "redirect": {"location": "https://{host}{uri}"}}
    ]);
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([]), routes))
}

fn ask(gateway: &TestGateway, host: &str, target: &str) -> Got {
    gateway.send(&format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
}

#[test]
fn a_redirect_keeps_host_path_and_query_as_they_came() {
    let gateway = redirecting();
    for (host, target, location) in [
        ("Shop.Example:80", "/a//b;c=1/%2e?d=%20&e", "https://shop.example:8443/a//b;c=1/?d=%20&e"),
        ("shop.example", "/%C3%A4%2d?", "https://shop.example:8443/%C3%A4%2d?"),
        ("shop.example:81", "http://shop.example:81/x", "https://shop.example:8443/x"),
        ("[::1]:80", "/", "https://[::1]:8443/"),
        ("old.example", "/cart?id=7", "https://new.example/v2/cart?id=7"),
    ] {
        let got = ask(&gateway, host, target);
        assert_eq!(got.field("location"), Some(location), "{host} {target} {}", got.line);
        assert_eq!(status(&got), if host == "old.example" { 301 } else { 308 });
        assert_eq!(got.field("x-why").is_some(), host != "old.example", "the route's changes are made");
    }
    // Whoever is not let in is not sent on, and learns of no place.
    let refused = ask(&gateway, "a", "/keyed?key=secret");
    assert_eq!((status(&refused), refused.field("location")), (401, None));
}

#[test]
fn no_path_leads_a_redirect_to_another_host() {
    let gateway = redirecting();
    for target in [
        "//evil.example/x",
        "///evil.example",
        "/\\evil.example",
        "/\\/evil.example",
        "/@evil.example",
        "/%5cevil.example",
        "/%2fevil.example",
        "/..//evil.example",
        "/./\\evil.example",
        "/x%0d%0aset-cookie:%20a=1",
        "/x?y=%0d%0aset-cookie:%20a=1",
    ] {
        let got = ask(&gateway, "shop.example", target);
        let refused = status(&got) == 400 && got.field("location").is_none();
        let sent = got.field("location").is_some_and(|to| to.starts_with("https://shop.example:8443/"));
        assert!(refused || sent, "{target} {got:?}");
        assert_eq!(got.field("set-cookie"), None, "{target}");
    }
    for host in ["a@evil.example", "evil.example/x", "a\\evil", "a b", "a?b"] {
        let got = ask(&gateway, host, "/");
        assert_eq!((status(&got), got.field("location")), (400, None), "{host}");
    }
}

#[test]
fn a_location_that_keeps_something_elsewhere_is_a_mistake_of_the_file() {
    for location in
        ["{uri}", "//{host}{uri}", "https://{host}.evil.example{uri}", "https://a/{path}", "https://a/{uri}"]
    {
        let route = json!({"name": "r", "redirect": {"location": location}});
        let mistakes = GatewayConfig::check(&[], &[route], &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, "/route/0/redirect/location", "{location}");
        assert!(mistakes[0].accepted.contains("https://{host}{uri}"), "{mistakes:?}");
    }
}
