//! Fault 32: requests whose framing or host is in doubt are refused with a problem document, and their
//! connection ends; on a fresh connection, and on one that hyper has.

use std::io::Write;

use crate::common::{Options, TestServer, eventually, exchange, read_reply, read_to_end, request};

/// Everything that comes back to `bytes`, on a fresh connection and on one that hyper has.
fn both_ways(bytes: &str) -> [String; 2] {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    let mut used = server.connect();
    let chunked = "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    used.write_all(chunked.as_bytes()).unwrap();
    read_reply(&mut used).unwrap();
    used.write_all(bytes.as_bytes()).unwrap();
    [exchange(server.address, bytes.as_bytes()), read_to_end(&mut used)]
}

/// Followed by a request that must not be answered: a refused request ends its connection.
const SMUGGLED: &str = "GET /echo HTTP/1.1\r\nhost: t\r\n\r\n";

const HEADS: &[(u16, &str)] = &[
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5, 6\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5, 5\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: -5\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: +5\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 0x5\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length:\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 18446744073709551616\r\n\r\nhello"),
    (
        400,
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        400,
        "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: gzip\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: identity\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked, gzip\r\n\r\nhello"),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    (
        400,
        "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (400, "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
    (400, "POST /echo HTTP/1.0\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    (400, "GET / HTTP/1.1\nhost: t\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t\nx: y\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t\r\n\n"),
    (400, "GET / HTTP/1.1\nhost: t\n\n"),
    (400, "\nGET / HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t\r\nhost: t\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t\r\nHost: u\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t, u\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t/x\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: u@t\r\n\r\n"),
    (400, "GET / HTTP/1.0\r\nhost: t\r\nhost: t\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"),
    (400, "GET http://u/ HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET http://t@t/ HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET ftp://t/ HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET t:80 HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET * HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET /#a HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET /\u{e9} HTTP/1.1\r\nhost: t\r\n\r\n"),
    (501, "CONNECT t:80 HTTP/1.1\r\nhost: t:80\r\n\r\n"),
    (400, "POST /echo HTTP/1.1\r\nhost : t\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: t\r\n folded: x\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nho\0st: t\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nhost: a\rb\r\n\r\n"),
    (400, "GET /a b HTTP/1.1\r\nhost: t\r\n\r\n"),
    (400, "GET / HTTP/3.0\r\nhost: t\r\n\r\n"),
    (400, "\0\x01\x02\x03\r\n\r\n"),
];

#[test]
fn fault_32_doubtful_framing_and_hosts_are_refused_and_the_connection_ends() {
    for (status, head) in HEADS {
        for reply in both_ways(&format!("{head}{SMUGGLED}")) {
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {reply}");
            assert_eq!(reply.matches("HTTP/1.").count(), 1, "{head:?}: {reply}");
            assert!(reply.contains("connection: close\r\n"), "{head:?}: {reply}");
            let (_, body) = reply.split_once("\r\n\r\n").unwrap();
            assert!(reply.contains("content-type: application/problem+json\r\n"), "{head:?}: {reply}");
            assert!(
                body.starts_with('{') && body.contains(&format!("\"status\":{status}")),
                "{head:?}: {reply}"
            );
        }
    }
}

#[test]
fn fault_32_what_is_no_http_is_refused_before_it_ends() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    // The beginning of a TLS handshake, and nothing more.
    assert!(exchange(server.address, b"\x16\x03\x01\x02\x00\x01").starts_with("HTTP/1.1 400"));
}

#[test]
fn fault_32_requests_before_a_refused_one_are_answered_first() {
    let before = "GET /nothing HTTP/1.1\r\nhost: t\r\n\r\nPOST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    for reply in both_ways(&format!("{before}GET / HTTP/1.1\r\n\r\n{SMUGGLED}")) {
        let status: Vec<&str> = reply.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect();
        assert_eq!(status, ["204", "200", "400"], "{reply}");
    }
}

#[test]
fn fault_32_what_is_sent_after_a_request_for_an_upgrade_waits_for_its_reply() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    let upgrade = "GET /held HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut stream = server.connect();
    stream.write_all(upgrade.as_bytes()).unwrap();
    eventually("it is being answered", || server.stats.totals().in_flight == 1);
    stream.write_all(SMUGGLED.as_bytes()).unwrap();
    server.release.add_permits(1);
    let replies = read_to_end(&mut stream);
    let status: Vec<&str> = replies.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect();
    assert_eq!(status, ["200", "400"], "{replies}");

    let mut patient = server.connect();
    server.release.add_permits(1);
    patient.write_all(upgrade.as_bytes()).unwrap();
    assert!(read_reply(&mut patient).unwrap().starts_with("HTTP/1.1 200"));
    assert!(request(&mut patient, "/echo").unwrap().starts_with("HTTP/1.1 200"), "HTTP/1.1 goes on");
}

#[test]
fn the_absolute_form_of_the_same_host_and_an_asterisk_are_served() {
    for head in [
        "GET http://T/echo HTTP/1.1\r\nhost: t\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: t\r\n",
        "GET / HTTP/1.1\r\nhost:\r\n",
    ] {
        for reply in both_ways(&format!("{head}connection: close\r\n\r\n")) {
            assert!(reply.starts_with("HTTP/1.1 200"), "{head:?}: {reply}");
        }
    }
}

#[test]
fn fault_32_broken_chunks_are_400() {
    for chunks in [
        "x\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFFF\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "0\r\nx: y\nz: a\r\n\r\n",
    ] {
        let head = "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";
        for reply in both_ways(&format!("{head}{chunks}{SMUGGLED}")) {
            assert!(reply.starts_with("HTTP/1.1 400"), "{chunks:?}: {reply}");
            assert_eq!(reply.matches("HTTP/1.").count(), 1, "{chunks:?}: {reply}");
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_even_with_half_a_request_behind() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    let mut stream = server.connect();
    write!(stream, "GET / HTTP/1.1\r\nhost: t\r\n\r\nGET /held HTTP/1.1\r\nhost: ").unwrap();
    assert!(read_reply(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
    write!(stream, "t\r\n\r\n").unwrap();
    server.release.add_permits(1);
    assert!(read_reply(&mut stream).unwrap().contains("content-length: 4"));
}
