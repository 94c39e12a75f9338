//! What a route may be told to do with requests and replies, each option on real sockets.

use std::io::{Read, Write};

use crate::support;
use crate::support::{Backend, Got, Reaction, TestGateway, config, reply, status, text};
use http::Method;
use serde_json::{Value, json};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::explain::Question;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::{ClientField, GatewaySettings, TraceGuard};

/// A gateway with this route in front of a backend that says the line that it was asked.
pub(crate) fn with(route: Value) -> (Backend, TestGateway) {
    let backend = Backend::start(|got| {
        reply(200, &["x-server: secret", "x-kept: 1", "access-control-allow-origin: *"], &got.line)
    });
    let gateway = in_front_of(&backend, route);
    (backend, gateway)
}

fn in_front_of(backend: &Backend, route: Value) -> TestGateway {
    let mut all = json!({"name": "all", "upstream": "app"});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    let upstream = json!([{"name": "app", "servers": [backend.url()], "retries": {"attempts": 1}}]);
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstream, json!([all])))
}

pub(crate) fn ask(gateway: &TestGateway, method: &str, target: &str, fields: &str) -> Got {
    gateway.send(&format!("{method} {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n"))
}

#[test]
fn a_path_is_rewritten() {
    for (route, target, expected) in [
        (json!({"path": "/api/*", "strip_prefix": "/api"}), "/api/x?y", "GET /x?y HTTP/1.1"),
        (
            json!({"path": "/api/*", "strip_prefix": "/api", "add_prefix": "/v2"}),
            "/api/x",
            "GET /v2/x HTTP/1.1",
        ),
        (json!({"add_prefix": "/v2"}), "/x/", "GET /v2/x/ HTTP/1.1"),
        (json!({"replace_path": "/fixed"}), "/any/path?y=1", "GET /fixed?y=1 HTTP/1.1"),
        (json!({"path": "/old", "replace_path": "/"}), "/old", "GET / HTTP/1.1"),
    ] {
        let (_backend, gateway) = with(route.clone());
        assert_eq!(text(&ask(&gateway, "GET", target, "")), expected, "{route}");
    }
}

#[test]
fn a_server_behind_a_stripped_prefix_is_told_of_it_and_its_redirects_lead_back() {
    let backend = Backend::start(|_| reply(302, &["location: /login"], ""));
    let gateway = in_front_of(&backend, json!({"path": "/api/*", "strip_prefix": "/api"}));
    let moved = ask(&gateway, "GET", "/api/x", "x-forwarded-prefix: /evil\r\n");
    assert_eq!((status(&moved), moved.field("location")), (302, Some("/api/login")));
    assert_eq!(backend.got()[0].field("x-forwarded-prefix"), Some("/api"));
}

#[test]
fn fields_are_added_set_and_removed_both_ways() {
    let edits = json!({
        "request_fields": {"add": {"x-add": "2"}, "set": {"x-set": "new", "host": "inner"}, "remove": ["x-gone"]},
        "response_fields": {"add": {"x-kept": "2"}, "set": {"x-frame-options": "DENY"}, "remove": ["x-server"]},
    });
    let (backend, gateway) = with(edits);
    let reply = ask(&gateway, "GET", "/", "x-add: 1\r\nx-set: old\r\nx-gone: 1\r\n");
    let values = |got: &Got, name: &str| -> Vec<String> {
        got.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    };
    let got = &backend.got()[0];
    assert_eq!(
        (values(got, "x-add"), values(got, "x-set")),
        (vec!["1".into(), "2".into()], vec!["new".into()])
    );
    assert_eq!((values(got, "host"), values(got, "x-gone")), (vec!["inner".into()], vec![]));
    assert_eq!(values(got, "x-forwarded-host"), ["a"]);
    assert_eq!(
        (values(&reply, "x-kept"), values(&reply, "x-server")),
        (vec!["1".into(), "2".into()], vec![])
    );
    assert_eq!(values(&reply, "x-frame-options"), ["DENY"]);
}

