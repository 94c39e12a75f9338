//! How often and how long a request is tried: within its time and the one budget, wherever its attempts go; and whom they
//! are blamed on.

use std::io::{BufReader, Write};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};

use crate::support::{
    Backend, PATIENCE, Reaction, TestGateway, answer_in_http2, ask_on, black_hole, config, head, load, reply,
    server, status, text,
};
use serde_json::{Value, json};
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

/// As many further attempts as anybody likes.
fn unbounded() -> Value {
    json!({"attempts": 10, "percent": 100, "least_per_second": 1_000_000})
}

/// A gateway with one core, whose route `all` has one upstream without a breaker, with these keys of both.
fn gateway(upstream: Value, route: Value) -> TestGateway {
    let with = |mut document: Value, keys: Value| {
        document.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        document
    };
    let app = with(json!({"name": "app", "breaker": {"enabled": false}, "eject_after": 0}), upstream);
    let all = with(json!({"name": "all", "upstream": "app"}), route);
    let config = config(json!([app]), json!([all]));
    TestGateway::start_on(1, Unlimited, GatewaySettings::default(), &config, |gateway| gateway)
}

#[test]
fn fault_39_connecting_to_a_black_hole_ends_with_the_requests_time() {
    let (address, _socket, _queued) = black_hole();
    // Until the connection is given up nobody would wait here.
    let upstream = json!({"servers": [format!("http://{address}")], "connect_timeout_seconds": 3600});
    let gateway = gateway(upstream, json!({"timeout_seconds": 0.2}));
    assert_eq!(status(&gateway.get("/")), 504);
}

#[test]
fn who_may_know_is_told_which_server_failed_and_why_and_nobody_else() {
    let dead = format!("127.0.0.1:{}", tidegate_testkit::free_port());
    let silent = Backend::start(|_| Reaction::Silence);
    let torn = Backend::start(|_| Reaction::Last(b"HTTP/1.1 2".to_vec()));
    let upstreams = json!([
        {"name": "dead", "servers": [format!("http://{dead}")], "breaker": {"enabled": false}},
        {"name": "silent", "servers": [silent.url()], "breaker": {"enabled": false}},
        {"name": "torn", "servers": [torn.url()], "breaker": {"enabled": false}}
    ]);
    let route = |name: &str| json!({"name": name, "path": format!("/{name}"), "upstream": name, "timeout_seconds": 0.2});
    let served = config(upstreams, json!([route("dead"), route("silent"), route("torn")]));
    let told = GatewaySettings { explains_failures: true, ..GatewaySettings::default() };
    let [quiet, telling] =
        [GatewaySettings::default(), told].map(|it| TestGateway::start(Unlimited, it, &served));
    let ask = |gateway: &TestGateway, path: &str, field: &str| {
        let got =
            gateway.send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{field}\r\n"));
        (status(&got), text(&got))
    };
    let [at_silent, at_torn] = [silent.address.to_string(), torn.address.to_string()];
    for (path, expected, server, why) in [
        ("/dead", 502, &dead, "connection refused"),
        ("/silent", 504, &at_silent, "no reply in time"),
        ("/torn", 502, &at_torn, ""),
    ] {
        let (status, said) = ask(&telling, path, "");
        assert!(status == expected && said.contains(&format!("{server}: {why}")), "{path} {status}: {said}");
        let others =
            ["x-forwarded-for: 203.0.113.7\r\n", "forwarded: for=203.0.113.7\r\n", "via: 1.1 tunnel\r\n"];
        let others = others.map(|field| ask(&telling, path, field));
        for (status, said) in others.into_iter().chain([ask(&quiet, path, "")]) {
            assert!(status == expected && !said.contains(server.as_str()), "{path} {status}: {said}");
        }
    }
}

