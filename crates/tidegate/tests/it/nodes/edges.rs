//! Three edges on one real PostgreSQL: what registers at one, or is put there, is routed to by all, and nothing is lost with
//! the database. How soon is measured by `regression/edge/convergence.py`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

use crate::nodes::{metric, node};
use crate::support::edge::{PATIENCE, answers, echo, free, until, visit};
use crate::support::{Tidegate, agent};

/// A node with an edge.
struct EdgeNode {
    process: Tidegate,
    edge: SocketAddr,
    api: SocketAddr,
}

impl EdgeNode {
    fn start(server: &PostgresServer, heartbeat_ttl: &str) -> Self {
        let (edge, api) = (free(), free());
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
        let file = format!(
            "edge.listener = [{{ listen = \"{edge}\", affinity = \"off\" }}]\nedge.api_listen = \"{api}\"\n\
             edge.heartbeat_ttl = \"{heartbeat_ttl}\"\n"
        );
        Self { process: node(&file, &[("TIDEGATE_CONTROL", &url)]), edge, api }
    }

    /// Registers a backend; the status.
    fn register(&self, id: &str, backend: SocketAddr) -> u16 {
        let body = json!({"id": id, "app": "default", "ip": "127.0.0.1", "port": backend.port(), "hard_limit": 10_000,
            "check": {"kind": "off"}});
        let url = format!("http://{}/api/v1/register", self.api);
        agent().post(url).send_json(body).unwrap().status().as_u16()
    }

    /// Puts a document; the status.
    fn put(&self, path: &str, body: &Value) -> u16 {
        agent().put(self.process.url(path)).send_json(body).unwrap().status().as_u16()
    }

    fn delete(&self, path: &str) -> u16 {
        agent().delete(self.process.url(path)).call().unwrap().status().as_u16()
    }

    /// Where a connection from 127.0.0.1 would go, and the region that its client is in.
    fn next(&self) -> [Value; 2] {
        let url = self.process.url("/v1/explain/edge?client_ip=127.0.0.1");
        let said: Value = agent().get(url).call().unwrap().body_mut().read_json().unwrap();
        [said["next"].clone(), said["region"].clone()]
    }

    fn heartbeat(&self, id: &str) -> u16 {
        let url = format!("http://{}/api/v1/heartbeat/{id}", self.api);
        agent().post(url).send_empty().unwrap().status().as_u16()
    }

    fn registered(&self) -> Vec<String> {
        let url = format!("http://{}/api/v1/backends", self.api);
        let list: Value = agent().get(url).call().unwrap().body_mut().read_json().unwrap();
        let ids = list["backends"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned());
        ids.collect()
    }

    fn has(&self, id: &str) -> bool {
        self.registered().iter().any(|other| other == id)
    }

    /// Waits until a backend is in force here, or is not any more.
    fn after(&self, id: &str, is_there: bool) {
        let began = Instant::now();
        while self.has(id) != is_there {
            assert!(began.elapsed() < PATIENCE, "{id} is there: {}", !is_there);
        }
    }

    fn readiness(&self) -> String {
        let mut reply = agent().get(self.process.url("/readyz?verbose")).call().unwrap();
        assert_eq!(reply.status(), 200, "it serves");
        reply.body_mut().read_to_string().unwrap()
    }
}

#[test]
fn what_registers_at_one_node_is_routed_to_by_all() {
    let server = PostgresServer::start(&[]);
    let nodes = [(); 3].map(|()| EdgeNode::start(&server, "1m"));
    for (turn, from) in nodes.iter().cycle().take(6).enumerate() {
        let id = format!("backend-{turn}");
        assert_eq!(from.register(&id, echo()), 201);
        for node in &nodes {
            node.after(&id, true);
            assert!(visit("127.0.0.1", node.edge).1);
        }
        let url = format!("http://{}/api/v1/backends/{id}", from.api);
        assert_eq!(agent().delete(url).call().unwrap().status(), 200);
        for node in &nodes {
            node.after(&id, false);
        }
    }
}

#[test]
fn of_two_that_register_and_remove_the_same_at_once_all_nodes_keep_one_word_and_no_connection_is_lost() {
    let server = PostgresServer::start(&[]);
    let nodes = [(); 2].map(|()| EdgeNode::start(&server, "1m"));
    assert_eq!(nodes[0].register("always", echo()), 201);
    nodes[1].after("always", true);
    let (stop, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtTheEnd(&stop);
        let writers = nodes.each_ref().map(|node| {
            scope.spawn(|| {
                let backend = echo();
                for turn in 0..40 {
                    assert_eq!(node.register("both", backend), 201);
                    let id = format!("turn-{}", turn % 3);
                    assert_eq!(node.register(&id, backend), 201);
                    let url = format!("http://{}/api/v1/backends/{id}", node.api);
                    let removed = agent().delete(url).call().unwrap().status().as_u16();
                    assert!(matches!(removed, 200 | 404), "{removed}");
                }
            })
        });
        let clients = nodes.each_ref().map(|node| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert!(visit("127.0.0.1", node.edge).1, "a connection is lost");
                    #[allow(clippy::disallowed_methods, reason = "a pace, which no event sets")]
                    // Sleeps because thousands of connections a second would leave no port to what starts next.
                    std::thread::sleep(Duration::from_millis(5));
                    visits.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    });
    assert!(visits.load(Ordering::Relaxed) > 0);
    let described = |node: &EdgeNode, id: &str| {
        let reply = agent().get(format!("http://{}/api/v1/backends/{id}", node.api)).call().unwrap();
        let found: Value = reply.into_body().read_json().unwrap();
        found["port"].clone()
    };
    until("both say the same", || {
        nodes[0].registered() == nodes[1].registered()
            && nodes[0].has("both")
            && described(&nodes[0], "both") == described(&nodes[1], "both")
    });
    // It is the one's or the other's, and that one alone takes its heartbeats, once the other has looked again.
    until("one of them counts for it", || {
        nodes.iter().filter(|node| node.heartbeat("both") == 200).count() == 1
    });
}

