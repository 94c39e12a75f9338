//! Distance by measurement: a backend that connecting to takes a second, and one that it takes nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use crate::support::{Running, config, connect, name_of, named, start, until};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_edge::config::EdgeConfig;
use tidegate_edge::explain::{Question, explain};

const MS: u64 = 1_000_000;

/// A backend that connecting to takes a second from the second time on. Its queue has room for one connection, which
/// stays there for longer than the pause between two checks: the kernel drops the first packet of the next one, and
/// the other side's kernel repeats it a second later.
fn distant() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        loop {
            poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap();
            std::thread::park_timeout(Duration::from_millis(500));
            drop(listener.accept().unwrap());
        }
    });
    address
}

fn explained(running: &Running) -> Value {
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let question = Question { client, listener: None, server_name: None };
    explain(std::slice::from_ref(&running.listener), &question).unwrap()
}

/// What is said of a backend.
fn row(running: &Running, name: &str) -> Value {
    let explained = explained(running);
    let rows = explained["backends"].as_array().unwrap();
    rows.iter().find(|row| row["backend"] == name).unwrap().clone()
}

#[test]
fn connections_go_to_the_backend_that_is_near_by_measure_and_not_by_the_table() {
    let check = json!({"interval_seconds": 0.1, "timeout_seconds": 10});
    let backends = [
        json!({"name": "near", "address": named("near").to_string(), "country": "JP", "check": check}),
        json!({"name": "far", "address": distant().to_string(), "country": "BR", "check": check}),
    ];
    let places = [json!({"networks": ["127.0.0.0/8"], "country": "BR"})];
    let running = start(json!({"affinity": "off"}), &backends, &places);
    until("both are measured", || {
        ["near", "far"].iter().all(|name| row(&running, name)["round_trip_ms"].is_number())
    });
    let said = explained(&running);
    assert_eq!((&said["next"], &said["backends"][0]["tier_by"]), (&json!("far"), &json!("place")), "{said}");

    let round_trip_tiers = TierBounds::new([10 * MS, 40 * MS, 100 * MS]);
    running.edge.apply(&EdgeConfig { round_trip_tiers, ..config(&backends, &places) });
    // Its first connections found room in the queue: how far the far one is shows after some checks.
    until("near and far by measure", || {
        let far = row(&running, "far");
        explained(&running)["next"] == "near" && far["tier"] == "elsewhere" && far["tier_by"] == "round_trip"
    });
    let (near, far) = (row(&running, "near"), row(&running, "far"));
    let millis = |row: &Value| row["round_trip_ms"].as_f64().unwrap();
    assert!(millis(&near) < millis(&far) && millis(&far) > 100.0, "{near} {far}");
    assert_eq!(near["tier_by"], "round_trip");
    assert_eq!(name_of(&mut connect(running.address), 4), "near");
    let decisions = running.edge.decisions().to_json();
    let last = &decisions["decisions"][0];
    assert_eq!((&last["backend"], &last["tier_by"]), (&json!("near"), &json!("round_trip")), "{last}");

    // Without the bounds the table decides again, for the same backends.
    running.edge.apply(&config(&backends, &places));
    assert_eq!(explained(&running)["next"], "far");
}
