//! What scripts of other origins may read where a route does CORS, of servers' replies and of the gateway's own.

use std::sync::Arc;

use crate::route_options;
use crate::support::{Backend, Got, TestGateway, config, reply, status, text};
use http::HeaderMap;
use serde_json::{Value, json};
use tidegate_gateway::limits::{Denial, LimitedRequest, Limits, LimitsAnswer, Ruling};
use tidegate_gateway::service::GatewaySettings;

/// Says where a client stands, and denies `/full`.
#[derive(Debug)]
struct Standing;

impl<'r> Limits<LimitedRequest<'r>> for Standing {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let mut fields = HeaderMap::new();
            fields.insert("ratelimit-policy", "\"per-client\";q=1;w=60".parse().unwrap());
            fields.insert("ratelimit", "\"per-client\";r=0;t=60".parse().unwrap());
            let is_full = request.path == "/full";
            if is_full {
                fields.insert("retry-after", "60".parse().unwrap());
            }
            let policies = policies.iter().map(ToString::to_string).collect();
            Ruling { denial: is_full.then_some(Denial::Quota { policies }), fields, ..Ruling::default() }
        })
    }
}

/// The names that a reply exposes, in order.
fn exposed(got: &Got) -> Vec<&str> {
    let mut names: Vec<_> =
        got.field("access-control-expose-headers").into_iter().flat_map(|names| names.split(", ")).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_script_can_read_why_it_is_refused_and_when_it_may_come_again() {
    let server = Backend::start(|_| reply(200, &["x-mine: 1", "access-control-expose-headers: x-other"], ""));
    let cors = json!({"origins": ["https://app.example"], "expose": ["x-mine"]});
    let bare = json!({"origins": ["*"]});
    let route = |path: &str, rest: Value| {
        let mut route = json!({"name": path.trim_start_matches('/'), "path": path, "upstream": "app"});
        route.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        route
    };
    let routes = json!([
        route("/limited", json!({"policies": ["per-client"], "cors": cors})),
        route("/full", json!({"policies": ["per-client"], "cors": cors})),
        route("/key", json!({"auth": "key", "cors": bare})),
        route("/away", json!({"maintenance": {}, "cors": bare})),
        route("/gone", json!({"upstream": "gone", "cors": bare})),
        route("/plain", json!({"cors": bare})),
        route("/servers", json!({"policies": ["per-client"]})),
    ]);
    let mut gone = Backend::named("gone");
    gone.stop();
    let upstreams = json!([
        {"name": "app", "servers": [server.url()]},
        {"name": "gone", "servers": [gone.url()], "eject_after": 1}
    ]);
    let gateway = TestGateway::start(Standing, GatewaySettings::default(), &config(upstreams, routes));
    let ask = |path: &str, origin: &str| {
        gateway
            .send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\norigin: {origin}\r\n\r\n"))
    };
    let limits = ["ratelimit", "ratelimit-policy"];
    for (path, expected, readable) in [
        ("/limited", 200, [&limits[..], &["x-mine"]].concat()),
        ("/full", 429, [&limits[..], &["retry-after", "x-mine"]].concat()),
        ("/key", 401, vec!["www-authenticate"]),
        ("/away", 503, vec!["retry-after"]),
        ("/plain", 200, vec![]),
    ] {
        let got = ask(path, "https://app.example");
        assert_eq!((status(&got), exposed(&got)), (expected, readable), "{path}");
        assert!(got.field("access-control-allow-origin").is_some(), "{path}");
        let vary = got.fields.iter().filter(|(name, value)| name == "vary" && value == "origin").count();
        assert_eq!(vary, usize::from(["/limited", "/full"].contains(&path)), "{path}");
    }
    assert!(matches!(status(&ask("/gone", "https://app.example")), 502 | 503));
    assert!(ask("/gone", "https://app.example").field("access-control-allow-origin").is_some());
    // Of another origin, and where the server does CORS: nothing of it is the gateway's to say.
    let refused = ask("/full", "https://evil.example");
    assert_eq!((status(&refused), exposed(&refused)), (429, vec![]));
    assert_eq!(exposed(&ask("/servers", "https://app.example")), ["x-other"]);
}

#[test]
fn scripts_of_named_origins_may_read_and_others_may_not() {
    let cors = json!({
        "origins": ["https://app.example"], "methods": ["GET", "PUT"], "headers": ["x-mine"], "expose": ["x-kept"],
        "credentials": true, "max_age_seconds": 60
    });
    let (backend, gateway) = route_options::with(json!({"cors": cors}));
    let asked = "access-control-request-method: PUT\r\naccess-control-request-headers: x-mine\r\n";
    let preflight =
        route_options::ask(&gateway, "OPTIONS", "/", &format!("origin: https://app.example\r\n{asked}"));
    assert_eq!(status(&preflight), 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "x-mine"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "60"),
        ("vary", "origin"),
    ] {
        assert_eq!(preflight.field(name), Some(value), "{name}");
    }
    for other in ["https://evil.example", "https://app.example.evil", "http://app.example", "null"] {
        let refused = route_options::ask(&gateway, "OPTIONS", "/", &format!("origin: {other}\r\n{asked}"));
        assert_eq!((status(&refused), refused.field("access-control-allow-origin")), (403, None), "{other}");
        let read = route_options::ask(&gateway, "GET", "/", &format!("origin: {other}\r\n"));
        assert_eq!((status(&read), read.field("access-control-allow-origin")), (200, None), "{other}");
    }
    assert!(backend.got().iter().all(|got| got.line.starts_with("GET ")), "no preflight reaches a server");
    let read = route_options::ask(&gateway, "GET", "/", "origin: https://app.example\r\n");
    assert_eq!(read.field("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(read.field("access-control-expose-headers"), Some("x-kept"));
    // A plain OPTIONS is the server's to answer.
    assert_eq!(text(&route_options::ask(&gateway, "OPTIONS", "/", "")), "OPTIONS / HTTP/1.1");
}