/// A backend that is not checked, as it is put.
fn unchecked(address: SocketAddr, region: &str) -> Value {
    json!({"address": address.to_string(), "region": region, "check": {"kind": "off"}})
}

#[test]
fn backends_and_places_that_are_put_at_one_node_are_in_force_at_all_and_outlive_the_database() {
    let mut server = PostgresServer::start(&[]);
    let nodes = [(); 3].map(|()| EdgeNode::start(&server, "1m"));
    assert_eq!(nodes[0].put("/v1/edge/backends/rio", &unchecked(echo(), "sa")), 200);
    for node in &nodes {
        until("it is there", || node.next()[0] == "rio");
    }
    let mut held: Vec<_> = nodes.iter().map(|node| visit("127.0.0.1", node.edge)).collect();
    assert!(held.iter().all(|(_, is_served)| *is_served), "each node's listener has it");
    assert_eq!(nodes[1].put("/v1/edge/backends/dublin", &unchecked(echo(), "eu")), 200);
    let here = json!({"networks": ["127.0.0.0/8"], "region": "eu"});
    assert_eq!(nodes[2].put("/v1/edge/places/here", &here), 200);
    for node in &nodes {
        until("the clients are moved", || node.next() == ["dublin", "eu"]);
    }

    server.crash();
    for node in &nodes {
        until("it notices", || metric(&node.process, "tidegate_control_reachable") == 0);
        assert_eq!(node.next(), ["dublin", "eu"]);
        assert!(visit("127.0.0.1", node.edge).1);
    }
    assert_eq!(nodes[1].put("/v1/edge/backends/more", &unchecked(echo(), "eu")), 503, "nothing is promised");
    server.restart();
    let [first, second, third] = &nodes;
    let mut drained = unchecked(echo(), "eu");
    drained["drain"] = json!(true);
    until("changes are taken again", || first.put("/v1/edge/backends/dublin", &drained) == 200);
    for node in &nodes {
        until("it drains", || node.next() == ["rio", "eu"]);
        assert!(visit("127.0.0.1", node.edge).1);
    }
    assert_eq!(second.delete("/v1/edge/backends/rio"), 204);
    assert_eq!(third.delete("/v1/edge/backends/dublin"), 204);
    for node in &nodes {
        until("all are gone", || node.next()[0].is_null());
        assert!(!visit("127.0.0.1", node.edge).1);
    }
    for (stream, _) in &mut held {
        assert!(answers(stream), "a running connection was lost");
    }
}

#[test]
fn fault_68_without_the_database_all_nodes_serve_by_their_last_copy_and_lose_no_connection() {
    let mut server = PostgresServer::start(&[]);
    let nodes = [(); 3].map(|()| EdgeNode::start(&server, "1m"));
    assert_eq!(nodes[0].register("first", echo()), 201);
    for node in &nodes {
        node.after("first", true);
    }
    let mut held: Vec<_> = nodes.iter().map(|node| visit("127.0.0.1", node.edge)).collect();
    assert!(held.iter().all(|(_, is_served)| *is_served));
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtTheEnd(&stop);
        for node in &nodes {
            let (stop, served, edge) = (&stop, &served, node.edge);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(edge).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    assert!(answers(&mut stream), "a connection was lost");
                    #[allow(clippy::disallowed_methods, reason = "a pace, which no event sets")]
                    // Sleeps because thousands of connections a second would leave no port to what starts next.
                    std::thread::sleep(Duration::from_millis(5));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let more = || {
            let before = served.load(Ordering::Relaxed);
            until("connections are served", || served.load(Ordering::Relaxed) > before + 200);
        };
        more();
        server.crash();
        for node in &nodes {
            until("it notices", || metric(&node.process, "tidegate_control_reachable") == 0);
            let said = node.readiness();
            assert!(said.contains("the configuration cannot be changed: its database is away"), "{said}");
            assert_eq!(node.registered(), ["first"]);
        }
        assert_eq!(nodes[1].register("second", echo()), 503, "what cannot be kept is not promised");
        more();
        server.restart();
        for node in &nodes {
            until("it is back", || metric(&node.process, "tidegate_control_reachable") == 1);
        }
        let mut status = 503;
        until("registrations are taken again", || {
            status = nodes[1].register("second", echo());
            status == 201
        });
        for node in &nodes {
            node.after("second", true);
        }
        more();
    });
    for (stream, _) in &mut held {
        assert!(answers(stream), "a running connection was lost");
    }
}

