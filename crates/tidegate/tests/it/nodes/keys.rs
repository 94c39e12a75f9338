//! API keys that are stored in PostgreSQL: issued and revoked at one node, in force at all.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

use crate::nodes::{metric, node};
use crate::support::{Tidegate, agent};

const FILE: &str = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n\
    route = [{ name = \"api\", auth = \"key\", respond = { body = \"ok\" } }]\n";

fn status(node: &Tidegate, key: &str) -> u16 {
    let request = agent().get(format!("http://{}/", node.gateway[0])).header("x-api-key", key);
    request.call().unwrap().status().as_u16()
}

/// How long until a node answers so.
fn answers_after(node: &Tidegate, key: &str, expected: u16) -> Duration {
    let start = Instant::now();
    while status(node, key) != expected {
        assert!(start.elapsed() < Duration::from_secs(60), "{expected} is never answered");
    }
    start.elapsed()
}

#[test]
fn a_revoked_key_is_unknown_at_the_other_node_within_a_second() {
    let server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let [a, b] = [(); 2].map(|()| node(FILE, &[("TIDEGATE_CONTROL", &url)]));
    let mut waits = Vec::new();
    for (from, other) in [(&a, &b), (&b, &a)].into_iter().cycle().take(10) {
        let mut reply = agent().post(from.url("/v1/keys")).send_json(json!({"consumer": "acme"})).unwrap();
        let issued: Value = reply.body_mut().read_json().unwrap();
        let (id, key) = (issued["id"].as_str().unwrap(), issued["key"].as_str().unwrap());
        assert_eq!(status(from, key), 200, "in force when it is answered");
        answers_after(other, key, 200);
        let revoked = agent().delete(from.url(&format!("/v1/keys/{id}"))).call().unwrap().status();
        assert_eq!((revoked.as_u16(), status(from, key)), (204, 401));
        waits.push(answers_after(other, key, 401));
    }
    // A machine that stands still may be late once or twice.
    waits.sort();
    assert!(waits[waits.len() - 3] < Duration::from_secs(1), "{waits:?}");
}

/// A key that was revoked while a node could not hear of it: good there until what the node knows is as old as is allowed, then
/// nobody's key is, if it was set up so.
#[test]
fn fault_46_a_node_that_is_cut_off_refuses_keys_once_they_are_too_old_if_it_is_to() {
    let server = PostgresServer::start(&[]);
    // The other nodes reach the database by a way that can be cut.
    let (own, cut) = (server.port, Cut::new(server.port));
    let url = |port: u16| format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let first = node(FILE, &[("TIDEGATE_CONTROL", &url(own))]);
    let strict = [("TIDEGATE_GATEWAY_KEYS_MAX_AGE", "5s"), ("TIDEGATE_GATEWAY_ON_STALE_KEYS", "refuse")];
    let second = node(FILE, &[("TIDEGATE_CONTROL", &*url(cut.port)), strict[0], strict[1]]);
    let third = node(FILE, &[("TIDEGATE_CONTROL", &url(cut.port))]);
    let mut reply = agent().post(first.url("/v1/keys")).send_json(json!({"consumer": "acme"})).unwrap();
    let issued: Value = reply.body_mut().read_json().unwrap();
    let (id, key) = (issued["id"].as_str().unwrap(), issued["key"].as_str().unwrap());
    answers_after(&second, key, 200);
    answers_after(&third, key, 200);
    cut.cut();
    let begun = Instant::now();
    assert_eq!(agent().delete(first.url(&format!("/v1/keys/{id}"))).call().unwrap().status(), 204);
    assert_eq!((status(&first, key), status(&second, key)), (401, 200), "the copy is younger than it may be");
    answers_after(&second, key, 503);
    // The last answer before the cut may be a look older.
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut told =
        agent().get(format!("http://{}/", second.gateway[0])).header("x-api-key", key).call().unwrap();
    assert_eq!(told.headers()["retry-after"], "1");
    assert!(told.body_mut().read_to_string().unwrap().contains("not heard of changes"));
    assert!(metric(&second, "tidegate_api_key_requests_total{result=\"stale\"}") >= 2);
    assert_eq!(status(&third, key), 200, "nobody has asked this node to refuse");
    cut.mend();
    answers_after(&second, key, 401);
    answers_after(&third, key, 401);
}

/// What a key's last use was is known at all nodes, and after all of them were killed.
#[test]
fn when_a_key_was_last_used_is_known_at_other_nodes_and_after_a_restart() {
    let server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let [a, b] = [(); 2].map(|()| node(FILE, &[("TIDEGATE_CONTROL", &url)]));
    let mut reply = agent().post(a.url("/v1/keys")).send_json(json!({"consumer": "acme"})).unwrap();
    let issued: Value = reply.body_mut().read_json().unwrap();
    let (id, key) = (issued["id"].as_str().unwrap(), issued["key"].as_str().unwrap());
    answers_after(&b, key, 200);
    let last_used = |node: &Tidegate| {
        let start = Instant::now();
        loop {
            let listed: Value =
                agent().get(node.url("/v1/keys")).call().unwrap().body_mut().read_json().unwrap();
            let found = listed.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
            if let Some(at) = found["last_used"].as_str() {
                return at.to_owned();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{found}");
        }
    };
    let at = last_used(&a);
    assert_eq!(at, last_used(&b), "asked at the second node alone");
    for node in [a, b] {
        node.signal("KILL");
        node.wait();
    }
    let c = node(FILE, &[("TIDEGATE_CONTROL", &url)]);
    assert_eq!(last_used(&c), at);
}

/// A way to the database that can be cut, as by a network that takes everything and gives nothing back.
struct Cut {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Cut {
    fn new(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, is_cut) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, cut) =
                        (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(&cut));
                    thread::spawn(move || pass(from, to, &cut));
                }
            }
        });
        Self { port, is_cut }
    }

    fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    fn mend(&self) {
        self.is_cut.store(false, Relaxed);
    }
}

/// Passes bytes on; what comes while the way is cut is lost, and so is the connection.
fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let (mut buffer, mut is_torn) = ([0; 4096], false);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        is_torn |= is_cut.load(Relaxed);
        if !is_torn && to.write_all(&buffer[..count]).is_err() {
            break;
        }
        if is_torn && !is_cut.load(Relaxed) {
            break;
        }
    }
    // Either end may be gone already.
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}
