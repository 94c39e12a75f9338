//! Which backend connections go to when near ones have enough, and when one has just come, on real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::support;
use crate::support::{Running, connect, connect_from, name_of, named, start, unchecked, until};
use serde_json::{Value, json};
use tidegate_edge::config::{EdgeConfig, ListenerConfig};
use tidegate_edge::explain::{Question, explain};
use tidegate_edge::stats::Refusal;

/// A listener whose clients are in Brazil, with a backend there that is meant to have one connection and may have two,
/// and another one in their region.
fn regions(spill: &str, soft_limit_of_next: u32) -> Running {
    let near = json!({
        "name": "near", "address": named("near").to_string(), "country": "BR", "region": "sa", "soft_limit": 1,
        "hard_limit": 2, "check": {"kind": "off"},
    });
    let mut next = unchecked("next", named("next"));
    next["region"] = json!("sa");
    next["soft_limit"] = json!(soft_limit_of_next);
    let places = [json!({"networks": ["127.0.0.0/8"], "country": "BR", "region": "sa"})];
    start(json!({"spill": spill, "affinity": "off"}), &[next, near], &places)
}

/// So many connections that stay, and where each is.
fn visits(running: &Running, count: usize) -> (Vec<TcpStream>, Vec<String>) {
    (0..count)
        .map(|_| {
            let mut client = connect(running.address);
            let name = name_of(&mut client, 4);
            (client, name)
        })
        .unzip()
}

#[test]
fn clients_go_further_away_when_their_listener_says_so_and_not_before() {
    for (spill, soft_limit_of_next, expected) in [
        ("at-hard", 100, ["near", "near", "next", "next"]),
        ("at-soft", 100, ["near", "next", "next", "next"]),
        // All are at their soft limits: the nearer one again.
        ("at-soft", 1, ["near", "next", "near", "next"]),
        ("never", 100, ["near", "near", "", ""]),
    ] {
        let running = regions(spill, soft_limit_of_next);
        let (held, names) = visits(&running, 4);
        assert_eq!(names, expected, "{spill}");
        let full = running.listener.stats().refused[Refusal::Full as usize].load(Relaxed);
        assert_eq!(full, expected.iter().filter(|name| name.is_empty()).count() as u64, "{spill}");
        drop(held);
    }
}

/// A backend that may have one connection.
fn single(name: &str, address: SocketAddr) -> Value {
    let mut document = unchecked(name, address);
    document["hard_limit"] = json!(1);
    document
}

#[test]
fn a_backend_that_goes_and_comes_back_has_the_connections_that_it_had() {
    let (here, there) = (named("here"), named("away"));
    let running = start(json!({"affinity": "off"}), &[single("one", here)], &[]);
    let put = |backends: &[Value]| running.edge.apply(&support::config(backends, &[]));
    let (mut held, names) = visits(&running, 1);
    assert_eq!(names, ["here"]);
    // It is gone, and back: its heartbeats stopped for a while, say.
    put(&[]);
    assert_eq!(visits(&running, 1).1, [""]);
    put(&[]);
    put(&[single("one", here)]);
    assert_eq!(visits(&running, 1).1, [""], "it has as many as it may");
    // Another address is another backend.
    put(&[single("one", there)]);
    assert_eq!(visits(&running, 2).1, ["away", ""]);
    put(&[single("one", here)]);
    assert_eq!(visits(&running, 1).1, [""], "it is the one of before again");
    held[0].write_all(b"mine").unwrap();
    assert_eq!(name_of(&mut held[0], 4), "mine", "the first connection lives on");
    drop(held);
    until("it has left", || running.edge.backends()[0].open == 0);
    assert_eq!(visits(&running, 1).1, ["here"]);
}

/// What is said of a client's next connection.
fn explained(running: &Running, client: &str) -> Value {
    let question = Question { client: client.parse().unwrap(), listener: None, server_name: None };
    explain(std::slice::from_ref(&running.listener), &question).unwrap()
}