#[test]
fn heads_and_bodies_are_capped() {
    let (backend, gateway) = with(json!({"max_header_bytes": 200, "max_body_bytes": 1_000}));
    assert_eq!(status(&ask(&gateway, "GET", "/", &format!("x: {}\r\n", "y".repeat(100)))), 200);
    assert_eq!(status(&ask(&gateway, "GET", "/", &format!("x: {}\r\n", "y".repeat(200)))), 431);
    let sized = |size: usize| format!("content-length: {size}\r\n\r\n{}", "z".repeat(size));
    let send =
        |rest: &str| gateway.send(&format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{rest}"));
    assert_eq!(status(&send(&sized(1_000))), 200);
    assert_eq!(status(&send(&sized(1_001))), 413);
    // Without a length: counted as it comes.
    let chunk = format!("1f4\r\n{}\r\n", "z".repeat(500));
    let chunked =
        |count: usize| format!("transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(count));
    assert_eq!(status(&send(&chunked(2))), 200);
    assert_eq!(status(&send(&chunked(3))), 413);
    let whole = backend.got().iter().filter(|got| got.body.len() > 1_000).count();
    assert_eq!(whole, 0, "no server got more than it should");
}

#[test]
fn a_route_out_of_service_says_so_to_all_but_some() {
    let body = json!({"retry_after_seconds": 120, "body": "<p>soon</p>", "content_type": "text/html"});
    let (backend, gateway) = with(json!({"maintenance": body}));
    let reply = ask(&gateway, "GET", "/", "");
    assert_eq!((status(&reply), text(&reply)), (503, "<p>soon</p>".to_owned()));
    assert_eq!((reply.field("retry-after"), reply.field("content-type")), (Some("120"), Some("text/html")));
    assert!(backend.got().is_empty());
    for open in [json!({"allow": ["10.0.0.0/8", "127.0.0.0/8"]}), json!({"enabled": false})] {
        let (_backend, gateway) = with(json!({"maintenance": open}));
        assert_eq!(status(&ask(&gateway, "GET", "/", "")), 200, "{open}");
    }
}

fn explained(gateway: &TestGateway, method: Method, fields: &[(&str, &str)]) -> Value {
    let fields = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let question = Question {
        method,
        host: "a".to_owned(),
        target: "/".parse().unwrap(),
        fields: fields.collect(),
        client: "127.0.0.1".parse().unwrap(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(gateway.gateway.explain(question)).unwrap();
    serde_json::to_value(answer).unwrap()
}

#[test]
fn an_explanation_says_that_a_preflight_is_not_asked_for_a_key() {
    let (_backend, gateway) = with(json!({"auth": "key", "skip_auth_preflight": true}));
    let asks = [("origin", "https://app.example"), ("access-control-request-method", "GET")];
    let answer = explained(&gateway, Method::OPTIONS, &asks);
    assert_eq!(answer["key"], json!({"outcome": "a preflight is not asked"}), "{answer}");
    assert!(answer["action"]["forward"]["next"].is_string(), "{answer}");
    let answer = explained(&gateway, Method::OPTIONS, &asks[..1]);
    assert_eq!(answer["key"], json!({"outcome": "no_key"}), "{answer}");
}

/// It named a server while clients were told 503.
#[test]
fn an_explanation_says_what_clients_are_told_before_any_server_is_asked() {
    let cors = json!({"origins": ["https://app.example"]});
    let (_backend, gateway) =
        with(json!({"maintenance": {}, "fallback": {"status": 200}, "auth": "key", "cors": cors}));
    assert_eq!(status(&ask(&gateway, "GET", "/", "")), 503);
    let answer = explained(&gateway, Method::GET, &[]);
    assert_eq!(answer["action"], json!({"reply": {"status": 503, "because_of": "maintenance"}}), "{answer}");
    assert!(answer["route"] == "all" && answer["key"].is_null(), "nobody is asked for a key: {answer}");

    let open = json!({"maintenance": {"allow": ["127.0.0.1"]}, "fallback": {"status": 218}, "cors": cors,
        "max_header_bytes": 200});
    let (_backend, gateway) = with(open);
    assert_eq!(status(&ask(&gateway, "GET", "/", "")), 200);
    let forward = &explained(&gateway, Method::GET, &[])["action"]["forward"];
    assert!(forward["next"].is_string() && forward["fallback"] == json!({"status": 218}), "{forward}");

    let asks = [("origin", "https://app.example"), ("access-control-request-method", "GET")];
    let answer = explained(&gateway, Method::OPTIONS, &asks);
    assert_eq!(answer["action"], json!({"reply": {"status": 204, "because_of": "preflight"}}));
    let answer = explained(&gateway, Method::GET, &[("x", &"y".repeat(200))]);
    assert_eq!(answer["action"], json!({"reply": {"status": 431, "because_of": "head_too_large"}}));
}

#[test]
fn a_redirect_and_a_fixed_reply_reach_no_server() {
    for redirect in [301, 302, 303, 307, 308] {
        let route =
            json!({"name": "r", "redirect": {"status": redirect, "location": "https://new.example/"}});
        let gateway =
            TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([]), json!([route])));
        let reply = ask(&gateway, "GET", "/x", "");
        assert_eq!((status(&reply), reply.field("location")), (redirect, Some("https://new.example/")));
    }
}

#[test]
fn a_fallback_stands_in_for_the_gateways_own_errors_and_not_for_the_servers() {
    let fallback = json!({"fallback": {"status": 200, "body": "[]", "content_type": "application/json"}});
    let gone = Backend::start(|_| Reaction::Last(Vec::new()));
    let gateway = in_front_of(&gone, fallback.clone());
    let reply = ask(&gateway, "GET", "/", "");
    assert_eq!((status(&reply), text(&reply)), (200, "[]".to_owned()));
    assert_eq!(reply.field("content-type"), Some("application/json"));
    let failing = Backend::start(|_| support::reply(500, &[], "mine"));
    let gateway = in_front_of(&failing, fallback);
    let reply = ask(&gateway, "GET", "/", "");
    assert_eq!((status(&reply), text(&reply)), (500, "mine".to_owned()));
}

#[test]
fn a_reply_that_stops_coming_is_cut_after_its_idle_time() {
    let stalled =
        Backend::start(|_| Reaction::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec()));
    let gateway = in_front_of(&stalled, json!({"idle_timeout_seconds": 0.2}));
    let mut client = gateway.connect();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received.ends_with(b"\r\n\r\nabc"), "{}", received.escape_ascii());
}

