//! What edges on one database share beside their backends: where they listen, and what an app may have over all of them.

use std::net::SocketAddr;
use std::process::Command;

use tidegate_testkit::postgres::PostgresServer;

use crate::nodes::{metric, node};
use crate::support::Tidegate;
use crate::support::edge::{answers, echo, free, until, visit};

/// A node in a region whose listener is at an address of its own, and where it answers questions about names.
fn pop(server: &PostgresServer, region: &str, host: &str) -> (Tidegate, SocketAddr) {
    pop_that_advertises(server, region, host, "[]")
}

/// The same, of which names have other addresses than its listener's.
fn pop_that_advertises(
    server: &PostgresServer,
    region: &str,
    host: &str,
    addresses: &str,
) -> (Tidegate, SocketAddr) {
    let (names, port) = (free(), free().port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let file = format!(
        "[edge]\nregion = \"{region}\"\napi_listen = \"off\"\ndns_listen = \"{names}\"\n\
         advertise = {addresses}\nlistener = [{{ listen = \"{host}:{port}\" }}]\n"
    );
    (node(&file, &[("TIDEGATE_CONTROL", &url)]), names)
}

/// The addresses of a name, in the order of the answer.
fn addresses(names: SocketAddr, name: &str) -> Vec<String> {
    let port = names.port().to_string();
    let question = ["@127.0.0.1", "-p", &port, "+short", "+tries=3", "+time=20", name];
    let asked = Command::new("dig").args(question).output().unwrap();
    String::from_utf8(asked.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_node_knows_where_the_listeners_of_all_are_by_region_until_they_go() {
    let mut server = PostgresServer::start(&[]);
    let (near, names) = pop(&server, "eu", "127.0.0.1");
    let (second, of_second) = pop(&server, "eu", "127.0.0.2");
    let (far, of_far) = pop(&server, "sa", "127.0.0.3");
    until("the first hears of the second", || {
        addresses(names, "eu.pops.internal") == ["127.0.0.1", "127.0.0.2"]
    });
    until("the second hears of the first", || {
        addresses(of_second, "eu.pops.internal") == ["127.0.0.2", "127.0.0.1"]
    });
    until("the other region does", || addresses(of_far, "eu.pops.internal") == ["127.0.0.1", "127.0.0.2"]);
    until("and is heard of", || addresses(names, "sa.pops.internal") == ["127.0.0.3"]);
    assert!(addresses(names, "us.pops.internal").is_empty());
    server.crash();
    until("it notices", || metric(&near, "tidegate_control_reachable") == 0);
    assert_eq!(addresses(names, "sa.pops.internal"), ["127.0.0.3"], "the last that was heard stays");
    server.restart();
    for node in [&near, &second, &far] {
        until("it is back", || metric(node, "tidegate_control_reachable") == 1);
    }
    second.signal("TERM");
    until("one that drains is no longer named", || addresses(of_far, "eu.pops.internal") == ["127.0.0.1"]);
    far.signal("KILL");
    until("one that is gone is forgotten", || addresses(names, "sa.pops.internal").is_empty());
    assert_eq!(addresses(names, "eu.pops.internal"), ["127.0.0.1"]);
}

/// As in a container, which has one address that its listener does not know.
#[test]
fn a_node_on_every_address_of_its_machine_is_in_names_by_the_addresses_that_it_advertises() {
    let server = PostgresServer::start(&[]);
    let (_near, names) = pop(&server, "eu", "127.0.0.1");
    let (_wild, of_wild) = pop_that_advertises(&server, "eu", "0.0.0.0", "[\"127.0.0.9\", \"127.0.0.8\"]");
    // Another one does not say where it is, and is in no name.
    let (_mute, of_mute) = pop(&server, "eu", "0.0.0.0");
    until("the others are told what the second advertises", || {
        addresses(names, "eu.pops.internal") == ["127.0.0.1", "127.0.0.8", "127.0.0.9"]
            && addresses(of_mute, "eu.pops.internal") == ["127.0.0.1", "127.0.0.8", "127.0.0.9"]
    });
    until("the second comes first where it is asked", || {
        addresses(of_wild, "eu.pops.internal") == ["127.0.0.9", "127.0.0.8", "127.0.0.1"]
    });
}

#[test]
fn fault_44_an_app_has_no_more_connections_over_all_nodes_than_its_policy_says() {
    let mut server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let backend = echo();
    let start = |edge: SocketAddr| {
        let file = format!(
            "policy = [{{ name = \"app\", algorithm = \"concurrency\", limit = 3, lease_seconds = 60, key = [\"app\"], \
             on_store_failure = \"closed\" }}]\n\
             edge.api_listen = \"off\"\nedge.listener = [{{ listen = \"{edge}\", policies = [\"app\"] }}]\n\
             edge.backend = [{{ name = \"echo\", address = \"{backend}\", check = {{ kind = \"off\" }} }}]\n"
        );
        node(
            &file,
            &[("TIDEGATE_STORE", &url), ("TIDEGATE_CONTROL", "local"), ("TIDEGATE_SHARED_DEADLINE", "5s")],
        )
    };
    let edges = [free(), free()];
    let _nodes = edges.map(start);
    let visits = [edges[0], edges[1], edges[0]].map(|edge| visit("127.0.0.1", edge));
    assert!(visits.iter().all(|(_, is_served)| *is_served), "three are what the app may have");
    for (at, edge) in edges.into_iter().enumerate() {
        assert!(!visit(&format!("127.0.1.{at}"), edge).1, "it has three, wherever they are");
    }
    let [first, mut second, third] = visits;
    drop(first);
    until("there is room at the other node, too", || visit("127.0.0.1", edges[1]).1);
    server.crash();
    for edge in edges {
        assert!(!visit("127.0.0.1", edge).1, "nobody knows how many there are");
    }
    assert!(answers(&mut second.0), "what runs goes on");
    server.restart();
    until("it is known again", || visit("127.0.0.1", edges[0]).1);
    drop(third);
}