/// The name of a backend that is not used, and the reason.
fn not_used(row: &Value) -> Option<(&str, &str)> {
    Some((row["backend"].as_str()?, row["excluded"].as_str()?))
}

/// Of an explanation: where the connection would go, why, and which backends are not used for which reason.
fn reasons(said: &Value) -> (&str, &str, Vec<(&str, &str)>) {
    let rows = said["backends"].as_array().unwrap();
    (
        said["next"].as_str().unwrap_or_default(),
        said["why"].as_str().unwrap(),
        rows.iter().filter_map(not_used).collect(),
    )
}

#[test]
fn an_explanation_says_which_backends_are_not_looked_at_whatever_their_scores_are() {
    let running = regions("never", 100);
    let beyond = ("next", "there are nearer ones, and spill is \"never\"");
    let lowest = "it has the lowest score among the backends that are not left out";
    assert_eq!(reasons(&explained(&running, "127.0.0.1")), ("near", lowest, vec![beyond]));
    let (_held, _) = visits(&running, 2);
    let full = "the nearest backends are at their hard limits, and spill is \"never\"";
    let at_limit = ("near", "it is at its hard limit");
    assert_eq!(reasons(&explained(&running, "127.0.0.1")), ("", full, vec![beyond, at_limit]));

    // A backup that is nearer, and has the lower score.
    let mut backup = json!({
        "name": "back", "address": named("back").to_string(), "country": "BR", "priority": 1, "check": {"kind": "off"},
    });
    let main = single("main", named("main"));
    let places = [json!({"networks": ["127.0.0.0/8"], "country": "BR"})];
    let running = start(json!({"affinity": "off"}), &[backup.clone(), main.clone()], &places);
    let later = ("back", "backends of a lower priority number come first");
    assert_eq!(reasons(&explained(&running, "127.0.0.1")), ("main", lowest, vec![later]));
    let (_held, names) = visits(&running, 2);
    assert_eq!(names, ["main", "back"]);
    let at_limit = ("main", "it is at its hard limit");
    assert_eq!(
        reasons(&explained(&running, "127.0.0.1")),
        ("back", "it has the lowest score", vec![at_limit])
    );
    backup["drain"] = json!(true);
    running.edge.apply(&support::config(&[backup, main], &places));
    let said = explained(&running, "127.0.0.1");
    let full = "every backend that may be used is at its hard limit";
    assert_eq!(reasons(&said), ("", full, vec![at_limit, ("back", "it drains")]));
}

#[test]
fn a_client_is_forgotten_when_it_was_idle_for_too_long_and_not_while_it_has_a_connection() {
    let backends = [unchecked("one.", named("one.")), unchecked("two.", named("two."))];
    let running = start(json!({"affinity_seconds": 1}), &backends, &[]);
    let visit = |source: &str| {
        let mut client = connect_from(source, running.address);
        let name = name_of(&mut client, 4);
        (client, name)
    };
    let (_held, name) = visit("127.0.1.1");
    assert_eq!(name, "one.");
    // One that comes after it and leaves is idle for as long as clients are remembered.
    assert_eq!(visit("127.0.1.2").1, "two.");
    until("it is forgotten", || explained(&running, "127.0.1.2")["was_at"].is_null());
    let (_again, name) = visit("127.0.1.1");
    assert_eq!(name, "one.", "the other one has fewer connections");
    assert_eq!(running.listener.stats().affine.load(Relaxed), 1);
}

#[test]
fn a_backend_that_is_to_get_nothing_new_keeps_what_it_has() {
    let (old, other) = (named("old."), named("else"));
    for (key, value) in [("drain", json!(true)), ("weight", json!(0))] {
        let mut backends = [unchecked("old.", old), unchecked("else", other)];
        let running = start(json!({}), &backends, &[]);
        let (mut held, names) = visits(&running, 1);
        assert_eq!(names, ["old."]);
        assert_eq!(explained(&running, "127.0.0.1")["was_at"], "old.");
        backends[0][key] = value;
        running.edge.apply(&support::config(&backends, &[]));
        assert_eq!(visits(&running, 3).1, ["else"; 3], "{key}: not even its own client");
        held[0].write_all(b"mine").unwrap();
        assert_eq!(name_of(&mut held[0], 4), "mine", "{key}");
        assert_eq!(running.edge.backends()[0].open, 1, "{key}");
    }
}

