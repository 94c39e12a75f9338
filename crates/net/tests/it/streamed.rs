//! A reply that is made piece by piece: each piece is with the client while the next one is waited for.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::{EVENT, EVENTS, Options, TestServer, eventually, read_reply, read_to_end};
use bytes::Bytes;
use http::Request;
use tidegate_net::clock::monotonic;
use tidegate_net::http::HttpConfig;

const EVENTS_REQUEST: &[u8] = b"GET /events HTTP/1.1\r\nhost: t\r\n\r\n";

/// On the short way, and on hyper's, where a body in chunks leads.
const WAYS: [fn(&TestServer) -> TcpStream; 2] = [TestServer::connect, |server| {
    let mut stream = server.connect();
    stream
        .write_all(b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        .unwrap();
    read_reply(&mut stream).unwrap();
    stream
}];

fn read_event(stream: &mut TcpStream) {
    let expected = format!("{:x}\r\n{EVENT}\r\n", EVENT.len());
    let mut piece = vec![0; expected.len()];
    stream.read_exact(&mut piece).unwrap();
    assert_eq!(String::from_utf8(piece).unwrap(), expected);
}

/// Reads the head and nothing behind it.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn each_piece_is_with_the_client_while_the_next_is_waited_for() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    for connect in WAYS {
        let mut stream = connect(&server);
        // The reply to a request before it does not wait for it either.
        stream.write_all(b"GET /nothing HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        stream.write_all(EVENTS_REQUEST).unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 204"));
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
        for _ in 0..EVENTS {
            // Only now is there another one.
            server.release.add_permits(1);
            read_event(&mut stream);
        }
        let mut end = [0; 5];
        stream.read_exact(&mut end).unwrap();
        assert_eq!(&end, b"0\r\n\r\n");
        stream.write_all(b"GET /nothing HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 204"), "the connection goes on");
    }
}

#[tokio::test]
async fn each_piece_is_with_a_client_of_http_2_while_the_next_is_waited_for() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get("http://t/events").body(()).unwrap();
    let reply = client.send_request(request, true).unwrap().0.await.unwrap();
    let mut body = reply.into_body();
    for _ in 0..EVENTS {
        server.release.add_permits(1);
        assert_eq!(body.data().await.unwrap().unwrap(), Bytes::from(EVENT));
    }
    while let Some(rest) = body.data().await {
        assert!(rest.unwrap().is_empty(), "nothing more comes");
    }
}

#[test]
fn a_reply_that_is_shorter_than_it_said_ends_the_connection() {
    let server = TestServer::start(Options { cores: 1, ..Options::default() });
    for connect in WAYS {
        let mut stream = connect(&server);
        let request = "GET /short HTTP/1.1\r\nhost: t\r\n\r\n";
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        let reply = read_to_end(&mut stream);
        assert!(reply.matches("HTTP/1.1").count() <= 1, "{reply}");
    }
}

#[test]
fn fault_44_a_client_that_leaves_a_reply_in_the_middle_takes_it_along() {
    let http = HttpConfig { half_closed: Duration::from_millis(200), ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    for connect in WAYS {
        let mut stream = connect(&server);
        stream.write_all(EVENTS_REQUEST).unwrap();
        read_head(&mut stream);
        server.release.add_permits(1);
        read_event(&mut stream);
        drop(stream);
        eventually("the connection ends", || server.stats.totals().open == 0);
    }
}

/// Whether it is still there shows when it is written to; so it is each piece that must come in time.
#[test]
fn a_client_that_half_closes_gets_a_reply_that_takes_longer_than_the_wait_for_a_piece() {
    let patience = Duration::from_secs(3);
    let http = HttpConfig { half_closed: patience, ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    let mut streams = WAYS.map(|connect| connect(&server));
    for stream in &mut streams {
        stream.write_all(EVENTS_REQUEST).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_head(stream);
    }
    for _ in 0..EVENTS {
        let since = monotonic();
        eventually("half of the wait is over", || since.elapsed() > patience / 2);
        server.release.add_permits(streams.len());
        streams.iter_mut().for_each(read_event);
    }
}
