//! Backends and clients that misbehave, on real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::support::{
    Peak, backend, backend_on, black_hole, connect, connect_from, name_of, named, patient, start, unchecked,
    until,
};
use serde_json::json;
use tidegate_edge::stats::Refusal;

/// Time of an attempt, twice of which all attempts have: more than an edge that stands still for a moment takes of it.
const CONNECTING: Duration = Duration::from_secs(3);

#[test]
fn fault_39_a_backend_that_does_not_answer_costs_its_time_and_the_next_one_is_tried() {
    let (hole, _held, _listener) = black_hole();
    let lima = named("lima");
    // Nearer, and so the first that is tried.
    let mut nearer = unchecked("hole", hole);
    nearer["region"] = json!("sa");
    let places = [json!({"networks": ["127.0.0.0/8"], "region": "sa"})];
    let listener = json!({"connect_seconds": CONNECTING.as_secs()});
    let running = start(listener, &[unchecked("lima", lima), nearer], &places);
    let began = tidegate_net::clock::monotonic();
    assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    assert!(began.elapsed() >= CONNECTING);
    let newest = &running.edge.decisions().to_json()["decisions"][0];
    assert_eq!((&newest["attempts"], &newest["backend"]), (&json!(2), &json!("lima")));
    assert_eq!(running.listener.stats().retries.load(Relaxed), 1);
    // It was there: the next connection of this client does not try the other one.
    assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    assert_eq!(running.listener.stats().retries.load(Relaxed), 1);
}

#[test]
fn fault_39_all_attempts_together_have_one_bound() {
    let holes: Vec<_> = (0..4).map(|_| black_hole()).collect();
    let names = ["a", "b", "c", "d"];
    let backends: Vec<_> =
        names.iter().zip(&holes).map(|(name, (hole, ..))| unchecked(name, *hole)).collect();
    let running = start(json!({"connect_seconds": CONNECTING.as_secs()}), &backends, &[]);
    let mut client = connect(running.address);
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    let newest = &running.edge.decisions().to_json()["decisions"][0];
    assert_eq!((&newest["attempts"], &newest["refused"]), (&json!(4), &json!("unreachable")));
    let judged: Vec<u64> = running.edge.backends().iter().map(|report| report.failures).collect();
    assert_eq!(judged, [1, 0, 0, 0], "the others had less than their time");
    let refused = &running.listener.stats().refused;
    assert_eq!(refused[Refusal::Unreachable as usize].load(Relaxed), 1);
}

#[test]
fn fault_39_several_silent_backends_do_not_take_the_time_of_one_that_answers() {
    let holes: Vec<_> = (0..3).map(|_| black_hole()).collect();
    let names = ["a", "b", "c"];
    let nearer = names.iter().zip(&holes).map(|(name, (hole, ..))| {
        let mut document = unchecked(name, *hole);
        document["region"] = json!("sa");
        document
    });
    let backends: Vec<_> = nearer.chain([unchecked("lima", named("lima"))]).collect();
    let places = [json!({"networks": ["127.0.0.0/8"], "region": "sa"})];
    let listener = json!({"affinity": "off", "connect_seconds": CONNECTING.as_secs()});
    let running = start(listener, &backends, &places);
    let known = || running.edge.backends().iter().filter(|report| report.failures > 0).count();
    while known() < 3 {
        assert_eq!(name_of(&mut connect(running.address), 4), "lima", "who finds one out is served as well");
    }
}

/// Where nobody listens: whoever connects is refused at once.
fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()))
}

#[test]
fn a_backend_that_is_gone_loses_its_clients_to_the_next_and_is_taken_out() {
    let gone = nobody();
    let lima = named("lima");
    let mut nearer = unchecked("gone", gone);
    nearer["region"] = json!("sa");
    let places = [json!({"networks": ["127.0.0.0/8"], "region": "sa"})];
    let listener = json!({"affinity": "off"});
    let running = start(listener, &[unchecked("lima", lima), nearer], &places);
    for _ in 0..8 {
        assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    }
    let reports = running.edge.backends();
    let of_gone = reports.iter().find(|report| &*report.name == "gone").unwrap();
    assert!(of_gone.is_ejected && of_gone.failures == 1, "{of_gone:?}");
    assert_eq!(running.listener.stats().retries.load(Relaxed), 1, "nobody asks it any more");
}

