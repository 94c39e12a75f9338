//! Servers that fail, hang, flap or are asked by too many at once, and clients that leave: FAULTS 39, 40, 44 and 63,
//! and what the README of the load tests calls chaos.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::support::{
    Backend, PATIENCE, Reaction, TestGateway, black_hole, config, head, load, load_timed, reply, status, text,
};
use serde_json::{Value, json};
use socket2::SockRef;
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::{Gateway, GatewaySettings};
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::BackendStatus;

fn gateway(upstream: Value) -> TestGateway {
    let mut app = json!({"name": "app", "balance": "round_robin", "breaker": {"enabled": false}});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

fn servers(gateway: &Gateway) -> Vec<BackendStatus> {
    gateway.upstreams()[0].servers.iter().map(|(_, status)| *status).collect()
}

/// Attempts of all requests so far.
fn attempts(gateway: &TestGateway) -> u64 {
    servers(&gateway.gateway).iter().map(|server| server.successes + server.failures).sum()
}

/// Some thousand requests, which take a second or two; `regression/outage/run.py` has the minute at full load.
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
        let replies = load_timed(&gateway, 500);
        let seconds = started.elapsed().as_secs_f64();
        assert!(replies.iter().all(|(_, status)| matches!(status, 502 | 503)), "{replies:?}");
        // What servers got, where they are there to get it.
        let got = match refuses_connections {
            false => backends.iter().map(|backend| backend.got().len()).sum::<usize>() as f64,
            true => attempts(&gateway) as f64,
        };
        let (requests, further) = (replies.len() as f64, got - replies.len() as f64);
        // Until each server has refused once it may work: of the first request of each of eight clients the two further attempts are free.
        let free = if refuses_connections { 16.0 } else { 0.0 };
        // A tenth of the requests, and in each second that it touches the ten that are allowed before a tenth is as many.
        let allowed = requests / 10.0 + 10.0 * (seconds + 2.0) + free;
        assert!(
            further > 0.0 && further <= allowed,
            "{further} further attempts of {requests} in {seconds} s"
        );
        let half_a_second = Duration::from_millis(500);
        if replies.windows(100).all(|some| some[99].0.duration_since(some[0].0) < half_a_second) {
            // There were never few. Ten while there are few at the start, and ten while there are few at the end.
            assert!(got <= 1.1 * requests + 20.0 + free, "{further} of {requests} in {seconds} s");
        }
        is_good.store(true, SeqCst);
        let _again: Vec<Backend> = if refuses_connections {
            addresses.into_iter().map(|at| Backend::start_at(at, |_| reply(200, &[], ""))).collect()
        } else {
            backends
        };
        assert_eq!(status(&gateway.get("/")), 200, "the first request after it");
    }
}

/// The breaker of the defaults opens for a second at first, and not for the minute that is its longest.
#[test]
fn fault_63_behind_defaults_a_server_that_restarts_is_asked_again_long_before_a_minute() {
    let mut backend = Backend::named("first");
    let app = json!([{"name": "app", "servers": [backend.url()]}]);
    let config = config(app, json!([{"name": "all", "upstream": "app"}]));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let address = backend.address;
    backend.stop();
    let statuses = load(&gateway, 10);
    assert!(statuses.iter().all(|status| matches!(status, 502 | 503)), "{statuses:?}");
    assert!(statuses.contains(&503), "the breaker has opened: {statuses:?}");
    let _again = Backend::start_at(address, |_| reply(200, &[], "second"));
    let recovered = monotonic();
    while status(&gateway.get("/")) != 200 {
        assert!(recovered.elapsed() < PATIENCE);
    }
    println!("answered {:?} after the server was back", recovered.elapsed());
    assert!(recovered.elapsed() < Duration::from_secs(30), "{:?}", recovered.elapsed());
}

/// While a breaker is open nobody finds out that servers are well, but their checks.
#[test]
fn fault_63_with_breakers_on_an_outage_ends_with_the_first_check_that_passes() {
    let is_good = Arc::new(AtomicBool::new(false));
    let backends: Vec<Backend> = (0..3)
        .map(|_| {
            let is_good = Arc::clone(&is_good);
            Backend::start(move |_| reply(if is_good.load(SeqCst) { 200 } else { 503 }, &[], ""))
        })
        .collect();
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    // Without checks the breaker would be open for longer than anybody waits here.
    let breaker =
        json!({"first_open_seconds": 3600, "open_seconds": 3600, "slow_seconds": 3600, "trials": 1});
    let check = json!({"path": "/health", "interval_seconds": 0.1, "rise": 1, "timeout_seconds": 60});
    let gateway = gateway(json!({"servers": urls, "breaker": breaker, "check": check}));
    let phase = || gateway.gateway.upstreams()[0].breaker.unwrap();
    let statuses = load(&gateway, 250);
    assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
    assert_eq!(phase(), Phase::Open);
    let (requests, attempts) = (statuses.len() as u64, attempts(&gateway));
    assert!(attempts * 10 <= requests * 11, "{attempts} attempts of {requests} requests");
    is_good.store(true, SeqCst);
    let recovered = monotonic();
    while status(&gateway.get("/")) != 200 {
        assert!(recovered.elapsed() < PATIENCE);
    }
    println!("answered {:?} after the servers were well, checked every 100 ms", recovered.elapsed());
    assert!(load(&gateway, 10).iter().all(|status| *status == 200));
    assert_eq!(phase(), Phase::Closed);
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
fn fault_40_servers_that_flap_are_left_out_for_a_while_and_requests_are_answered() {
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
    let gateway: Arc<OnceLock<Arc<Gateway>>> = Arc::default();
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
