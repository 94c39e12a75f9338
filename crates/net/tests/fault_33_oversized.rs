//! Fault 33: heads, targets and bodies that are too large are refused by name, and the client
//! gets to read the refusal although it is still sending.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod common;

use std::io::Write;

use common::{BODY_LIMIT, Options, PATIENCE, TestServer, exchange, read_reply, read_to_end};
use tidegate_net::http::HttpConfig;

fn server() -> TestServer {
    // Clients have as long to read the refusal as they need.
    let http = HttpConfig { linger: PATIENCE, ..HttpConfig::default() };
    TestServer::start(Options { http, ..Options::default() })
}

#[test]
fn fault_33_a_large_head_is_431() {
    let server = server();
    let one = format!("GET / HTTP/1.1\r\nhost: t\r\nx-large: {}\r\n\r\n", "x".repeat(70_000));
    assert!(exchange(server.address, one.as_bytes()).starts_with("HTTP/1.1 431"));

    let endless = format!("GET / HTTP/1.1\r\nhost: t\r\nx-large: {}", "x".repeat(200_000));
    assert!(exchange(server.address, endless.as_bytes()).starts_with("HTTP/1.1 431"));

    let many = format!("GET / HTTP/1.1\r\nhost: t\r\n{}\r\n", "a: b\r\n".repeat(101));
    assert!(exchange(server.address, many.as_bytes()).starts_with("HTTP/1.1 431"));

    let allowed = "x".repeat(60_000);
    let fits = format!("GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\nx-large: {allowed}\r\n\r\n");
    assert!(exchange(server.address, fits.as_bytes()).starts_with("HTTP/1.1 200"));
}

#[test]
fn fault_33_a_long_target_is_414() {
    let server = server();
    for target in [format!("/{}", "x".repeat(8192)), format!("/?{}", "x".repeat(66_000))] {
        let reply = exchange(server.address, format!("GET {target} HTTP/1.1\r\nhost: t\r\n\r\n").as_bytes());
        assert!(reply.starts_with("HTTP/1.1 414") || reply.starts_with("HTTP/1.1 431"), "{reply}");
    }
    let exact = format!("GET /{} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n", "x".repeat(8191));
    assert!(exchange(server.address, exact.as_bytes()).starts_with("HTTP/1.1 200"));
}

#[test]
fn fault_33_a_large_body_is_413_by_its_announcement_and_by_its_bytes() {
    let server = server();
    let announced = "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 99999999999\r\n\r\n";
    assert!(exchange(server.address, announced.as_bytes()).starts_with("HTTP/1.1 413"));

    let sent = format!(
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{}",
        500_000,
        "x".repeat(500_000)
    );
    assert!(exchange(server.address, sent.as_bytes()).starts_with("HTTP/1.1 413"));

    let mut stream = server.connect();
    write!(stream, "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    for _ in 0..20 {
        write!(stream, "1000\r\n{}\r\n", "x".repeat(0x1000)).unwrap();
    }
    assert!(read_reply(&mut stream).unwrap().starts_with("HTTP/1.1 413"));
    assert_eq!(read_to_end(&mut stream), "");

    let fits = "x".repeat(BODY_LIMIT);
    let mut stream = server.connect();
    write!(stream, "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: {BODY_LIMIT}\r\n\r\n{fits}").unwrap();
    assert!(read_reply(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
}
