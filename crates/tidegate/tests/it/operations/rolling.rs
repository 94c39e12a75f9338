//! An upgrade of the three nodes of `deploy/helm/rendered/cluster.yaml`, in the order in which Kubernetes does it:
//!
//! ```text
//!   delete ── the service forgets the node, while preStop waits ── SIGTERM, drain, end ── new node ── ready ── the service knows it
//! ```
//!
//! Requests come all the time, on connections that are kept and on new ones, to whom the service knows. None fails, and the
//! store has counted each of them once. The wait of preStop is there so that connections that were under way when the service forgot
//! the node have been taken; here the lock of [`Endpoints`] waits for just these, and no time is waited for. That the wait is
//! longer than a look of the kubelet's is read in `charts.rs`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

use crate::operations::charts::{at, environment, is_listener, manifests, pod, text};
use crate::operations::compose::{SECRET, field, texts};
use crate::support::edge::{PATIENCE, until};
use crate::support::{Tidegate, agent};

/// More than there will be requests, in a window that begins every 90 days.
const LIMIT: u64 = 1_000_000;
const ASK: &str = "POST /api/v1/ratelimit HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 43\r\n\r\n\
                   {\"client_id\":\"user123\",\"resource\":\"orders\"}";
/// Requests on a connection before the next one is opened.
const KEPT: u64 = 50;

/// Whom the service knows, and how many requests each has answered.
#[derive(Default)]
struct Endpoints {
    known: RwLock<Vec<SocketAddr>>,
    answered: Mutex<BTreeMap<SocketAddr, u64>>,
    stop: AtomicBool,
    total: AtomicU64,
}

impl Endpoints {
    /// Connects to the next one, as a proxy of connections does, and asks once; then is no longer in the way of a change.
    fn connect(&self, turn: usize) -> (SocketAddr, TcpStream, bool) {
        let known = self.known.read().unwrap();
        let address = known[turn % known.len()];
        let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let is_last = self.ask(address, &mut stream);
        (address, stream, is_last)
    }

    /// One request, which is answered and allowed; whether the node closes the connection then.
    fn ask(&self, address: SocketAddr, stream: &mut TcpStream) -> bool {
        stream.write_all(ASK.as_bytes()).unwrap_or_else(|error| panic!("{address}: {error}"));
        let mut reply = String::new();
        let mut buffer = [0; 2048];
        while !reply.ends_with('}') {
            let count =
                stream.read(&mut buffer).unwrap_or_else(|error| panic!("{address}: {error}: {reply}"));
            assert!(count > 0, "{address} did not answer a request: {reply}");
            reply.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.contains("{\"allowed\":true,"),
            "{address}: {reply}"
        );
        self.total.fetch_add(1, SeqCst);
        *self.answered.lock().unwrap().entry(address).or_default() += 1;
        reply.to_lowercase().contains("connection: close")
    }

    /// Asks until it is told to stop.
    fn client(&self, first: usize) {
        let mut turn = first;
        while !self.stop.load(SeqCst) {
            let (address, mut stream, mut is_last) = self.connect(turn);
            turn += 1;
            for _ in 0..KEPT {
                if is_last {
                    break;
                }
                is_last = self.ask(address, &mut stream);
            }
        }
    }

    fn answered_by(&self, node: &Tidegate) -> u64 {
        self.answered.lock().unwrap().get(&node.http).copied().unwrap_or_default()
    }
}

/// The store and the configuration of all nodes, and how a node is started.
struct Cluster {
    redis: RedisServer,
    postgres: PostgresServer,
    file: String,
    environment: Vec<(String, String)>,
}

impl Cluster {
    fn start() -> Self {
        let manifests = manifests("cluster");
        let file = texts(field(at(&manifests["ConfigMap"], "data"), "tidegate.toml").unwrap()).concat();
        assert!(file.contains("0.0.0.0:8080"));
        let container = at(pod(&manifests), "containers.0");
        let is_here =
            |name: &str| !is_listener(name) && !["TIDEGATE_DATA_DIR", "TIDEGATE_CONFIG"].contains(&name);
        let mut environment = environment(container);
        environment.retain(|(name, _)| is_here(name));
        // A machine that stands still for a moment is no store in trouble.
        for (name, value) in &mut environment {
            if name == "TIDEGATE_SHARED_DEADLINE" {
                "60s".clone_into(value);
            }
        }
        assert_eq!(text(&manifests["StatefulSet"], "spec.updateStrategy.type"), "RollingUpdate");
        let file = file.replace("0.0.0.0:8080", "127.0.0.1:0");
        Self { redis: RedisServer::start(&[]), postgres: PostgresServer::start(&[]), file, environment }
    }