#[test]
fn a_client_goes_elsewhere_when_the_backend_where_it_was_is_full() {
    let running = start(json!({}), &[single("full", named("full")), unchecked("else", named("else"))], &[]);
    let visit = |source: &str| {
        let mut client = connect_from(source, running.address);
        let name = name_of(&mut client, 4);
        (client, name)
    };
    let (held, name) = visit("127.0.1.1");
    assert_eq!(name, "full");
    drop(held);
    until("it has left", || running.edge.backends()[0].open == 0);
    let (held, name) = visit("127.0.1.2");
    assert_eq!(name, "full", "the first of two that are idle");
    assert_eq!(explained(&running, "127.0.1.1")["was_at"], "full");
    assert_eq!(visit("127.0.1.1").1, "else");
    drop(held);
    until("there is room", || running.edge.backends()[0].open == 0);
    assert_eq!(visit("127.0.1.1").1, "else", "this is where it was last");
}

fn slow(name: &'static str) -> Value {
    let mut document = unchecked(name, named(name));
    // Long enough for a whole test to be in its first tenth.
    document["slow_start_seconds"] = json!(3_600);
    document
}

#[test]
fn a_backend_that_comes_while_others_serve_starts_slowly_and_those_of_the_start_do_not() {
    let (old, other) = (slow("old."), slow("also"));
    let running = start(json!({"affinity": "off"}), &[old.clone(), other.clone()], &[]);
    let (held, names) = visits(&running, 20);
    let count = |names: &[String], name: &str| names.iter().filter(|it| *it == name).count();
    assert_eq!((count(&names, "old."), count(&names, "also")), (10, 10), "both are as warm");
    drop(held);
    until("all have left", || running.listener.stats().open.load(Relaxed) == 0);
    running.edge.apply(&support::config(&[old, slow("new.")], &[]));
    let (_held, names) = visits(&running, 22);
    assert_eq!((count(&names, "old."), count(&names, "new.")), (20, 2), "{names:?}");
}

#[test]
fn a_changed_listener_decides_of_new_connections_and_running_ones_keep_what_they_began_with() {
    let listen = format!("127.0.0.1:{}", tidegate_testkit::free_port());
    let mut shop = unchecked("shop", named("shop"));
    shop["app"] = json!("shop");
    let backends = [unchecked("web.", named("web.")), shop];
    let running = start(json!({"listen": listen}), &backends, &[]);
    let (mut held, names) = visits(&running, 1);
    assert_eq!(names, ["web."]);
    let put = |mut listener: Value, backends: &[Value]| {
        listener["listen"] = json!(listen);
        let listener = ListenerConfig::read(&listener, "").unwrap();
        let listeners = [Arc::new(listener)].into();
        running.edge.apply(&EdgeConfig { listeners, ..support::config(backends, &[]) });
    };
    // Another app, and connections end after a moment of silence.
    put(json!({"app": "shop", "idle_seconds": 0.3}), &backends[1..]);
    let (mut later, names) = visits(&running, 1);
    assert_eq!(names, ["shop"]);
    assert_eq!(later[0].read(&mut [0]).unwrap(), 0, "silence is bounded now");
    // It was silent for longer than that, and its app and backend are gone.
    held[0].write_all(b"here").unwrap();
    assert_eq!(name_of(&mut held[0], 4), "here");
    // A listener that has gone from the file is open, and stays as it was.
    running.edge.apply(&support::config(&backends, &[]));
    assert_eq!(visits(&running, 1).1, ["shop"]);
}
