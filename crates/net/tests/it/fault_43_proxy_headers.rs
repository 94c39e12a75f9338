//! FAULTS 43: behind a proxy of TCP connections, whose connection it is comes from that proxy's header alone; whoever
//! is not listed, or sends none, is closed within three seconds.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::common::{Options, TestServer, eventually};
use tidegate_net::clock::monotonic;
use tidegate_net::proxied::Proxied;

const ASK: &[u8] = b"GET /peer HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";

fn server(trusted: &str) -> TestServer {
    let proxied = Some(Proxied::by(vec![trusted.parse().unwrap()]));
    TestServer::start(Options { proxied, ..Options::default() })
}

/// All that comes back for these pieces.
fn exchange(server: &TestServer, pieces: &[&[u8]]) -> String {
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // The server may have closed by now.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let mut received = Vec::new();
    let mut space = [0; 4_096];
    loop {
        match stream.read(&mut space) {
            Ok(0) => break,
            Ok(size) => received.extend_from_slice(&space[..size]),
            // Closed with bytes that nobody read.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(received).unwrap()
}

#[test]
fn the_address_in_the_header_is_the_clients() {
    let server = server("127.0.0.0/8");
    let v2 =
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[192, 0, 2, 9, 10, 0, 0, 1, 0, 7, 1, 187]].concat();
    let check = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (header, expected) in [
        (&b"PROXY TCP4 192.0.2.1 10.0.0.1 5000 443\r\n"[..], "192.0.2.1:5000"),
        (b"PROXY TCP6 2001:db8::1 ::1 5000 443\r\n", "[2001:db8::1]:5000"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1:"),
        (&v2, "192.0.2.9:7"),
        (check, "127.0.0.1:"),
    ] {
        let whole = exchange(&server, &[&[header, ASK].concat()]);
        assert!(whole.starts_with("HTTP/1.1 200") && whole.contains(expected), "{whole}");
        let bytes: Vec<&[u8]> = header.chunks(1).chain([ASK]).collect();
        let slowly = exchange(&server, &bytes);
        assert!(slowly.starts_with("HTTP/1.1 200") && slowly.contains(expected), "{slowly}");
    }
}

#[test]
fn fault_43_what_is_no_header_is_closed_without_an_answer() {
    let server = server("127.0.0.1");
    for bytes in [
        ASK,
        b"PROXY TCP4 192.0.2.1 10.0.0.1 5000\r\nGET /peer HTTP/1.1\r\nhost: t\r\n\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 5000 443\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
        &[b'P'; 200],
        &[&b"PROXY "[..], &[b'x'; 200]].concat(),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c0123456789ab",
    ] {
        assert_eq!(exchange(&server, &[bytes]), "", "{}", bytes.escape_ascii());
    }
    assert_eq!(server.stats.totals().unproxied, 7);
    eventually("the connections end", || server.stats.totals().open == 0);
}

#[test]
fn fault_43_an_untrusted_peer_is_closed_whatever_it_says() {
    let server = server("10.0.0.0/8");
    let header = b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 443\r\n";
    assert_eq!(exchange(&server, &[&[&header[..], ASK].concat()]), "");
    assert_eq!(server.stats.totals().unproxied, 1);
}

#[test]
fn fault_43_a_truncated_header_is_closed_within_three_seconds() {
    let server = server("127.0.0.1");
    for bytes in [&b"PROXY TCP4 192.0.2.1"[..], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", b"P", b""] {
        let started = monotonic();
        assert_eq!(exchange(&server, &[bytes]), "");
        let took = started.elapsed();
        assert!(took >= Duration::from_secs(3), "it had its time: {took:?}");
        // Not another deadline: the head's is 10 s.
        assert!(took < Duration::from_secs(8), "it had more than its time: {took:?}");
    }
}
