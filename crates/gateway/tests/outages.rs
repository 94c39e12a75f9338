//! Servers that fail, hang, flap or are asked by too many at once, and clients that leave: FAULTS 39, 40, 44 and 63,
//! and what the README of the load tests calls chaos.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, SockRef, Socket, Type};
use support::{Backend, PATIENCE, Reaction, TestGateway, config, head, reply, status, text};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::{Gateway, GatewaySettings};
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::BackendStatus;

fn gateway(upstream: Value) -> TestGateway<Unlimited> {
    let mut app = json!({"name": "app", "balance": "round_robin", "breaker": {"enabled": false}});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

fn servers(gateway: &Gateway<Unlimited>) -> Vec<BackendStatus> {
    gateway.upstreams()[0].servers.iter().map(|(_, status)| *status).collect()
}

/// Attempts of all requests so far.
fn attempts(gateway: &TestGateway<Unlimited>) -> u64 {
    servers(&gateway.gateway).iter().map(|server| server.successes + server.failures).sum()
}

/// Sends so many requests, from eight clients on kept connections, and returns the statuses.
fn load(gateway: &TestGateway<Unlimited>, each: usize) -> Vec<u16> {
    let statuses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut reader = BufReader::new(gateway.connect());
                let mut got: Vec<u16> = Vec::new();
                for _ in 0..each {
                    reader.get_ref().write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
                    let head = head(&mut reader).to_ascii_lowercase();
                    let length = head.split("content-length: ").nth(1).unwrap();
                    let length = length.split('\r').next().unwrap().parse().unwrap();
                    reader.read_exact(&mut vec![0; length]).unwrap();
                    got.push(head[9..12].parse().unwrap());
                }
                statuses.lock().unwrap().extend(got);
            });
        }
    });
    statuses.into_inner().unwrap()
}

#[test]
fn fault_63_an_outage_of_all_servers_is_met_with_few_further_attempts_and_ends_with_it() {
    for refuses_connections in [false, true] {
        let is_good = Arc::new(AtomicBool::new(false));
        let mut backends: Vec<Backend> = (0..3)
            .map(|_| {
                let is_good = Arc::clone(&is_good);
                Backend::start(move |_| reply(if is_good.load(SeqCst) { 200 } else { 503 }, &[], ""))
            })
            .collect();
        let urls: Vec<String> = backends.iter().map(Backend::url).collect();
        let gateway = gateway(json!({"servers": urls}));
        let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
        if refuses_connections {
            backends.iter_mut().for_each(Backend::stop);
        }
        let started = monotonic();
        let statuses = load(&gateway, 500);
        let seconds = started.elapsed().as_secs_f64();
        assert!(statuses.iter().all(|status| matches!(status, 502 | 503)), "{statuses:?}");
        let (requests, further) = (statuses.len() as f64, attempts(&gateway) as f64 - statuses.len() as f64);
        // A tenth of the requests; ten a second where there are fewer than a hundred.
        let allowed = (requests / 10.0).max(10.0 * (seconds + 1.0));
        assert!(
            further > 0.0 && further <= allowed,
            "{further} further attempts of {requests} in {seconds} s"
        );
        if requests / seconds > 200.0 {
            assert!(attempts(&gateway) as f64 <= 1.1 * requests, "{further} of {requests} in {seconds} s");
        }
        let recovered = monotonic();
        is_good.store(true, SeqCst);
        let _again: Vec<Backend> = if refuses_connections {
            addresses.into_iter().map(|at| Backend::start_at(at, |_| reply(200, &[], ""))).collect()
        } else {
            backends
        };
        while status(&gateway.get("/")) != 200 {
            assert!(recovered.elapsed() < PATIENCE);
        }
        let took = recovered.elapsed();
        assert!(took < Duration::from_secs(2), "it took {took:?} after the first good server");
    }
}

#[test]
fn a_server_that_says_when_to_come_back_is_taken_at_its_word_and_none_is_asked_twice() {
    let patient = Backend::start(|_| reply(503, &["retry-after: 7"], "later"));
    let gateway_ = gateway(json!({"servers": [patient.url(), patient.url()]}));
    let got = gateway_.get("/");
    assert_eq!((status(&got), got.field("retry-after")), (503, Some("7")));
    assert_eq!(patient.got().len(), 1, "nothing is tried again before that");
    let failing: Vec<Backend> = (0..3).map(|_| Backend::start(|_| reply(503, &[], "no"))).collect();
    let urls: Vec<String> = failing.iter().map(Backend::url).collect();
    let gateway = gateway(json!({"servers": urls, "retries": {"attempts": 10}}));
    assert_eq!(status(&gateway.get("/")), 503);
    assert!(failing.iter().all(|backend| backend.got().len() == 1), "each of the three once");
}

fn wait_until(holds: impl Fn() -> bool) {
    let started = monotonic();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "it did not come to hold");
        std::thread::yield_now();
    }
}

/// An address where connections are never accepted nor refused, for as long as what is with it lives.
fn black_hole() -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    // Until the queue is full, and the kernel answers no more.
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue has no end");
    }
    (address, socket, queued)
}