/// To hyper it is an error of HTTP/2.
#[test]
fn who_may_know_is_told_by_which_code_a_server_of_http2_gave_a_request_up() {
    // RST_STREAM with HTTP_1_1_REQUIRED.
    let address = server(|reader| answer_in_http2(reader, [0, 0, 4, 3, 0, 0, 0, 0, 0], &[0, 0, 0, 13]));
    let app = json!({"name": "app", "servers": [format!("http://{address}")], "protocol": "http2"});
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    let told = GatewaySettings { explains_failures: true, ..GatewaySettings::default() };
    let gateway = TestGateway::start(Unlimited, told, &config);
    let got = gateway.get("/");
    let why = format!("{address}: http2 error: endpoint requires HTTP/1.1");
    assert!(status(&got) == 502 && text(&got).contains(&why), "{}", text(&got));
}

#[test]
fn a_pause_that_outlasts_the_requests_time_is_not_begun_and_the_last_reply_is_told() {
    let servers: Vec<Backend> = (0..10).map(|_| Backend::start(|_| reply(503, &[], "its own"))).collect();
    let urls: Vec<String> = servers.iter().map(Backend::url).collect();
    // The pauses before the tenth server take 6 s or so: one of three thousand requests comes there within its time.
    let gateway = gateway(json!({"servers": urls, "retries": unbounded()}), json!({"timeout_seconds": 1}));
    let ask = || {
        let started = monotonic();
        loop {
            let got = gateway.get("/");
            // Where the machine stands still, the time may end in an attempt. In a pause it never does.
            if status(&got) == 503 || started.elapsed() > PATIENCE {
                return got;
            }
        }
    };
    std::thread::scope(|scope| {
        for asked in (0..8).map(|_| scope.spawn(ask)).collect::<Vec<_>>() {
            let got = asked.join().unwrap();
            assert_eq!((status(&got), got.body.as_slice()), (503, &b"its own"[..]), "{got:?}");
        }
    });
}

#[test]
fn what_the_gateway_itself_refuses_does_not_open_a_routes_breaker() {
    let opens = |calls: u64| json!({"calls": calls, "minimum_calls": calls, "first_open_seconds": 3600, "open_seconds": 3600, "slow_seconds": 3600});
    let of_route = |gateway: &TestGateway| gateway.gateway.route_breakers()[0].1;
    // The upstream's breaker.
    let failing = Backend::start(|_| reply(500, &[], ""));
    let upstream = json!({"servers": [failing.url()], "breaker": opens(2)});
    let open = gateway(upstream, json!({"breaker": opens(10)}));
    let told: Vec<u16> = (0..40).map(|_| status(&open.get("/"))).collect();
    assert_eq!((&told[..2], told[2..].iter().all(|status| *status == 503)), (&[500, 500][..], true));
    assert_eq!((open.gateway.upstreams()[0].breaker, of_route(&open)), (Some(Phase::Open), Phase::Closed));
    // A server that has as many requests as it may.
    let silent = Backend::start(|_| Reaction::Silence);
    let full = gateway(json!({"servers": [silent.url()], "max_requests": 1}), json!({"breaker": opens(10)}));
    let mut first = full.connect();
    first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    while silent.got().is_empty() {
        std::thread::yield_now();
    }
    assert!((0..40).all(|_| status(&full.get("/")) == 503));
    assert_eq!(of_route(&full), Phase::Closed);
}

/// A server that answers the first request of a connection and closes it on the second.
fn closes_kept_ones() -> Backend {
    let count = AtomicUsize::new(0);
    Backend::start(move |_| match count.fetch_add(1, SeqCst) % 2 {
        0 => reply(200, &[], "first"),
        _ => Reaction::Last(Vec::new()),
    })
}

#[test]
fn fault_63_a_request_that_is_sent_again_since_its_connection_was_closed_is_counted() {
    const REQUESTS: usize = 20;
    let ask = |gateway: &TestGateway| {
        let mut client = BufReader::new(gateway.connect());
        (0..REQUESTS).map(|_| ask_on(&mut client, "/")).collect::<Vec<u16>>()
    };
    let server = closes_kept_ones();
    let allowed = gateway(json!({"servers": [server.url()], "retries": unbounded()}), json!({}));
    assert_eq!(ask(&allowed), [200; REQUESTS]);
    let counted = allowed.gateway.upstreams()[0].servers[0].1;
    let (sent, repeats) = (server.got().len(), counted.repeats as usize);
    assert_eq!((sent, repeats), (REQUESTS + REQUESTS - 1, REQUESTS - 1));
    assert_eq!(counted.failures, 0, "a kept connection may be closed at any time: that is no fault");
}

