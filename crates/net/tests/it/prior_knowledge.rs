//! HTTP/2 by prior knowledge on the listener that speaks HTTP/1.1, however its preface is cut up.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::{Options, TestServer, eventually, exchange, read_reply, read_to_end};
use tidegate_net::drain::{DrainTiming, Drained};
use tidegate_net::http::HttpConfig;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// HEADERS on stream 1 with END_STREAM and END_HEADERS: `GET http /`.
const REQUEST: &[u8] = b"\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;

/// Reads frames up to the first of this kind; its payload.
fn frame(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).unwrap();
        if head[3] == kind {
            return payload;
        }
    }
}

#[test]
fn a_preface_is_recognised_in_one_piece_and_in_any_two() {
    let server = TestServer::start(Options::default());
    for cut in 0..PREFACE.len() {
        let mut stream = server.connect();
        stream.write_all(&PREFACE[..cut]).unwrap();
        eventually("the first piece is read", || cut == 0 || is_read(&stream));
        stream.write_all(&[&PREFACE[cut..], SETTINGS, REQUEST].concat()).unwrap();
        assert_eq!(frame(&mut stream, HEADERS)[0], 0x88, "status 200, cut at {cut}");
    }
    assert_eq!(server.stats.totals().answered, PREFACE.len() as u64);
}

/// Whether the server has read everything that was sent: its socket's receive queue, as the kernel
/// lists it, is empty, and nothing is under way.
fn is_read(stream: &TcpStream) -> bool {
    let (ours, theirs) = (stream.local_addr().unwrap().port(), stream.peer_addr().unwrap().port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queues = |local: u16, remote: u16| {
        let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
        let mut fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        fields
            .find(|field| field[1].ends_with(&local) && field[2].ends_with(&remote))
            .map(|field| field[4].to_owned())
    };
    let empty = |queues: Option<String>| queues.as_deref() == Some("00000000:00000000");
    empty(queues(ours, theirs)) && empty(queues(theirs, ours))
}

#[test]
fn what_only_begins_like_the_preface_is_http_1() {
    let server = TestServer::start(Options::default());
    let mut stream = server.connect();
    for piece in [&b"P"[..], b"OST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nhi"] {
        stream.write_all(piece).unwrap();
    }
    assert!(read_reply(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
    for bytes in
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r!"[..], b"PRI * HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"]
    {
        let reply = exchange(server.address, bytes);
        assert!(reply.starts_with("HTTP/1.1 "), "{reply}");
    }
    let mut stream = server.connect();
    stream.write_all(b"PRI *").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(!read_to_end(&mut stream).contains("200"), "half a preface is no request");
}

#[test]
fn fault_31_half_a_preface_is_cut_like_half_a_head() {
    let http = HttpConfig { head_timeout: Duration::from_millis(200), ..HttpConfig::default() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let mut stream = server.connect();
    stream.write_all(&PREFACE[..23]).unwrap();
    assert_eq!(read_to_end(&mut stream), "");
    assert_eq!(server.stats.totals().cut_header, 1);
}

#[test]
fn fault_22_a_drain_says_goaway_and_loses_nothing() {
    let mut server = TestServer::start(Options::default());
    let mut stream = server.connect();
    let held = b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x04\x05/held";
    stream.write_all(&[&PREFACE[..], SETTINGS, held].concat()).unwrap();
    eventually("it is asked", || server.stats.totals().in_flight == 1);
    let release = server.release.clone();
    let client = std::thread::spawn(move || {
        frame(&mut stream, GOAWAY);
        release.add_permits(1);
        frame(&mut stream, HEADERS)[0]
    });
    let timing = DrainTiming { grace: Duration::ZERO, ..DrainTiming::default() };
    assert_eq!(server.drain(timing), Drained { aborted: 0 });
    assert_eq!(client.join().unwrap(), 0x88, "status 200");
}

#[test]
fn a_request_that_must_wait_holds_up_no_other() {
    let server = TestServer::start(Options::default());
    let mut stream = server.connect();
    let held = b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x04\x05/held";
    let next = b"\0\0\x03\x01\x05\0\0\0\x03\x82\x86\x84";
    stream.write_all(&[&PREFACE[..], SETTINGS, held, next].concat()).unwrap();
    assert_eq!(frame(&mut stream, HEADERS)[0], 0x88, "status 200 of the second");
    assert_eq!(server.stats.totals().in_flight, 1, "the first waits");
    server.release.add_permits(1);
    assert_eq!(frame(&mut stream, HEADERS)[0], 0x88, "status 200 of the first");
    assert_eq!(server.stats.totals().answered, 2);
}

/// What a request of HTTP/2 is answered.
async fn status(server: &TestServer, request: http::Request<()>) -> u16 {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    // How it ends is what the request is told.
    tokio::spawn(async move { drop(connection.await) });
    let (reply, _body) = client.ready().await.unwrap().send_request(request, true).unwrap();
    reply.await.unwrap().status().as_u16()
}

#[tokio::test]
async fn fault_32_an_authority_that_differs_from_the_host_is_refused_in_http_2_too() {
    let server = TestServer::start(Options::default());
    let get = |host: Option<&str>| {
        let request = http::Request::get("http://t/");
        host.into_iter().fold(request, |request, host| request.header("host", host)).body(()).unwrap()
    };
    assert_eq!(status(&server, get(None)).await, 200);
    assert_eq!(status(&server, get(Some("T"))).await, 200);
    assert_eq!(status(&server, get(Some("elsewhere"))).await, 400);
    let mut twice = get(Some("t"));
    twice.headers_mut().append("host", "t".parse().unwrap());
    assert_eq!(status(&server, twice).await, 400);
    let tunnel = http::Request::connect("t:443").body(()).unwrap();
    assert_eq!(status(&server, tunnel).await, 501);
}