#[test]
fn anybodys_scripts_may_read_but_not_for_the_user() {
    let (_backend, gateway) = with(json!({"cors": {"origins": ["*"]}}));
    let read = ask(&gateway, "GET", "/", "origin: https://any.example\r\n");
    assert_eq!((read.field("access-control-allow-origin"), read.field("vary")), (Some("*"), None));
    for (options, pointer) in [
        (json!({"cors": {"origins": ["*"], "credentials": true}}), "cors/credentials"),
        (json!({"cors": {"origins": []}}), "cors/origins"),
        (json!({"cors": {"origins": ["*", "https://a"]}}), "cors/origins/0"),
        (json!({"cors": {"origins": ["https://a/"]}}), "cors/origins/0"),
        (json!({"cors": {"origins": ["https://A"]}}), "cors/origins/0"),
        (json!({"cors": {"origins": ["https://*.a.example"]}}), "cors/origins/0"),
        (json!({"cors": {"origins": ["https://a.example:443"]}}), "cors/origins/0"),
        (json!({"cors": {"origins": ["http://b.example:8080", "http://a.example:80"]}}), "cors/origins/1"),
        (json!({"cors": {"origins": ["https://a"], "headers": ["a b"]}}), "cors/headers/0"),
        (json!({"maintenance": {"allow": ["10.0.0.0/40"]}}), "maintenance/allow/0"),
        (json!({"maintenance": {"retry_after_seconds": 0}}), "maintenance/retry_after_seconds"),
        (json!({"replace_path": "/a/../b"}), "replace_path"),
        (json!({"replace_path": "/a", "add_prefix": "/b"}), "replace_path"),
        (json!({"max_header_bytes": 100_000}), "max_header_bytes"),
    ] {
        let mut route = json!({"name": "r", "upstream": "app"});
        route.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let upstream = json!({"name": "app", "servers": ["a:80"]});
        let mistakes = GatewayConfig::check(&[upstream], &[route], &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, format!("/route/0/{pointer}"), "{options}");
    }
}

