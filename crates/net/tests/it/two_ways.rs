//! A request that arrives whole is answered without hyper, and by hyper on a connection that needed
//! it before: nobody can tell the difference.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::{Options, PATIENCE, TestServer, eventually, read_reply, read_to_end};
use socket2::SockRef;
use tidegate_net::http::HttpConfig;

/// A connection on which hyper is at work: it had to read a chunked body.
fn with_hyper(server: &TestServer) -> TcpStream {
    let mut stream = server.connect();
    stream
        .write_all(b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        .unwrap();
    read_reply(&mut stream).unwrap();
    stream
}

/// Everything that comes back to `requests` and a last one. The present date is left out, its field is not.
fn replies(mut stream: TcpStream, requests: &str) -> String {
    let last = "GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{requests}{last}").as_bytes()).unwrap();
    let text = read_to_end(&mut stream);
    let dateless = |line| if is_present(line) { "date: now\r\n" } else { line };
    text.split_inclusive('\n').map(dateless).collect()
}

/// Whether this is the field that is added to a reply which states no date.
fn is_present(line: &str) -> bool {
    line.starts_with("date: ") && !line.contains(" 1994 ")
}

#[test]
fn both_ways_answer_alike() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    let long = "x".repeat(6_000);
    let field = format!("a: {long}\r\n");
    let large = format!("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 6000\r\n\r\n{long}");
    let too_long = format!("GET /{}{} HTTP/1.1\r\nhost: t\r\n\r\n", long, long);
    for requests in [
        "GET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\nhel",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nhiGET /nothing HTTP/1.1\r\nhost: t\r\n\r\nPOST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\n\r\nyou",
        "POST /echo HTTP/1.1\r\nhost: t\r\nhost: u\r\ncontent-length: 2\r\n\r\nhi",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi",
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: +2\r\n\r\nhi",
        "POST /echo HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi",
        "POST /echo HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
        "HEAD / HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: t\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET http://t/ HTTP/1.1\r\nhost: t\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: t\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        "GET / HTTP/1.1\r\nhost t\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: t\r\n\r\nnonsense\r\n\r\n",
        "GET /streamed HTTP/1.1\r\nhost: t\r\n\r\nGET /streamed-known HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nhost: t\r\n\r\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "GET /dated HTTP/1.1\r\nhost: t\r\n\r\nGET /dated-streamed HTTP/1.1\r\nhost: t\r\n\r\nGET /dated HTTP/1.1\r\nhost: t\r\n\r\n",
        &format!("GET / HTTP/1.1\r\nhost: t\r\n{field}{field}{field}\r\n"),
        &large,
        &too_long,
    ] {
        let short = replies(server.connect(), requests);
        assert_eq!(short, replies(with_hyper(&server), requests), "{requests:?}");
        assert!(short.starts_with("HTTP/1."), "{requests:?}: {short}");
        let replies = short.matches("HTTP/1.").count() - short.matches("HTTP/1.1 100").count();
        let dates = short.matches("\r\ndate: ").count();
        assert_eq!(dates, replies, "each has one date: {requests:?}: {short}");
    }
}

#[test]
fn a_hundred_pipelined_requests_are_answered_in_order() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    let post = |number: usize| {
        format!("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 300\r\n\r\n{:0>300}", number)
    };
    let requests: String = (0..100).map(post).collect();
    let text = replies(server.connect(), &requests);
    let bodies: Vec<&str> = text.split("\r\n\r\n").skip(1).take(100).map(|rest| &rest[..300]).collect();
    let expected: Vec<String> = (0..100).map(|number| format!("{number:0>300}")).collect();
    assert_eq!(bodies, expected);
}

#[test]
fn a_client_that_half_closes_gets_its_reply() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    for connect in [TestServer::connect, with_hyper] {
        let mut stream = connect(&server);
        stream.write_all(b"GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        eventually("the request is being answered", || server.stats.totals().in_flight == 1);
        stream.shutdown(Shutdown::Write).unwrap();
        let more = server.connect();
        eventually("the server has seen others since", || server.stats.totals().open == 2);
        server.release.add_permits(1);
        assert!(read_to_end(&mut stream).starts_with("HTTP/1.1 200"));
        drop(more);
        eventually("the connections end", || server.stats.totals().open == 0);
    }
}

#[test]
fn fault_44_a_client_that_resets_takes_its_request_along_at_once() {
    // Longer than anything here waits: only the reset ends it.
    let http = HttpConfig { half_closed: PATIENCE * 10, ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    for connect in [TestServer::connect, with_hyper] {
        let mut stream = connect(&server);
        let before = server.stats.totals();
        stream.write_all(b"GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        eventually("the request is being answered", || server.stats.totals().in_flight == 1);
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        eventually("it is abandoned", || server.stats.totals().abandoned == before.abandoned + 1);
    }
}

#[test]
fn fault_44_a_client_that_leaves_takes_its_request_along() {
    let http = HttpConfig { half_closed: Duration::from_millis(200), ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    for connect in [TestServer::connect, with_hyper] {
        let mut stream = connect(&server);
        let before = server.stats.totals();
        stream.write_all(b"GET /held HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        eventually("the request is being answered", || server.stats.totals().in_flight == 1);
        drop(stream);
        eventually("it is abandoned", || server.stats.totals().abandoned == before.abandoned + 1);
        eventually("the connection ends", || server.stats.totals().open == 0);
    }
}