#[test]
fn a_backend_of_a_node_that_is_gone_moves_to_another_or_is_removed() {
    let server = PostgresServer::start(&[]);
    let [first, second, third] = [(); 3].map(|()| EdgeNode::start(&server, "2s"));
    assert_eq!((first.register("moves", echo()), first.register("dies", echo())), (201, 201));
    second.after("moves", true);
    third.after("dies", true);
    assert_eq!(second.heartbeat("moves"), 404, "its heartbeats go to the node where it registered");
    // While their node is there, the others leave them alone.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        assert_eq!((first.heartbeat("moves"), first.heartbeat("dies")), (200, 200));
        std::thread::park_timeout(Duration::from_millis(200));
    }
    first.process.signal("KILL");
    assert_eq!(second.register("moves", echo()), 201);
    let gone = Instant::now();
    let mut is_there = true;
    while is_there {
        assert!(gone.elapsed() < PATIENCE, "nobody removes it");
        assert_eq!(second.heartbeat("moves"), 200, "its new node knows it");
        is_there = third.has("dies");
        std::thread::park_timeout(Duration::from_millis(200));
    }
    second.after("dies", false);
    assert_eq!(
        (second.registered(), third.registered()),
        (vec!["moves".to_owned()], vec!["moves".to_owned()])
    );
    let audit =
        agent().get(second.process.url("/v1/audit")).call().unwrap().body_mut().read_to_string().unwrap();
    assert_eq!(audit.matches("\"actor\":\"heartbeat\"").count(), 1, "it is removed once: {audit}");
}

/// A node whose edge and gateway check one backend as it says.
fn checking(server: &PostgresServer, backend: SocketAddr, edge: &str, gateway: &str) -> Tidegate {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let file = format!(
        "edge.listener = [{{ listen = \"{}\" }}]\nedge.api_listen = \"off\"\n\
         edge.backend = [{{ name = \"web\", address = \"{backend}\", check = {{ {edge} }} }}]\n\
         gateway.listener = [{{ listen = \"{}\" }}]\nroute = [{{ name = \"all\", upstream = \"app\" }}]\n\
         upstream = [{{ name = \"app\", servers = [\"{backend}\"], check = {{ {gateway} }} }}]\n",
        free(),
        free()
    );
    node(&file, &[("TIDEGATE_CONTROL", &url)])
}

/// Whether the edge and the gateway of a node take the backend to be up.
fn is_up(node: &Tidegate, backend: SocketAddr) -> [bool; 2] {
    let edge = "tidegate_edge_backend_up{app=\"default\",region=\"\",backend=\"web\"}";
    let gateway = format!("tidegate_upstream_server_up{{upstream=\"app\",server=\"{backend}\"}}");
    [edge, &gateway].map(|series| metric(node, series) == 1)
}

#[test]
fn what_one_nodes_checks_find_the_others_look_at_at_once_and_believe_only_themselves() {
    let server = PostgresServer::start(&[]);
    let backend = free();
    // Nobody is there yet. Left to itself, this one would be certain after two hours.
    let patient = "interval_seconds = 3600, fall = 3, rise = 2";
    let patient = checking(&server, backend, patient, patient);
    assert_eq!(is_up(&patient, backend), [true, true]);
    let heard = || metric(&patient, "tidegate_control_messages_total{result=\"heard\"}");
    until("it listens", || {
        server.sql("SELECT pg_notify('tidegate_messages', '0 not about health')");
        heard() > 0
    });
    let eager = "interval_seconds = 0.1, fall = 1, rise = 1";
    let eager = checking(&server, backend, eager, eager);
    until("one finds it down", || is_up(&eager, backend) == [false, false]);
    until("the other looks, and finds it down too", || is_up(&patient, backend) == [false, false]);
    let visits = Arc::new(AtomicU64::new(0));
    let (listener, counted) = (TcpListener::bind(backend).unwrap(), Arc::clone(&visits));
    std::thread::spawn(move || {
        for _stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    until("one finds it up", || is_up(&eager, backend) == [true, true]);
    until("the other looks, and finds it up too", || is_up(&patient, backend) == [true, true]);
    drop(eager);
    // This one asks for what the backend does not speak.
    let before = visits.load(Ordering::SeqCst);
    let strict = "interval_seconds = 3600, fall = 1, path = \"/\"";
    let strict = checking(&server, backend, &format!("kind = \"http\", {strict}"), strict);
    until("it finds it down", || is_up(&strict, backend) == [false, false]);
    until("all four have looked", || visits.load(Ordering::SeqCst) >= before + 4);
    assert_eq!(is_up(&patient, backend), [true, true], "it can be reached from there");
    assert!(heard() >= 7, "each of the three told of both");
}

/// Ends the clients however the test ends.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