#[test]
fn a_route_is_found_by_its_hosts_and_by_the_query() {
    let fixed = |name: &str, rest: Value| {
        let mut route = json!({"name": name, "respond": {"body": name}});
        route.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        route
    };
    let routes = json!([
        fixed("all", json!({})),
        fixed("below", json!({"host": "*.example.com"})),
        fixed("deeper", json!({"host": "*.shop.example.com"})),
        fixed("exact", json!({"host": ["a.example.com", "b.example.com"]})),
        fixed("beta", json!({"host": "b.example.com", "query": {"version": "2 beta"}})),
        fixed("both", json!({"host": "b.example.com", "query": {"version": "2 beta", "x": ""}}))
    ]);
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([]), routes));
    for (host, target, expected) in [
        ("other", "/", "all"),
        ("example.com", "/", "all"),
        ("c.example.com", "/x", "below"),
        ("C.Example.com:8080", "/", "below"),
        ("x.shop.example.com", "/", "deeper"),
        ("shop.example.com", "/", "below"),
        ("a.example.com", "/?version=2+beta", "exact"),
        ("b.example.com", "/?version=2", "exact"),
        ("b.example.com", "/?version=2+beta", "beta"),
        ("b.example.com", "/?y=1&version=2%20beta", "beta"),
        ("b.example.com", "/?VERSION=2+beta", "exact"),
        ("b.example.com", "/?x&version=2+beta", "both"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(text(&gateway.send(&request)), expected, "{host}{target}");
    }
}

/// Who the client is decides whether a route out of service lets it pass, and is what servers are told.
#[test]
fn fault_48_a_client_is_who_trusted_proxies_saw_and_never_who_it_says() {
    let backend = Backend::start(|got| {
        let lines = got.fields.iter().filter(|(name, _)| name == "x-forwarded-for");
        reply(200, &[], &lines.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", "))
    });
    let upstream = json!([{"name": "app", "servers": [backend.url()]}]);
    let route = json!([{"name": "all", "upstream": "app", "maintenance": {"allow": ["203.0.113.7", "2001:db8::/32"]}}]);
    let config = config(upstream, route);
    for (trusted_hops, stated, expected) in [
        (0, "203.0.113.7", None),
        (1, "203.0.113.7", Some("203.0.113.7, 127.0.0.1")),
        (1, "6.6.6.6, 203.0.113.7", Some("6.6.6.6, 203.0.113.7, 127.0.0.1")),
        (1, "203.0.113.7, 6.6.6.6", None),
        (1, "6.6.6.6, [2001:db8::1]:443", Some("6.6.6.6, [2001:db8::1]:443, 127.0.0.1")),
        (1, "203.0.113.7, nobody", None),
        (2, "203.0.113.7, 10.0.0.1", Some("203.0.113.7, 10.0.0.1, 127.0.0.1")),
        (2, "203.0.113.7", None),
    ] {
        let settings = GatewaySettings { trusted_hops, ..GatewaySettings::default() };
        let gateway = TestGateway::start(Unlimited, settings, &config);
        let reply = ask(&gateway, "GET", "/", &format!("x-forwarded-for: {stated}\r\n"));
        match expected {
            Some(told) => {
                assert_eq!((status(&reply), &*text(&reply)), (200, told), "{trusted_hops} {stated}")
            }
            None => assert_eq!(status(&reply), 503, "{trusted_hops} {stated}"),
        }
    }
}