#[test]
fn a_kept_connection_that_was_closed_costs_no_other_one() {
    let (both, closes) = (Arc::new(Barrier::new(2)), AtomicUsize::new(0));
    let server = Backend::start(move |got| match got.line.contains("/both") {
        true => {
            both.wait();
            reply(200, &[], "both")
        }
        false if closes.fetch_add(1, SeqCst) == 0 => Reaction::Last(Vec::new()),
        false => reply(200, &[], "once more"),
    });
    let gateway = gateway(json!({"servers": [server.url()], "retries": unbounded()}), json!({}));
    let mut clients = [BufReader::new(gateway.connect()), BufReader::new(gateway.connect())];
    let mut at_once = |path: &str| {
        std::thread::scope(|scope| {
            clients
                .each_mut()
                .map(|client| scope.spawn(|| ask_on(client, path)))
                .map(|asked| asked.join().unwrap())
        })
    };
    assert_eq!((at_once("/both"), server.connections()), ([200, 200], 2));
    assert_eq!(status(&gateway.get("/closed")), 200);
    assert_eq!(server.connections(), 3, "a new one for the one that was closed");
    assert_eq!((at_once("/both"), server.connections()), ([200, 200], 3), "the other one is still there");
}

/// Six servers of two upstreams that take requests and answer none.
#[test]
fn fault_63_attempts_at_a_routes_two_upstreams_come_out_of_one_budget() {
    let servers: Vec<Backend> = (0..6).map(|_| Backend::start(|_| Reaction::Last(Vec::new()))).collect();
    let urls: Vec<String> = servers.iter().map(Backend::url).collect();
    let upstream = |name: &str, urls: &[String]| json!({"name": name, "servers": urls, "breaker": {"enabled": false}, "eject_after": 0});
    let upstreams = json!([upstream("app", &urls[..3]), upstream("other", &urls[3..])]);
    let routes = json!([{"name": "all", "upstream": "app", "fallback": {"upstream": "other"}}]);
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstreams, routes));
    let started = monotonic();
    let statuses = load(&gateway, 400);
    let seconds = started.elapsed().as_secs_f64();
    assert!(statuses.iter().all(|status| *status == 502), "{statuses:?}");
    let got = |servers: &[Backend]| servers.iter().map(|server| server.got().len()).sum::<usize>() as f64;
    let (requests, first, second) = (statuses.len() as f64, got(&servers[..3]), got(&servers[3..]));
    let further = first + second - 2.0 * requests;
    println!("{requests} requests: {first} attempts at the first upstream, {second} at the second one");
    // A tenth of the requests, and in each second that it touches the ten that are allowed before a tenth is as many.
    let allowed = requests / 10.0 + 10.0 * (seconds + 2.0);
    assert!(first >= requests && second >= requests, "each of them once at each: {first}, {second}");
    assert!(further > 0.0 && further <= allowed, "{further} further ones of {requests} in {seconds} s");
}

/// Servers that close after such a reply do so without a word, and a POST that is on its way there could not be repeated.
#[test]
fn a_connection_gets_no_further_request_whose_reply_to_head_leaves_its_end_open() {
    for (fields, connections) in
        [("", 2), ("content-length: 5\r\n", 1), ("transfer-encoding: chunked\r\n", 1)]
    {
        let backend = Backend::start(move |got| {
            if got.line.starts_with("HEAD ") {
                return Reaction::Bytes(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes());
            }
            reply(200, &[], "")
        });
        let gateway = gateway(json!({"servers": [backend.url()]}), json!({}));
        let mut client = BufReader::new(gateway.connect());
        client.get_ref().write_all(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
        assert_eq!(ask_on(&mut client, "/"), 200);
        assert_eq!(backend.connections(), connections, "{fields:?}");
    }
}
