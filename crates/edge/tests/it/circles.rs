//! Backends that are this edge itself: connections to them would come back, and be passed on again.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use crate::support;
use crate::support::{connect, name_of, named, report, start, unchecked};
use serde_json::{Value, json};
use tidegate_edge::stats::Refusal;

fn at(name: &str, address: &str) -> Value {
    json!({"name": name, "address": address, "check": {"kind": "off"}})
}

#[test]
fn fault_67_a_backend_that_is_a_listener_of_this_edge_gets_nothing() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let running = start(json!({"listen": listen}), &[], &[]);
        let port = running.address.port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let own = at("own", &address.to_string());
        running.edge.apply(&support::config(std::slice::from_ref(&own), &[]));
        assert_eq!(name_of(&mut connect(address), 3), "", "{listen}");
        let stats = running.listener.stats();
        assert_eq!(stats.placed.load(Relaxed), 0);
        assert_eq!(report(&running, "own").connections, 0, "it is not even connected to");
        running.edge.apply(&support::config(&[own, unchecked("rio", named("rio"))], &[]));
        assert_eq!(name_of(&mut connect(address), 3), "rio");
        assert_eq!(stats.retries.load(Relaxed), 0);
    }
}

#[test]
fn fault_67_a_name_that_leads_back_to_this_edge_is_found_out_by_the_first_connection() {
    let running = start(json!({"listen": "127.0.0.1:0"}), &[], &[]);
    let own = at("own", &format!("localhost:{}", running.address.port()));
    running.edge.apply(&support::config(std::slice::from_ref(&own), &[]));
    for _ in 0..3 {
        assert_eq!(name_of(&mut connect(running.address), 3), "");
    }
    let stats = running.listener.stats();
    support::until("all have been refused", || {
        let refused = |why: Refusal| stats.refused[why as usize].load(Relaxed);
        // The three, and what came back by the first of them.
        refused(Refusal::NoBackend) + refused(Refusal::Unreachable) >= 4
    });
    assert_eq!(stats.placed.load(Relaxed), 0);
    running.edge.apply(&support::config(&[own, unchecked("rio", named("rio"))], &[]));
    assert_eq!(name_of(&mut connect(running.address), 3), "rio");
}