#[test]
fn fault_39_a_black_hole_costs_the_time_to_connect_and_then_nothing() {
    let (address, _socket, _queued) = black_hole();
    let good = Backend::named("good");
    let gateway = gateway(
        json!({"servers": [format!("http://{address}"), good.url()], "eject_after": 3, "eject_seconds": 3600}),
    );
    let mut slowest = Duration::ZERO;
    // Each second request goes to the hole first, until that is ejected.
    for _ in 0..20 {
        let started = monotonic();
        assert_eq!(text(&gateway.get("/")), "good");
        slowest = slowest.max(started.elapsed());
    }
    let hole = servers(&gateway.gateway)[0];
    assert!((hole.failures, hole.ejections) == (3, 1), "{hole:?}");
    assert!(slowest >= Duration::from_secs(1), "the hole was asked: {slowest:?}");
}

#[test]
fn fault_40_of_servers_that_flap_at_most_half_are_left_out_and_requests_are_answered() {
    let phase = Arc::new(AtomicUsize::new(0));
    let backends: Vec<Backend> = (0..4)
        .map(|index| {
            let phase = Arc::clone(&phase);
            // Two of the four fail at any time, and in each phase one of them changes places with another one.
            Backend::start(move |_| match (phase.load(SeqCst) + index) % 4 {
                0 | 1 => Reaction::Last(Vec::new()),
                _ => reply(200, &[], "good"),
            })
        })
        .collect();
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let retries = json!({"attempts": 4, "percent": 100, "least_per_second": 1_000_000});
    let gateway =
        gateway(json!({"servers": urls, "eject_after": 2, "eject_seconds": 0.05, "retries": retries}));
    let ejected = || servers(&gateway.gateway).iter().filter(|server| server.is_ejected).count();
    let mut most = 0;
    for _ in 0..15 {
        for _ in 0..20 {
            assert_eq!(status(&gateway.get("/")), 200);
            most = most.max(ejected());
        }
        // Those that were left out for what they did in a phase before could be the only good ones.
        wait_until(|| ejected() == 0);
        phase.fetch_add(1, SeqCst);
    }
    assert!((1..=2).contains(&most), "{most} of 4 were out at once");
}

#[test]
fn fault_40_checks_change_their_verdict_after_several_results_in_a_row() {
    // F: the check fails, P: it passes. What is known when it comes is what the ones before it said.
    const RESULTS: &str = "FFPFFFPPP";
    const WAS_UP: &str = "UUUUUUDDU";
    let gateway: Arc<OnceLock<Arc<Gateway<Unlimited>>>> = Arc::default();
    let seen = Arc::new(Mutex::new(String::new()));
    let backend = {
        let (gateway, seen) = (Arc::clone(&gateway), Arc::clone(&seen));
        Backend::start(move |_| {
            let is_up = servers(gateway.wait())[0].is_up;
            let mut seen = seen.lock().unwrap();
            let result = RESULTS.as_bytes().get(seen.len()).copied().unwrap_or(b'P');
            seen.push(if is_up { 'U' } else { 'D' });
            reply(if result == b'P' { 200 } else { 500 }, &[], "")
        })
    };
    let check =
        json!({"path": "/health", "interval_seconds": 0.01, "rise": 2, "fall": 3, "timeout_seconds": 60});
    let running = self::gateway(json!({"servers": [backend.url()], "check": check}));
    gateway.set(Arc::clone(&running.gateway)).unwrap();
    let started = monotonic();
    while seen.lock().unwrap().len() < RESULTS.len() {
        assert!(started.elapsed() < PATIENCE, "{seen:?}");
        std::thread::yield_now();
    }
    assert_eq!(&seen.lock().unwrap()[..RESULTS.len()], WAS_UP);
}

#[test]
fn fault_44_a_client_that_leaves_gives_its_place_back() {
    let silent = Backend::start(|_| Reaction::Silence);
    let gateway = gateway(json!({"servers": [silent.url()]}));
    let in_flight = || servers(&gateway.gateway)[0].in_flight;
    let wait_for = |wanted: u32| {
        let started = monotonic();
        while in_flight() != wanted {
            assert!(started.elapsed() < PATIENCE, "{} places are taken", in_flight());
            std::thread::yield_now();
        }
    };
    let mut clients: Vec<TcpStream> = (0..20).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    }
    wait_for(20);
    for client in clients {
        // A reset, which cannot be taken for half a close.
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    }
    wait_for(0);
}

#[test]
fn a_herd_is_answered_and_no_server_gets_more_than_it_may() {
    const LIMIT: usize = 20;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let backend = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Backend::start(move |_| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, SeqCst);
            reply(200, &[], "served")
        })
    };
    let gateway = gateway(json!({"servers": [backend.url()], "max_requests": LIMIT}));
    let mut clients: Vec<TcpStream> = (0..500).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    }
    let mut served = 0;
    for client in clients {
        let mut reader = BufReader::new(client);
        let head = head(&mut reader);
        match &head[9..12] {
            "200" => served += 1,
            "503" => assert!(head.to_ascii_lowercase().contains("retry-after: 1\r\n"), "{head}"),
            other => panic!("{other}"),
        }
    }
    assert!(served >= LIMIT && most.load(SeqCst) <= LIMIT, "{served} served, {most:?} at once");
}
