//! What calls of gRPC and gRPC-Web are told: the gateway's own answers in their own form, a server's as they are. Clients
//! that others wrote are in the binary's tests.

use serde_json::{Value, json};
use tidegate_gateway::service::GatewaySettings;
use tidegate_testkit::free_port;

use crate::forwarding::Strict;
use crate::support::{Backend, Got, Reaction, TestGateway, config, reply, status, text};

const GRPC: &str = "application/grpc";

/// A call as it may come from a proxy in front, in HTTP/1.1.
fn call(gateway: &TestGateway, path: &str, kind: &str, fields: &str) -> Got {
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: {kind}\r\nconnection: close\r\n");
    gateway.send(&format!("{head}{fields}content-length: 6\r\n\r\n\0\0\0\0\x01x"))
}

fn gateway(servers: [&str; 3], routes: Value) -> TestGateway {
    let upstream =
        |(name, server): (&str, &str)| json!({"name": name, "servers": [server], "retries": {"attempts": 1}});
    let upstreams: Value = ["app", "silent", "away"].into_iter().zip(servers).map(upstream).collect();
    TestGateway::start(Strict, GatewaySettings::default(), &config(upstreams, routes))
}

#[test]
fn each_refusal_of_the_gateway_has_its_code() {
    let (app, silent) = (Backend::named("app"), Backend::start(|_| Reaction::Silence));
    let away = format!("http://127.0.0.1:{}", free_port());
    let routes = json!([
        {"name": "denied", "path": "/denied", "upstream": "app", "policies": ["per-client"]},
        {"name": "keyed", "path": "/keyed", "upstream": "app", "auth": "key"},
        {"name": "closed", "path": "/closed", "upstream": "app",
         "maintenance": {"retry_after_seconds": 30, "body": "back at noon"}},
        {"name": "small", "path": "/small", "upstream": "app", "max_body_bytes": 3},
        {"name": "short", "path": "/short", "upstream": "app", "max_header_bytes": 10},
        {"name": "moved", "path": "/moved", "redirect": {"status": 308, "location": "/new"}},
        {"name": "late", "path": "/late", "upstream": "silent", "timeout_seconds": 0.2},
        {"name": "away", "path": "/away", "upstream": "away"},
        {"name": "fallback", "path": "/fallback", "upstream": "away", "fallback": {"status": 503, "body": "later"}}
    ]);
    let gateway = gateway([&app.url(), &silent.url(), &away], routes);
    for (path, code, message, (name, value)) in [
        ("/denied", "8", "the quota of a policy is used up", ("ratelimit", "\"per-client\";r=0;t=9")),
        ("/keyed", "16", "", ("www-authenticate", "ApiKey")),
        ("/closed", "14", "back at noon", ("retry-after", "30")),
        ("/small", "8", "the request body is larger than 3 bytes", ("", "")),
        ("/short", "13", "the request's header fields are larger than 10 bytes", ("", "")),
        ("/moved", "2", "308 Permanent Redirect", ("location", "/new")),
        ("/late", "4", "the upstream did not answer in time", ("", "")),
        ("/away", "14", "no server of the upstream could be reached", ("", "")),
        ("/fallback", "14", "later", ("", "")),
        ("/nowhere", "12", "no route is for this host, path and method", ("", "")),
        ("/%00", "13", "", ("", "")),
    ] {
        let told = call(&gateway, path, GRPC, "");
        assert_eq!((status(&told), text(&told).as_str()), (200, ""), "{path}");
        let fields = ["content-type", "grpc-status"].map(|name| told.field(name));
        assert_eq!(fields, [Some(GRPC), Some(code)], "{path}");
        let said = told.field("grpc-message").unwrap();
        assert!(said.len() > 3 && (message.is_empty() || said == message), "{path}: {said}");
        let kept = told.field(name).unwrap_or_default();
        assert!(kept.starts_with(value), "{path}: {name} is {kept:?}");
        // The same to everybody else.
        let plain = call(&gateway, path, "application/json", "");
        assert!(status(&plain) >= 300 && plain.field("grpc-status").is_none(), "{path}: {plain:?}");
    }
    assert!(app.got().is_empty());
}

#[test]
fn what_a_server_says_to_a_call_is_passed_as_it_is() {
    let app = Backend::start(|_| reply(429, &["retry-after: 7", "content-type: text/plain"], "theirs"));
    let routes = json!([{"name": "app", "upstream": "app"}]);
    let gateway = gateway([&app.url(); 3], routes);
    let told = call(&gateway, "/x", GRPC, "");
    assert_eq!((status(&told), text(&told).as_str()), (429, "theirs"));
    assert_eq!((told.field("retry-after"), told.field("grpc-status")), (Some("7"), None));
}

#[test]
fn a_script_may_read_how_its_call_of_grpc_web_ended() {
    let kind = "application/grpc-web-text+proto";
    let head = format!("content-type: {kind}");
    let app = Backend::start(move |_| reply(200, &[&head, "grpc-status: 5", "grpc-message: theirs"], ""));
    let cors = json!({"origins": ["https://app.example"], "expose": ["x-kept"]});
    let routes = json!([
        {"name": "denied", "path": "/denied", "upstream": "app", "policies": ["per-client"], "cors": cors},
        {"name": "closed", "path": "/closed", "upstream": "app", "maintenance": {}, "cors": cors},
        {"name": "without", "path": "/without", "upstream": "app"},
        {"name": "app", "upstream": "app", "cors": cors}
    ]);
    let gateway = gateway([&app.url(); 3], routes);
    let ask = |path: &str, kind: &str, origin: &str| {
        let told = call(&gateway, path, kind, &format!("origin: {origin}\r\n"));
        let exposed = told.fields.iter().filter(|(name, _)| name == "access-control-expose-headers");
        let exposed: Vec<String> = exposed.map(|(_, value)| value.clone()).collect();
        let allowed = told.field("access-control-allow-origin").map(str::to_owned);
        (told, allowed, exposed)
    };
    let ours = "https://app.example";
    for (path, code, stated) in [
        ("/denied", "8", "x-kept, ratelimit"),
        ("/closed", "14", "x-kept, retry-after"),
        ("/x", "5", "x-kept"),
    ] {
        let (told, allowed, exposed) = ask(path, kind, ours);
        let fields = ["content-type", "grpc-status"].map(|name| told.field(name));
        assert_eq!((status(&told), fields), (200, [Some(kind), Some(code)]), "{path}");
        assert_eq!(allowed.as_deref(), Some(ours), "{path}");
        assert_eq!(exposed, [stated, "grpc-status, grpc-message"], "{path}");
        let (told, allowed, exposed) = ask(path, kind, "https://evil.example");
        assert_eq!((told.field("grpc-status"), allowed, exposed.len()), (Some(code), None, 0), "{path}");
    }
    let (_, _, exposed) = ask("/without", kind, ours);
    assert!(exposed.is_empty(), "a route without rules adds none: {exposed:?}");
    let (plain, _, exposed) = ask("/denied", "application/json", ours);
    assert_eq!((status(&plain), exposed), (429, vec!["x-kept, ratelimit".to_owned()]));
}