#[test]
fn fault_48_forwarded_is_believed_as_far_as_proxies_are_trusted_and_made_anew() {
    let backend = Backend::start(|got| {
        let said = ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        reply(200, &[], &said.map(|name| got.field(name).unwrap_or("-")).join(" | "))
    });
    let upstream = json!([{"name": "app", "servers": [backend.url()]}]);
    let route = json!([{"name": "all", "upstream": "app", "maintenance": {"allow": ["203.0.113.7"]}}]);
    let config = config(upstream, route);
    let told = |settings: GatewaySettings, fields: &str| {
        let gateway = TestGateway::start(Unlimited, settings, &config);
        let got = ask(&gateway, "GET", "/", fields);
        (status(&got), text(&got))
    };
    let trusting = GatewaySettings {
        trusted_hops: 1,
        client_from: ClientField::Forwarded,
        sends_forwarded: true,
        ..GatewaySettings::default()
    };
    let spoofed = "x-forwarded-for: 6.6.6.6\r\nx-forwarded-host: evil\r\n";
    let stated =
        format!("forwarded: for=6.6.6.6, for=\"203.0.113.7:80\";proto=https;host=shop.example\r\n{spoofed}");
    let anew = "for=203.0.113.7;host=\"shop.example\";proto=https, for=127.0.0.1";
    // Of lines of the same name the last one is told by the backend of these tests.
    let (status_, said) = told(trusting, &stated);
    assert_eq!(status_, 200, "{said}");
    assert!(said.starts_with(anew) && said.ends_with("| https | shop.example"), "{said}");
    assert!(!said.contains("6.6.6.6"), "{said}");
    // In the other field nobody is believed, nor is one that can be read in two ways.
    assert_eq!(told(trusting, "x-forwarded-for: 203.0.113.7\r\n").0, 503);
    assert_eq!(told(trusting, "forwarded: for=203.0.113.7;for=6.6.6.6\r\n").0, 400);
    assert_eq!(told(GatewaySettings { trusted_hops: 0, ..trusting }, &stated).0, 503);
    // As it is without these settings: neither read nor sent.
    let settings = GatewaySettings { trusted_hops: 1, ..GatewaySettings::default() };
    let (status_, said) = told(settings, &format!("{stated}x-forwarded-for: 203.0.113.7\r\n"));
    assert_eq!((status_, said.starts_with("- | ")), (200, true), "{said}");
}

/// Which steps a request took, by what its trace says of them.
fn steps(gateway: &TestGateway) -> String {
    let reply = ask(gateway, "GET", "/", "tidegate-trace: 1\r\nauthorization: Bearer secret\r\n");
    let lines = reply.fields.iter().filter(|(name, _)| name == "tidegate-trace").map(|(_, value)| value);
    lines.map(|line| line.split(';').next().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn attempts_that_reached_a_server_have_a_pause_between_them_and_others_have_none() {
    let traced = |servers: &[String]| {
        let upstream = json!([{"name": "app", "servers": servers, "breaker": {"enabled": false}, "balance": "round_robin",
            "eject_after": 0, "retries": {"attempts": 3, "percent": 100, "least_per_second": 1_000}}]);
        let config = config(upstream, json!([{"name": "all", "upstream": "app"}]));
        TestGateway::start_with(Unlimited, GatewaySettings::default(), &config, |gateway| {
            gateway.with_traces(TraceGuard::new(|authorization| authorization == b"Bearer secret"))
        })
    };
    let failing: Vec<Backend> = (0..3).map(|_| Backend::start(|_| reply(503, &[], ""))).collect();
    let urls: Vec<String> = failing.iter().map(Backend::url).collect();
    assert_eq!(
        steps(&traced(&urls)),
        "normalise route pick attempt pause pick attempt pause pick attempt respond"
    );
    // Nobody is spared by waiting for what was never there.
    let gone: Vec<String> = failing
        .into_iter()
        .map(|mut backend| {
            backend.stop();
            backend.url()
        })
        .collect();
    assert_eq!(steps(&traced(&gone)), "normalise route pick attempt pick attempt pick attempt respond");
}
