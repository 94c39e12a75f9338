//! Fault 61: a listener full of idle connections keeps neither the other listeners nor the operator's
//! pages from answering.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::{Options, PATIENCE, TestServer, connect, eventually, exchange, request};
use tidegate_net::http::HttpConfig;
use tidegate_net::permits::Permits;

const LAST: &str = "HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";

/// A server whose silent clients may stay.
fn server(permits: Permits) -> TestServer {
    let http =
        HttpConfig { head_timeout: PATIENCE * 10, idle_timeout: PATIENCE * 10, ..HttpConfig::default() };
    TestServer::start(Options { permits, http, ..Options::default() })
}

fn silent(server: &TestServer, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| server.connect()).collect()
}

#[test]
fn fault_61_idle_connections_to_one_listener_leave_the_others_their_part() {
    let all = Permits::new(10);
    let greedy = server(all.keeping(2));
    let other = server(all.keeping(2));
    // More than there are: some wait in the accept queue.
    let _held = silent(&greedy, 20);
    eventually("the greedy listener has all it can get", || greedy.drain.connections() == 8);
    eventually("and waits for more", || greedy.stats.totals().accept_paused > 0);
    for _ in 0..3 {
        let reply = exchange(other.address, format!("GET / {LAST}").as_bytes());
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    assert_eq!(greedy.drain.connections(), 8);
}

/// The reply to a request for `path` on a connection over the limit. It has seconds to come there, which a
/// machine that stands still may take: then it is tried again.
fn over_the_limit(address: SocketAddr, path: &str) -> String {
    loop {
        let mut stream = connect(address).unwrap();
        let mut reply = String::new();
        let sent = stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n").as_bytes());
        // It ends by itself: such a connection answers once.
        if sent.and_then(|()| stream.read_to_string(&mut reply)).is_ok() && !reply.is_empty() {
            return reply;
        }
    }
}

#[test]
fn fault_61_a_full_listener_answers_the_operators_pages_and_says_503_to_the_rest() {
    let server = server(Permits::new(4).with_operation(4));
    let mut held = silent(&server, 4);
    eventually("the listener is full", || server.drain.connections() == 4);

    let page = over_the_limit(server.address, "/readyz");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("connection: close"), "{page}");
    let refused = over_the_limit(server.address, "/echo");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("retry-after: 1") && refused.contains("application/problem+json"), "{refused}");
    assert!(server.stats.totals().accepted_for_operation >= 2);

    // Silence there is short, however many are silent.
    let more = silent(&server, 20);
    assert!(over_the_limit(server.address, "/readyz").starts_with("HTTP/1.1 200"));
    // Those inside are served as ever, and whoever comes when there is room.
    assert!(request(&mut held[0], "/echo").unwrap().starts_with("HTTP/1.1 200"));
    held.clear();
    drop(more);
    eventually("all have left", || server.drain.connections() == 0);
    let reply = exchange(server.address, format!("GET / {LAST}").as_bytes());
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}
