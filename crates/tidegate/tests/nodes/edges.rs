//! Three edges on one real PostgreSQL: what registers at one is routed to by all, and nothing is lost with the database.
//! How soon is measured by `regression/edge/convergence.py`.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

use crate::support::edge::{PATIENCE, answers, echo, free, until, visit};
use crate::support::{Tidegate, agent};
use crate::{metric, node};

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
                    served.fetch_add(1, Ordering::Relaxed);
                    std::thread::park_timeout(Duration::from_millis(5));
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
    assert_eq!(
        (second.registered(), third.registered()),
        (vec!["moves".to_owned()], vec!["moves".to_owned()])
    );
    let audit =
        agent().get(second.process.url("/v1/audit")).call().unwrap().body_mut().read_to_string().unwrap();
    assert_eq!(audit.matches("\"actor\":\"heartbeat\"").count(), 1, "it is removed once: {audit}");
}

/// Ends the clients however the test ends.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