    /// A node as the manifest has it, with the Secret that it names and ports of this machine.
    fn node(&self) -> Tidegate {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("tidegate.toml"), &self.file).unwrap();
        let store = format!("redis://127.0.0.1:{}/0", self.redis.port);
        let control = format!("postgres://postgres@127.0.0.1:{}/postgres", self.postgres.port);
        let mut settings: Vec<(&str, &str)> =
            self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        settings.extend([
            ("TIDEGATE_STORE", store.as_str()),
            ("TIDEGATE_CONTROL", control.as_str()),
            ("TIDEGATE_ADMIN_TOKEN", SECRET),
            ("TIDEGATE_GRPC_TOKEN", SECRET),
            ("TIDEGATE_RESP_PASSWORD", SECRET),
            ("TIDEGATE_INTAKE_LISTEN", "off"),
            ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ]);
        let node = Tidegate::start_in(data, &["--config", "tidegate.toml"], &settings);
        until("a node is ready", || {
            agent().get(node.url("/readyz")).call().is_ok_and(|it| it.status() == 200)
        });
        node
    }
}

fn limit(node: &Tidegate) -> Option<u64> {
    let asked = agent().get(node.url("/v1/policies/default"));
    let mut reply = asked.header("authorization", format!("Bearer {SECRET}")).call().ok()?;
    reply.body_mut().read_json::<Value>().ok()?["limit"].as_u64()
}

#[test]
fn three_nodes_are_replaced_in_turn_without_a_lost_request_and_with_each_counted_once() {
    let cluster = Cluster::start();
    let mut nodes: Vec<Tidegate> = (0..3).map(|_| cluster.node()).collect();
    let policy = json!({"algorithm": "fixed_window", "limit": LIMIT, "window_seconds": 7_776_000, "key": ["client_id"]});
    let put = agent().put(nodes[0].url("/v1/policies/default"));
    let put = put.header("authorization", format!("Bearer {SECRET}")).send_json(&policy).unwrap();
    assert!(put.status().is_success(), "{}", put.status());
    for node in &nodes {
        until("the policy is in force", || limit(node) == Some(LIMIT));
    }

    let service = Endpoints::default();
    service.known.write().unwrap().extend(nodes.iter().map(|node| node.http));
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..3)
            .map(|first| {
                threads.spawn({
                    let service = &service;
                    move || service.client(first)
                })
            })
            .collect();
        let is_asked = |node: &Tidegate| {
            until("it is asked", || {
                service.answered_by(node) > KEPT || clients.iter().any(|it| it.is_finished())
            });
        };
        // The last one first, as a StatefulSet does.
        for place in (0..nodes.len()).rev() {
            is_asked(&nodes[place]);
            let node = nodes.remove(place);
            service.known.write().unwrap().retain(|known| *known != node.http);
            node.signal("TERM");
            let ended = node.wait();
            assert!(ended.status.success(), "{}", ended.output);
            let next = cluster.node();
            assert_eq!(limit(&next), Some(LIMIT));
            service.known.write().unwrap().push(next.http);
            is_asked(&next);
            nodes.insert(place, next);
        }
        service.stop.store(true, SeqCst);
        // A client panics at what is not answered.
        for client in clients {
            client.join().unwrap();
        }
    });
    let body = json!({"client_id": "user123", "resource": "orders"});
    let mut reply = agent().post(nodes[0].url("/api/v1/ratelimit")).send_json(&body).unwrap();
    let answer: Value = reply.body_mut().read_json().unwrap();
    assert_eq!(answer["remaining"], LIMIT - service.total.load(SeqCst) - 1, "{answer}");
}
