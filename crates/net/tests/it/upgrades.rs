//! A connection that goes on in another protocol is its service's, until one of them ends it, or the drain does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::{Options, PATIENCE, TestServer, eventually, read_reply, read_to_end, request};
use tidegate_net::drain::{DrainTiming, Drained, Stage};
use tidegate_net::http::{HttpConfig, MinimumRate};
use tidegate_net::permits::Permits;

const OFFER: &str =
    "GET /upgraded HTTP/1.1\r\nhost: t\r\nconnection: keep-alive, Upgrade\r\nupgrade: echo\r\n\r\n";

fn start(options: Options) -> TestServer {
    TestServer::start(Options { cores: 1, upgrades: true, ..options })
}

/// Offers an upgrade, with `behind` sent in one piece with it, and reads the head of the reply.
fn upgrade(server: &TestServer, behind: &str) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(format!("{OFFER}{behind}").as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("connection: upgrade\r\n"), "{head}");
    assert!(head.contains("upgrade: echo\r\n") && !head.contains("content-length"), "{head}");
    stream
}

fn expect(stream: &mut TcpStream, expected: &str) {
    let mut piece = vec![0; expected.len()];
    stream.read_exact(&mut piece).unwrap();
    assert_eq!(String::from_utf8(piece).unwrap(), expected);
}

#[test]
fn the_stream_begins_behind_the_request_and_ends_in_each_direction_alone() {
    let server = start(Options::default());
    // Also more than is read at once.
    for first in ["", "first", &"x".repeat(100_000)] {
        let mut stream = upgrade(&server, first);
        expect(&mut stream, first);
        for _ in 0..10 {
            stream.write_all(b"more").unwrap();
            expect(&mut stream, "more");
        }
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&mut stream), "bye");
    }
    eventually("the connections end", || server.stats.totals().open == 0);
    assert_eq!(server.stats.totals().abandoned, 0);
}

#[test]
fn requests_before_it_are_answered_first() {
    let server = start(Options::default());
    let mut stream = server.connect();
    let chunked = "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let plain = "GET /nothing HTTP/1.1\r\nhost: t\r\n\r\n";
    stream.write_all(format!("{plain}{chunked}{plain}{OFFER}end").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let replies = read_to_end(&mut stream);
    let status: Vec<&str> = replies.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect();
    assert_eq!(status, ["204", "200", "204", "101"], "{replies}");
    assert!(replies.ends_with("\r\n\r\nendbye"), "{replies}");
}

#[test]
fn its_permit_is_held_until_it_ends() {
    let permits = Permits::new(1);
    let server = start(Options { permits: permits.clone(), ..Options::default() });
    let mut stream = upgrade(&server, "");
    stream.write_all(b"here").unwrap();
    expect(&mut stream, "here");
    assert!(permits.try_acquire().is_none());
    drop(stream);
    eventually("its permit comes back", || permits.try_acquire().is_some());
}

#[test]
fn a_drain_ends_it() {
    let mut server = start(Options::default());
    let mut stream = upgrade(&server, "here");
    expect(&mut stream, "here");
    let moment = Duration::from_millis(100);
    let timing = DrainTiming { grace: moment, idle_linger: moment, deadline: PATIENCE, last_words: PATIENCE };
    let reading = std::thread::spawn(move || read_to_end(&mut stream));
    assert_eq!(server.drain(timing), Drained { aborted: 0 });
    assert_eq!(reading.join().unwrap(), "bye");
}

/// Idle connections are closed before it.
#[test]
fn fault_23_a_drain_leaves_it_alone_until_its_time_for_last_words() {
    let server = start(Options::default());
    let (mut stream, mut idle) = (upgrade(&server, ""), server.connect());
    assert!(request(&mut idle, "/nothing").unwrap().starts_with("HTTP/1.1 204"));
    server.drain.advance(Stage::Sweeping);
    assert_eq!(read_to_end(&mut idle), "");
    stream.write_all(b"still").unwrap();
    expect(&mut stream, "still");
    server.drain.advance(Stage::Ending);
    assert_eq!(read_to_end(&mut stream), "bye");
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let write = MinimumRate { grace: Duration::from_millis(200), bytes_per_second: 1 << 30 };
    let server = start(Options { http: HttpConfig { write, ..HttpConfig::default() }, ..Options::default() });
    let mut stream = upgrade(&server, "");
    // It fails when the connection ends.
    while stream.write_all(&[b'x'; 64 << 10]).is_ok() {}
    eventually("the connection ends", || server.stats.totals().open == 0);
    assert_eq!(server.stats.totals().cut_write, 1);
}

#[test]
fn fault_32_what_is_sent_behind_an_offer_that_is_not_accepted_is_refused_after_the_reply() {
    let server = start(Options::default());
    let offer = OFFER.replace("/upgraded", "/held");
    let smuggled = "GET /echo HTTP/1.1\r\nhost: t\r\n\r\n";
    let mut at_once = server.connect();
    at_once.write_all(format!("{offer}{smuggled}").as_bytes()).unwrap();
    let mut later = server.connect();
    later.write_all(offer.as_bytes()).unwrap();
    eventually("both are being answered", || server.stats.totals().in_flight == 2);
    later.write_all(smuggled.as_bytes()).unwrap();
    server.release.add_permits(2);
    for mut stream in [at_once, later] {
        let replies = read_to_end(&mut stream);
        let status: Vec<&str> = replies.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect();
        assert_eq!(status, ["200", "400"], "{replies}");
    }
    let mut patient = server.connect();
    server.release.add_permits(1);
    patient.write_all(offer.as_bytes()).unwrap();
    assert!(read_reply(&mut patient).unwrap().starts_with("HTTP/1.1 200"));
    assert!(request(&mut patient, "/nothing").unwrap().starts_with("HTTP/1.1 204"), "HTTP/1.1 goes on");
}

#[test]
fn what_is_no_offer_is_a_request_as_any_other() {
    let server = start(Options::default());
    for request in [
        OFFER.replace("keep-alive, Upgrade", "keep-alive"),
        OFFER.replace("HTTP/1.1", "HTTP/1.0").replace("keep-alive, Upgrade", "keep-alive, upgrade"),
        OFFER.replace("\r\n\r\n", "\r\ncontent-length: 2\r\n\r\nhi"),
        OFFER.replace("upgrade: echo\r\n", ""),
    ] {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let head = read_reply(&mut stream).unwrap();
        assert!(head.contains(" 200 OK"), "{request}: {head}");
    }
}