/// `regression/outage/run.py` has a minute of it at full load.
#[test]
fn fault_63_an_outage_of_all_backends_ends_with_the_first_connection_after_it() {
    const CLIENTS: u64 = 300;
    let gone = [nobody(), nobody(), nobody()];
    let names = ["a", "b", "c"];
    let backends: Vec<_> = names.iter().zip(gone).map(|(name, at)| unchecked(name, at)).collect();
    let running = start(json!({"affinity": "off"}), &backends, &[]);
    for _ in 0..CLIENTS {
        assert_eq!(name_of(&mut connect(running.address), 4), "");
    }
    let stats = running.listener.stats();
    assert_eq!(stats.refused[Refusal::Unreachable as usize].load(Relaxed), CLIENTS);
    assert_eq!(stats.retries.load(Relaxed), 3 * CLIENTS, "each client has each backend tried once");
    backend_on(&gone[1].to_string(), |mut stream| {
        drop(stream.write_all(b"back"));
    });
    assert_eq!(name_of(&mut connect(running.address), 4), "back");
}

#[test]
fn fault_67_places_that_come_and_go_never_pass_a_limit() {
    const LIMIT: usize = 50;
    let peak = Arc::new(Peak::default());
    let counting = backend({
        let peak = peak.clone();
        move |mut stream| {
            peak.enter();
            drop(stream.write_all(b"in"));
            drop(stream.read_to_end(&mut Vec::new()));
            // The edge gives the place back when it has seen this side's end.
            peak.leave();
        }
    });
    let document = json!({
        "name": "one", "address": counting.to_string(), "soft_limit": 10, "hard_limit": LIMIT, "check": {"kind": "off"},
    });
    let running = start(json!({}), &[document], &[]);
    let (address, barrier) = (running.address, Arc::new(Barrier::new(20)));
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                barrier.wait();
                let mut held = Vec::new();
                for _ in 0..500 {
                    let mut client = connect(address);
                    if name_of(&mut client, 2) == "in" {
                        held.push(client);
                    }
                    // Now and then all leave, so that places come and go.
                    if held.len() >= 5 {
                        held.clear();
                    }
                }
                held.len()
            })
        })
        .collect();
    let held: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(held < 20 * 5);
    let stats = running.listener.stats();
    until("every place is given back", || running.edge.backends()[0].open == 0);
    let (placed, full) = (stats.placed.load(Relaxed), stats.refused[Refusal::Full as usize].load(Relaxed));
    assert_eq!(placed + full, 10_000);
    assert!(placed >= LIMIT as u64 && full > 0, "{placed} {full}");
    assert!(peak.most() <= LIMIT, "{} at once", peak.most());
}

#[test]
fn fault_69_thousands_of_clients_that_say_nothing_keep_nobody_out() {
    let mut quiet = unchecked("quiet", patient());
    quiet["hard_limit"] = json!(10_000);
    quiet["soft_limit"] = json!(10_000);
    quiet["region"] = json!("eu");
    let mut lima = unchecked("lima", named("lima"));
    lima["region"] = json!("sa");
    let places = [
        json!({"networks": ["127.1.0.0/16"], "region": "sa"}),
        json!({"networks": ["127.2.0.0/16"], "region": "eu"}),
    ];
    // The queue of a backend's listener is short: who does not fit in tries again a second later.
    let running = start(json!({"connect_seconds": 30}), &[quiet, lima], &places);
    // Four descriptors each, all of this process, which may have 20,000.
    let held: Vec<TcpStream> = (0..4_000).map(|_| connect_from("127.2.0.1", running.address)).collect();
    let stats = running.listener.stats();
    until("all are placed", || stats.open.load(Relaxed) == 4_000);
    for _ in 0..100 {
        assert_eq!(name_of(&mut connect_from("127.1.0.1", running.address), 4), "lima");
    }
    drop(held);
    until("all have left", || stats.open.load(Relaxed) == 0);
}

#[test]
fn at_most_eight_backends_are_tried_for_a_connection() {
    let backends = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|name| unchecked(name, nobody()));
    let running = start(json!({}), &backends, &[]);
    assert_eq!(name_of(&mut connect(running.address), 1), "");
    let newest = &running.edge.decisions().to_json()["decisions"][0];
    assert_eq!((&newest["attempts"], &newest["refused"]), (&json!(8), &json!("unreachable")));
    let failures: Vec<u64> = running.edge.backends().iter().map(|report| report.failures).collect();
    assert_eq!(failures, [1, 1, 1, 1, 1, 1, 1, 1, 0], "the ninth is not asked");
    assert_eq!(running.listener.stats().refused[Refusal::Unreachable as usize].load(Relaxed), 1);
}
