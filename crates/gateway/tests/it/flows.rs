//! What is counted of each route and each server: by real sockets, over edits, and the same however clients behave.

use std::sync::Arc;

use crate::support::{Backend, Reaction, TestGateway, config, reply, status};
use serde_json::json;
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::flow::{FlowTotals, MAX_APART, OTHERS};
use tidegate_gateway::limits::{Denial, LimitedRequest, Limits, LimitsAnswer, Ruling, Unlimited};
use tidegate_gateway::service::GatewaySettings;

/// Denies by the path: a used-up limit, no policy that applies, no answer of the limiter.
#[derive(Debug)]
struct DeniesByPath;

impl<'r> Limits<LimitedRequest<'r>> for DeniesByPath {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let denial = match request.path {
                "/api/full" => {
                    Some(Denial::Quota { policies: policies.iter().map(ToString::to_string).collect() })
                }
                "/api/none" => Some(Denial::NoMatch),
                "/api/silent" => Some(Denial::NoAnswer("the store is away".to_owned())),
                _ => None,
            };
            Ruling { denial, ..Ruling::default() }
        })
    }
}

/// Two routes to one server, of which the first has limits.
fn configuration(server: &Backend, idle_connections: u32) -> GatewayConfig {
    let upstream = json!([{"name": "app", "servers": [server.url()], "idle_connections": idle_connections}]);
    let api = json!({"name": "api", "path": "/api/*", "upstream": "app", "policies": ["per-client"]});
    config(upstream, json!([api, {"name": "rest", "upstream": "app"}]))
}

fn route(gateway: &TestGateway, name: &str) -> FlowTotals {
    let flows = gateway.gateway.route_flows();
    flows.into_iter().find(|flow| &*flow.route == name).unwrap().totals
}

fn server(gateway: &TestGateway) -> FlowTotals {
    gateway.gateway.server_flows()[0].totals
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc")
}

#[test]
fn requests_times_bytes_and_connections_are_counted_by_route_and_by_server() {
    let backend = Backend::start(|got| match got.line.as_str() {
        "GET /missing HTTP/1.1" => reply(404, &[], "no"),
        _ => reply(200, &[], "hello"),
    });
    // One core, so that each request finds the connection of the one before.
    let (settings, first) = (GatewaySettings::default(), configuration(&backend, 8));
    let gateway = TestGateway::start_on(1, Unlimited, settings, &first, |gateway| gateway);
    for _ in 0..3 {
        assert_eq!(status(&gateway.send(&post("/api/a"))), 200);
    }
    assert_eq!(status(&gateway.get("/missing")), 404);
    let api = route(&gateway, "api");
    assert_eq!((api.by_class, api.buckets.iter().sum::<u64>()), ([0, 3, 0, 0, 0], 3));
    assert_eq!((api.request_bytes, api.reply_bytes, api.limited), (9, 15, 3));
    let rest = route(&gateway, "rest");
    assert_eq!((rest.by_class, rest.reply_bytes, rest.limited), ([0, 0, 0, 1, 0], 2, 0));
    let app = server(&gateway);
    assert_eq!((app.by_class, app.buckets.iter().sum::<u64>()), ([0, 3, 0, 1, 0], 4));
    assert_eq!((app.request_bytes, app.reply_bytes, app.opened, app.reused), (9, 17, 1, 3));
    assert!(app.nanos > 0 && api.nanos + rest.nanos > app.nanos, "a server's time is part of its route's");
    // What a route and a server were counted goes on over a change of both.
    gateway.apply(&configuration(&backend, 4));
    assert_eq!(status(&gateway.send(&post("/api/a"))), 200);
    assert_eq!(route(&gateway, "api").by_class, [0, 4, 0, 0, 0]);
    assert_eq!((server(&gateway).by_class, server(&gateway).opened), ([0, 4, 0, 1, 0], 2));
}

#[test]
fn bodies_that_come_in_pieces_are_counted_as_they_pass() {
    let backend = Backend::start(|_| {
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
        Reaction::Bytes(chunked.as_bytes().to_vec())
    });
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start(Unlimited, settings, &configuration(&backend, 8));
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                   5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let got = gateway.send(request);
    assert_eq!((status(&got), got.body.as_slice()), (200, &b"abcdefg"[..]));
    for totals in [route(&gateway, "rest"), server(&gateway)] {
        assert_eq!((totals.request_bytes, totals.reply_bytes), (11, 7));
    }
}

