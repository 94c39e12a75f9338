//! Fault 33: heads, targets and bodies that are too large are refused by name, and the client
//! gets to read the refusal although it is still sending.

use std::future::poll_fn;
use std::io::Write;
use std::time::Duration;

use crate::common::{BODY_LIMIT, Options, PATIENCE, TestServer, exchange, read_reply, read_to_end};
use bytes::Bytes;
use h2::{Reason, SendStream};
use http::{Request, Response};
use tidegate_net::http::HttpConfig;
use tokio::time::timeout;

fn server() -> TestServer {
    // Clients have as long to read the refusal as they need.
    let http = HttpConfig { linger: PATIENCE, ..HttpConfig::default() };
    TestServer::start(Options { http, ..Options::default() })
}

/// That a reply is this refusal, as a problem document.
fn refused(reply: &str, status: u16) {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
    is_problem(head.contains("\r\ncontent-type: application/problem+json\r\n"), body, status);
}

fn is_problem(is_stated: bool, body: &str, status: u16) {
    assert!(is_stated && body.contains(&format!("\"status\":{status}")), "no problem document: {body}");
}

#[test]
fn fault_33_a_large_head_is_431() {
    let server = server();
    let one = format!("GET / HTTP/1.1\r\nhost: t\r\nx-large: {}\r\n\r\n", "x".repeat(70_000));
    refused(&exchange(server.address, one.as_bytes()), 431);

    let endless = format!("GET / HTTP/1.1\r\nhost: t\r\nx-large: {}", "x".repeat(200_000));
    refused(&exchange(server.address, endless.as_bytes()), 431);

    let many = format!("GET / HTTP/1.1\r\nhost: t\r\n{}\r\n", "a: b\r\n".repeat(101));
    refused(&exchange(server.address, many.as_bytes()), 431);

    let allowed = "x".repeat(60_000);
    let fits = format!("GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\nx-large: {allowed}\r\n\r\n");
    assert!(exchange(server.address, fits.as_bytes()).starts_with("HTTP/1.1 200"));
}

#[test]
fn fault_33_a_long_target_is_414() {
    let server = server();
    for target in [format!("/{}", "x".repeat(8192)), format!("/?{}", "x".repeat(66_000))] {
        refused(
            &exchange(server.address, format!("GET {target} HTTP/1.1\r\nhost: t\r\n\r\n").as_bytes()),
            414,
        );
    }
    let exact = format!("GET /{} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n", "x".repeat(8191));
    assert!(exchange(server.address, exact.as_bytes()).starts_with("HTTP/1.1 200"));
}

/// On HTTP/2 the library itself answers a header list of more than twice the bound, without a body.
#[tokio::test]
async fn fault_33_a_long_target_is_414_on_http_2_too_and_a_large_head_431() {
    let server = server();
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let get = async |request: Request<()>| -> Response<h2::RecvStream> {
        let mut client = client.clone().ready().await.unwrap();
        client.send_request(request, true).unwrap().0.await.unwrap()
    };
    let refused = async |request: Request<()>, status: u16| {
        let (head, mut body) = get(request).await.into_parts();
        let mut text = Vec::new();
        while let Some(data) = body.data().await {
            text.extend_from_slice(&data.unwrap());
        }
        assert_eq!(head.status, status);
        let is_stated = head.headers["content-type"] == "application/problem+json";
        is_problem(is_stated, &String::from_utf8_lossy(&text), status);
    };
    refused(Request::get(format!("http://t/{}", "x".repeat(8192))).body(()).unwrap(), 414).await;
    let large = |bytes| Request::get("http://t/").header("x-large", "x".repeat(bytes)).body(()).unwrap();
    assert_eq!(get(large(60_000)).await.status(), 200);
    refused(large(70_000), 431).await;
    assert_eq!(server.stats.totals().answered, 3, "what is refused is counted, too, as on HTTP/1.1");
    assert_eq!(get(large(140_000)).await.status(), 431);
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

/// Answers a request of HTTP/2 whose body nobody reads; what is left is that body, with the server that answered.
async fn answered_early(linger: Duration) -> (TestServer, SendStream<Bytes>) {
    let http = HttpConfig { linger, ..HttpConfig::default() };
    let server = TestServer::start(Options { http, ..Options::default() });
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let mut client = client.ready().await.unwrap();
    let request = Request::post("http://t/nothing").body(()).unwrap();
    let (reply, sending) = client.send_request(request, false).unwrap();
    assert_eq!(reply.await.unwrap().status(), 204);
    (server, sending)
}

/// A stream that is reset right behind its reply looks to some clients as if there was no reply (curl 7.88).
#[tokio::test]
async fn fault_33_a_body_that_nobody_wants_is_read_on_for_a_while_behind_its_reply() {
    let (_server, mut sending) = answered_early(PATIENCE).await;
    // Far more than a window.
    let mut left: usize = 1 << 20;
    while left > 0 {
        sending.reserve_capacity(left);
        let granted = timeout(PATIENCE, poll_fn(|cx| sending.poll_capacity(cx))).await.expect("it is read");
        let granted = granted.unwrap().unwrap().min(left);
        sending.send_data(Bytes::from(vec![b'x'; granted]), false).unwrap();
        left -= granted;
    }
    // And not for ever: it is no error that the client need not go on (RFC 9113, 8.1).
    let (_server, mut sending) = answered_early(Duration::from_millis(1)).await;
    let reset = timeout(PATIENCE, poll_fn(|cx| sending.poll_reset(cx))).await.expect("it ends");
    assert_eq!(reset.unwrap(), Reason::NO_ERROR);
}
