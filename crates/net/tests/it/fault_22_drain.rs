//! Fault 22: a drain under load loses no request. Fault 23's first half: a new server takes over
//! the port of the old one under load.
//!
//! Each client behaves as a balancer's connection pool does: it keeps its connection until a reply
//! says close, and then opens another. A refused connection, a reset or a reply cut short is a
//! failure; nothing is retried. `TIDEGATE_DRAIN_REQUESTS` makes the run longer
//! (`regression/drain-under-load` uses 1,000,000).

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::common;
use crate::common::{Options, PATIENCE, TestServer, connect, eventually, read_reply, request, within};
use tidegate_net::drain::{DrainTiming, Drained, Stage};
use tidegate_net::listen::ListenConfig;

const CLIENTS: usize = 16;

fn requests() -> usize {
    std::env::var("TIDEGATE_DRAIN_REQUESTS").map_or(40_000, |count| count.parse().unwrap())
}

/// Even a slow and busy machine answers 2,000 requests a second.
fn patience() -> Duration {
    PATIENCE + Duration::from_secs(requests() as u64 / 2_000)
}

/// What the clients saw.
#[derive(Default)]
struct Load {
    sent: AtomicUsize,
    answered: AtomicUsize,
    stop: AtomicBool,
}

impl Load {
    /// One client: requests until there are enough of them. With `leave`, it goes away when a
    /// reply says close, as if there were another server to go to.
    fn run(&self, address: SocketAddr, enough: usize, leave: bool) -> std::io::Result<()> {
        let more = || !self.stop.load(Relaxed) && self.sent.load(Relaxed) < enough;
        while more() {
            let mut stream = connect(address)?;
            while more() {
                self.sent.fetch_add(1, Relaxed);
                let head = request(&mut stream, "/")?;
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                self.answered.fetch_add(1, Relaxed);
                if head.contains("connection: close") {
                    if leave {
                        return Ok(());
                    }
                    break;
                }
            }
        }
        Ok(())
    }
}

/// These clients leave by themselves, and the drain ends with them: its sweep must not meet a late one.
fn under_load() -> DrainTiming {
    let all = DrainTiming::with_deadline(PATIENCE * 2);
    DrainTiming { grace: Duration::from_millis(200), idle_linger: PATIENCE, ..all }
}

fn timing() -> DrainTiming {
    let moment = Duration::from_millis(200);
    DrainTiming { grace: moment, idle_linger: moment, ..DrainTiming::with_deadline(Duration::from_secs(10)) }
}

#[test]
fn fault_22_a_drain_under_load_answers_every_request() {
    let mut server = TestServer::start(Options::default());
    let address = server.address;
    let load = Load::default();
    let drained = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| load.run(address, usize::MAX, true))).collect();
        within(patience(), "all are connected and half of the requests are answered", || {
            server.stats.totals().accepted >= CLIENTS as u64 && load.answered.load(Relaxed) > requests() / 2
        });
        let drained = server.drain(under_load());
        for client in clients {
            client.join().unwrap().unwrap();
        }
        drained
    });
    assert_eq!(drained, Drained { aborted: 0 });
    assert_eq!(load.sent.load(Relaxed), load.answered.load(Relaxed));
    assert!(load.sent.load(Relaxed) > requests() / 2);
    assert_eq!(server.stats.totals().abandoned, 0);
}

#[test]
fn fault_23_a_second_server_takes_over_the_port_under_load() {
    let mut old = TestServer::start(Options { cores: 1, ..Options::default() });
    let address = old.address;
    let load = Load::default();
    let enough = requests();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| load.run(address, usize::MAX, false))).collect();
        within(patience(), "the old server is under load", || load.answered.load(Relaxed) > enough / 4);
        let listen =
            ListenConfig { share_port: true, ..ListenConfig::new(address, std::num::NonZeroUsize::MIN) };
        let new = TestServer::start(Options { cores: 1, listen, ..Options::default() });
        let drained = old.drain(under_load());
        assert_eq!(drained, Drained { aborted: 0 });
        let taken_over = load.answered.load(Relaxed);
        within(patience(), "the new server carries the load", || {
            load.answered.load(Relaxed) > taken_over + enough / 4
        });
        load.stop.store(true, Relaxed);
        for client in clients {
            client.join().unwrap().unwrap();
        }
        assert!(new.stats.totals().answered > 0);
    });
    assert_eq!(load.sent.load(Relaxed), load.answered.load(Relaxed));
    assert_eq!(old.stats.totals().abandoned, 0);
}

#[test]
fn a_drain_waits_for_what_is_being_answered_and_says_close() {
    let mut server = TestServer::start(Options::default());
    let address = server.address;
    let release = std::sync::Arc::clone(&server.release);
    let drain = server.drain.clone();
    let head = std::thread::scope(|scope| {
        let stats = std::sync::Arc::clone(&server.stats);
        let client = scope.spawn(move || request(&mut connect(address).unwrap(), "/held").unwrap());
        eventually("the request has begun", || stats.totals().in_flight == 1);
        let draining = scope.spawn(|| server.drain(timing()));
        eventually("even idle connections are being closed", || drain.stage() == Stage::Sweeping);
        release.add_permits(1);
        assert_eq!(draining.join().unwrap(), Drained { aborted: 0 });
        client.join().unwrap()
    });
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
}

/// Whether bytes of this client lie in the server's socket (proc(5), `/proc/net/tcp`).
fn lies_unread(server: SocketAddr, client: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let [local, remote] = [server, client].map(|address| format!(":{:04X}", address.port()));
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&local) && fields[2].ends_with(&remote) && !fields[4].ends_with(":00000000")
    })
}

/// On the short way, and on hyper's, where a body in chunks leads.
#[test]
fn a_request_that_came_before_the_drain_looked_is_answered() {
    let chunked = b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    for first in [&b"GET / HTTP/1.1\r\nhost: t\r\n\r\n"[..], chunked] {
        let server = TestServer::start(Options { cores: 1, ..Options::default() });
        let mut client = server.connect();
        client.write_all(first).unwrap();
        assert!(read_reply(&mut client).unwrap().starts_with("HTTP/1.1 200"));
        let mut blocking = server.connect();
        blocking.write_all(b"GET /blocked HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        eventually("the core is blocked", || server.stats.totals().in_flight == 1);
        client.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        let own = client.local_addr().unwrap();
        eventually("the request has come", || lies_unread(server.address, own));
        server.drain.advance(Stage::Sweeping);
        server.release.add_permits(1);
        let head = read_reply(&mut client).unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    }
}

#[test]
fn a_drain_closes_idle_connections_and_cuts_what_outlasts_its_deadline() {
    let mut server = TestServer::start(Options::default());
    let mut idle = server.connect();
    assert!(request(&mut idle, "/").unwrap().starts_with("HTTP/1.1 200"));
    let mut stuck = server.connect();
    stuck.write_all(b"GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    eventually("a request is stuck", || server.stats.totals().in_flight == 1);
    let drained = server.drain(DrainTiming { deadline: Duration::from_secs(5), ..timing() });
    assert_eq!(drained, Drained { aborted: 1 });
    assert_eq!(common::read_to_end(&mut idle), "");
    assert!(connect(server.address).is_err(), "nobody listens any more");
}