#[test]
fn fault_53_what_is_counted_of_all_others_never_falls_whoever_of_the_named_goes() {
    let backend = Backend::named("a");
    let routes = |first: usize, count: usize| {
        let route = |number: usize| {
            let path = format!("/r{number}/*");
            json!({"name": format!("r{number}"), "path": path, "upstream": "app"})
        };
        config(
            json!([{"name": "app", "servers": [backend.url()]}]),
            (first..first + count).map(route).chain([json!({"name": OTHERS, "upstream": "app"})]).collect(),
        )
    };
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start(Unlimited, settings, &routes(0, MAX_APART + 1));
    let ask = |number: usize| assert_eq!(status(&gateway.get(&format!("/r{number}/"))), 200);
    let named = |name: &str| {
        let flows = gateway.gateway.route_flows();
        assert!(flows.len() <= MAX_APART + 1);
        assert_eq!(flows.iter().filter(|flow| &*flow.route == OTHERS).count(), 1);
        flows.into_iter().find(|flow| &*flow.route == name).map(|flow| flow.totals.by_class[1])
    };
    [0, MAX_APART, MAX_APART].into_iter().for_each(ask);
    assert_eq!([named("r0"), named("r200"), named(OTHERS)], [Some(1), None, Some(2)]);
    // One that is named goes, and another comes and takes its place. The others are counted where they were.
    gateway.apply(&routes(1, MAX_APART + 1));
    [MAX_APART, MAX_APART + 1].into_iter().for_each(ask);
    assert_eq!([named("r0"), named("r200"), named("r201"), named(OTHERS)], [None, None, Some(1), Some(3)]);
    gateway.apply(&routes(1, 1));
    assert_eq!([named("r1"), named("r200"), named(OTHERS)], [Some(0), None, Some(3)]);
}

#[test]
fn fault_53_servers_beyond_those_that_are_named_are_counted_together() {
    let servers = |count: u16| {
        let upstream = |name: &str| {
            let servers: Vec<_> = (1..=count).map(|port| format!("http://127.0.0.1:{port}")).collect();
            json!({"name": name, "servers": servers})
        };
        let two = json!({"name": "two", "path": "/two/*", "upstream": "two"});
        config(json!([upstream("one"), upstream("two")]), json!([two, {"name": "one", "upstream": "one"}]))
    };
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &servers(99));
    let named = |gateway: &TestGateway| {
        let flows = gateway.gateway.server_flows();
        let of = |name: &str| flows.iter().filter(|flow| &*flow.upstream == name).count();
        [of("one"), of("two"), of(OTHERS)]
    };
    assert_eq!(named(&gateway), [99, 99, 0]);
    gateway.apply(&servers(150));
    assert_eq!(named(&gateway), [101, 99, 1], "two places were left");
    gateway.apply(&servers(50));
    assert_eq!(named(&gateway), [50, 50, 0]);
    gateway.apply(&servers(150));
    assert_eq!(named(&gateway), [150, 50, 1], "in the order of the configuration");
}

/// No server answers: the route's refusals are counted, and nothing at the server.
#[test]
fn what_no_server_answers_is_counted_on_its_route_alone() {
    let mut backend = Backend::named("a");
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &configuration(&backend, 8));
    backend.stop();
    assert_eq!(status(&gateway.get("/")), 502);
    assert_eq!(route(&gateway, "rest").by_class, [0, 0, 0, 0, 1]);
    assert_eq!(server(&gateway).by_class, [0; 5]);
}

/// What a server refuses with 429 is its own affair, and the limiter's trouble is no client's.
#[test]
fn only_what_a_used_up_limit_denies_is_counted_as_denied_of_its_route() {
    let backend = Backend::start(|_| reply(429, &[], "later"));
    let config = configuration(&backend, 8);
    let gateway = TestGateway::start(DeniesByPath, GatewaySettings::default(), &config);
    let statuses = ["/api/full", "/api/full", "/api/none", "/api/silent", "/api/a", "/a"]
        .map(|path| status(&gateway.get(path)));
    assert_eq!(statuses, [429, 429, 403, 503, 429, 429]);
    let api = route(&gateway, "api");
    assert_eq!((api.by_class, api.limited, api.denied), ([0, 0, 0, 4, 1], 5, 2));
    let rest = route(&gateway, "rest");
    assert_eq!((rest.by_class, rest.limited, rest.denied), ([0, 0, 0, 1, 0], 0, 0));
}
