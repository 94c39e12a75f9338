//! Fault 32, as far as the server itself goes: requests whose framing is in doubt are refused, or
//! read in the one way that RFC 9112 allows and then the connection ends. These tests pin down
//! what hyper decides, so that an upgrade which changes it is noticed.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod common;

use std::io::Write;

use common::{Options, TestServer, exchange, read_reply};

fn replies(bytes: &str) -> String {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    exchange(server.address, bytes.as_bytes())
}

/// Followed by a request that must not be answered: a refused request ends its connection.
const SMUGGLED: &str = "GET /echo HTTP/1.1\r\nhost: t\r\n\r\n";

#[test]
fn fault_32_doubtful_framing_is_400_and_close() {
    for head in [
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5, 6\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: -5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: +5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 18446744073709551616\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: gzip\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked, gzip\r\n\r\nhello",
        "POST /echo HTTP/1.0\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nhost : t\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: t\r\n folded: x\r\n\r\n",
        "GET / HTTP/1.1\r\nho\0st: t\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\rb\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET / HTTP/3.0\r\nhost: t\r\n\r\n",
        "\0\x01\x02\x03\r\n\r\n",
    ] {
        let reply = replies(&format!("{head}{SMUGGLED}"));
        assert!(reply.starts_with("HTTP/1.1 400") || reply.starts_with("HTTP/1.0 400"), "{head:?}: {reply}");
        assert_eq!(reply.matches("HTTP/1.").count(), 1, "{head:?}: {reply}");
    }
}

#[test]
fn fault_32_a_length_beside_chunks_is_dropped_and_the_connection_ends() {
    for order in
        ["content-length: 3\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 3"]
    {
        let reply = replies(&format!(
            "POST /echo HTTP/1.1\r\nhost: t\r\n{order}\r\n\r\n5\r\nhello\r\n0\r\n\r\n{SMUGGLED}"
        ));
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.contains("connection: close") && reply.ends_with("hello"), "{reply}");
        assert_eq!(reply.matches("HTTP/1.1").count(), 1, "{reply}");
    }
}

#[test]
fn fault_32_broken_chunks_are_400() {
    for chunks in ["x\r\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "FFFFFFFFFFFFFFFFFF\r\n"] {
        let reply =
            replies(&format!("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"));
        assert!(reply.starts_with("HTTP/1.1 400"), "{chunks:?}: {reply}");
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
