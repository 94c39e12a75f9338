//! Backends and clients that misbehave, on real sockets.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};

use serde_json::json;
use support::{Peak, backend, connect, connect_from, name_of, named, patient, start, unchecked, until};
use tidegate_edge::stats::Refusal;

/// A listener whose queue is full, so that the kernel drops every further attempt to connect: nothing answers.
fn black_hole() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener: TcpListener = socket.into();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, std::time::Duration::from_millis(200)) {
        held.push(stream);
    }
    (address, held, listener)
}

#[test]
fn fault_39_a_backend_that_does_not_answer_costs_its_time_and_the_next_one_is_tried() {
    let (hole, _held, _listener) = black_hole();
    let lima = named("lima");
    // Nearer, and so the first that is tried.
    let mut nearer = unchecked("hole", hole);
    nearer["region"] = json!("sa");
    let places = [json!({"networks": ["127.0.0.0/8"], "region": "sa"})];
    let running = start(json!({"connect_seconds": 0.4}), &[unchecked("lima", lima), nearer], &places);
    let began = tidegate_net::clock::monotonic();
    assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    assert!(began.elapsed() >= std::time::Duration::from_millis(400));
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
    let running = start(json!({"connect_seconds": 0.3}), &backends, &[]);
    let mut client = connect(running.address);
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    let newest = &running.edge.decisions().to_json()["decisions"][0];
    assert_eq!((&newest["attempts"], &newest["refused"]), (&json!(2), &json!("unreachable")));
    let refused = &running.listener.stats().refused;
    assert_eq!(refused[Refusal::Unreachable as usize].load(Relaxed), 1);
}

#[test]
fn a_backend_that_is_gone_loses_its_clients_to_the_next_and_is_taken_out() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
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
    assert!(of_gone.is_ejected && of_gone.failures == 5, "{of_gone:?}");
    assert_eq!(running.listener.stats().retries.load(Relaxed), 5, "nobody asks it any more");
}

#[test]
fn fault_67_ten_thousand_connects_never_pass_a_limit() {
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
fn fault_40_checks_take_a_backend_down_and_close_its_connections_if_asked_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = std::sync::mpsc::sync_channel::<()>(1);
    let serving = std::thread::spawn(move || {
        listener.set_nonblocking(true).unwrap();
        let mut held = Vec::new();
        // Until it is told to stop, which closes the listener and none of its connections.
        while receiver.recv_timeout(std::time::Duration::from_millis(2)).is_err() {
            if let Ok((mut stream, _)) = listener.accept()
                && stream.write_all(b"rio").is_ok()
            {
                held.push(stream);
            }
        }
        drop(listener);
        held
    });
    let check = json!({"kind": "tcp", "interval_seconds": 0.1, "timeout_seconds": 5, "fall": 2, "rise": 1});
    let rio = json!({"name": "rio", "address": address.to_string(), "check": check});
    let lima = unchecked("lima", named("lima"));
    let running = start(json!({"on_unhealthy": "close"}), &[rio.clone(), lima.clone()], &[]);
    let mut client = connect(running.address);
    assert_eq!(name_of(&mut client, 3), "rio");
    sender.send(()).unwrap();
    let held = serving.join().unwrap();
    assert!(client.read(&mut [0]).is_err(), "it is reset: what it was sent is not whole");
    let report = |running: &support::Running| {
        running.edge.backends().into_iter().find(|report| &*report.name == "rio").unwrap()
    };
    assert!(!report(&running).is_up);
    until("it is counted", || report(&running).closed_unhealthy == 1);
    assert_eq!(name_of(&mut connect(running.address), 4), "lima");
    drop(held);
}

#[test]
fn checks_ask_what_they_are_told_to() {
    let http = |status: &'static str| {
        backend(move |mut stream| {
            let mut request = [0; 512];
            let count = stream.read(&mut request).unwrap_or(0);
            let is_right = request[..count].starts_with(b"GET /healthz HTTP/1.1\r\n");
            let status = if is_right { status } else { "400 Bad Request" };
            drop(stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()));
        })
    };
    let check = |kind: &str| json!({"kind": kind, "interval_seconds": 0.1, "fall": 1, "rise": 1});
    let mut of_http = check("http");
    of_http["path"] = json!("/healthz");
    let document = |name: &str, address: SocketAddr, check: &serde_json::Value| json!({"name": name, "address": address.to_string(), "check": check});
    let backends = [
        document("good", http("204 No Content"), &of_http),
        document("bad", http("503 Service Unavailable"), &of_http),
        document("no-tls", named("hello"), &check("tls")),
        document("there", named("x"), &check("tcp")),
    ];
    let running = start(json!({}), &backends, &[]);
    let up = |running: &support::Running| -> Vec<bool> {
        running.edge.backends().iter().map(|report| report.is_up).collect()
    };
    until("the checks have spoken", || up(&running) == [true, false, false, true]);
}
