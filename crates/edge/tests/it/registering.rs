//! What a backend is told that registers.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Running, config, connect, named, start};
use serde_json::{Value, json};
use tidegate_edge::registration::{
    AddressRules, Admission, MemoryStore, RegistrationApi, Registry, TEMPLATES, Unadmitted,
};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::stats::Stats;

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admit(&self, _changes: bool, _secret: Option<&[u8]>) -> Result<Option<Arc<str>>, Unadmitted> {
        Ok(None)
    }
}

/// Where backends of an edge register.
fn registration(running: &Running) -> SocketAddr {
    let edge = Arc::clone(&running.edge);
    let store = Arc::new(MemoryStore::new(Arc::clone(&edge), config(&[], &[])));
    let clock = edge.clock();
    let registry = Arc::new(Registry::new(Arc::clone(&edge), store, clock, Duration::from_secs(3_600)));
    let rules = AddressRules { allowed: Vec::new(), allows_loopback: true };
    let api = RegistrationApi { edge, registry, rules, admission: Arc::new(Everybody) };
    let cores = running.cores.as_ref().unwrap();
    let gate = Gate {
        permits: Permits::new(64),
        buffers: Buffers::new(1 << 20),
        drain: running.drain.clone(),
        stats: Arc::new(Stats::new(2, TEMPLATES)),
    };
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = Listeners::bind(&ListenConfig::new(local, NonZeroUsize::MIN)).unwrap();
    let address = sockets.address();
    Server::new(api, HttpConfig::default(), gate).start(cores, sockets);
    address
}

/// The status and the text of the answer to a registration.
fn register(api: SocketAddr, document: &Value) -> (u16, String) {
    let body = document.to_string();
    let mut stream = connect(api);
    let head = "POST /api/v1/register HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json";
    stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    (reply[9..12].parse().unwrap(), reply)
}

#[test]
fn a_backend_that_will_get_no_connections_is_told_so() {
    let listener = json!({"app": "web", "server_names": [{"names": ["shop.example"], "app": "shop"}]});
    let running = start(listener, &[], &[]);
    let api = registration(&running);
    let port = named("rio").port();
    let document = |app: &str, weight: u32| json!({"id": format!("{app}-{weight}"), "app": app, "ip": "127.0.0.1", "port": port, "weight": weight});
    for (app, weight, told) in [
        ("web", 1, "it gets connections from now on"),
        ("shop", 1, "it gets connections from now on"),
        ("web", 0, "it gets no connections while its weight is 0"),
        ("wbe", 1, "no listener of this edge is for the app"),
    ] {
        let (status, reply) = register(api, &document(app, weight));
        assert!(status == 201 && reply.contains(told), "{app} {weight}: {reply}");
    }
}

#[test]
fn fault_67_the_edges_own_address_is_no_backends() {
    let running = start(json!({"app": "web"}), &[], &[]);
    let api = registration(&running);
    let mut document = json!({"id": "loop", "app": "web", "ip": "127.0.0.1", "port": running.address.port()});
    let (status, reply) = register(api, &document);
    assert!(status == 422 && reply.contains("connections would go in circles"), "{reply}");
    assert!(running.edge.backends().is_empty());
    document["port"] = json!(named("rio").port());
    assert_eq!(register(api, &document).0, 201);
    assert_eq!(running.edge.backends().len(), 1);
}
