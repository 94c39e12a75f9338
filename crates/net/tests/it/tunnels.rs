//! A stream of HTTP/2 that goes on in another protocol (RFC 8441) is its service's, and its connection goes on beside it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Options, PATIENCE, TestServer};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderValue, Method, Request, StatusCode, header};
use tidegate_net::clock::monotonic;
use tidegate_net::drain::{DrainTiming, Drained};
use tidegate_net::http::{HttpConfig, MinimumRate};

fn start(options: Options) -> TestServer {
    TestServer::start(Options { cores: 1, upgrades: true, ..options })
}

/// A client whose connection never runs out of its window.
async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(64 << 20);
    let (requests, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    // How it ends is what the requests are told.
    tokio::spawn(async move { drop(connection.await) });
    requests.ready().await.unwrap()
}

/// The same when the server has offered extended CONNECT.
async fn connect_and_wait(address: SocketAddr) -> SendRequest<Bytes> {
    let requests = connect(address).await;
    until("it is offered", || requests.is_extended_connect_protocol_enabled()).await;
    requests
}

/// Waits for what others bring about, of whom some are on this thread.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = monotonic();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "did not happen: {what}");
        tokio::task::yield_now().await;
    }
}

fn open(path: &str) -> Request<()> {
    let request = Request::builder().method(Method::CONNECT).uri(format!("http://t{path}"));
    request.extension(Protocol::from_static("echo")).body(()).unwrap()
}

/// Opens a stream in another protocol.
async fn upgraded(requests: &mut SendRequest<Bytes>) -> (SendStream<Bytes>, RecvStream) {
    let (reply, sending) = requests.send_request(open("/upgraded"), false).unwrap();
    let (head, body) = reply.await.unwrap().into_parts();
    assert_eq!(head.status, StatusCode::OK);
    for name in [header::UPGRADE, header::CONNECTION, header::CONTENT_LENGTH] {
        assert!(!head.headers.contains_key(&name), "{name}");
    }
    (sending, body)
}

async fn status(requests: &mut SendRequest<Bytes>, request: Request<()>) -> StatusCode {
    let (reply, _) = requests.send_request(request, true).unwrap();
    reply.await.unwrap().status()
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://t{path}")).body(()).unwrap()
}

/// What comes until there are so many bytes, or until the end.
async fn receive(body: &mut RecvStream, bytes: usize) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() < bytes {
        let Some(piece) = body.data().await else { break };
        let piece = match piece {
            // The server is not interested in what else would come.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => break,
            piece => piece.unwrap(),
        };
        body.flow_control().release_capacity(piece.len()).unwrap();
        received.extend_from_slice(&piece);
    }
    received
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_direction_ends_alone() {
    let server = start(Options::default());
    let mut requests = connect_and_wait(server.address).await;
    for length in [0, 5, 300_000] {
        let (mut sending, mut body) = upgraded(&mut requests).await;
        sending.send_data(vec![b'x'; length].into(), false).unwrap();
        assert_eq!(receive(&mut body, length).await, vec![b'x'; length]);
        sending.send_data(Bytes::from_static(b"more"), false).unwrap();
        assert_eq!(receive(&mut body, 4).await, b"more");
        assert_eq!(status(&mut requests, get("/")).await, 200, "others are answered beside it");
        sending.send_data(Bytes::new(), true).unwrap();
        assert_eq!(receive(&mut body, usize::MAX).await, b"bye");
    }
    drop(requests);
    until("the connection ends", || server.stats.totals().open == 0).await;
    assert_eq!(server.stats.totals().abandoned, 0);
}

/// A client takes any success for a yes (RFC 8441, 5).
#[tokio::test]
async fn a_success_that_accepts_nothing_opens_no_stream() {
    let server = start(Options::default());
    let mut requests = connect_and_wait(server.address).await;
    for path in ["/", "/nothing", "/streamed", "/large"] {
        assert_eq!(status(&mut requests, open(path)).await, 501, "{path}");
    }
    let tunnel = Request::connect("t:443").body(()).unwrap();
    assert_eq!(status(&mut requests, tunnel).await, 501, "to another host");
    assert_eq!(status(&mut requests, get("/")).await, 200);
}

/// Envoy passes the length of a client's request on, and has other clients' streams on the same connection.
#[tokio::test]
async fn one_that_states_the_length_of_a_body_is_reset_and_no_other_stream_is() {
    let server = start(Options::default());
    let mut requests = connect_and_wait(server.address).await;
    let (mut sending, mut body) = upgraded(&mut requests).await;
    // Several come in one read.
    let mut refused = Vec::new();
    for _ in 0..10 {
        for mut request in [open("/upgraded"), Request::connect("t:443").body(()).unwrap()] {
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("5"));
            refused.push(requests.send_request(request, false).unwrap());
        }
    }
    for (reply, _sending) in refused {
        assert_eq!(reply.await.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
    }
    assert_eq!(status(&mut requests, get("/")).await, 200);
    sending.send_data(Bytes::from_static(b"more"), false).unwrap();
    assert_eq!(receive(&mut body, 4).await, b"more");
    sending.send_data(Bytes::new(), true).unwrap();
    assert_eq!(receive(&mut body, usize::MAX).await, b"bye");
    drop((sending, body, requests));
    until("the connection ends", || server.stats.totals().open == 0).await;
}

#[tokio::test]
async fn it_is_offered_where_the_service_accepts_offers() {
    let server = TestServer::start(Options::default());
    let mut requests = connect(server.address).await;
    // Behind the settings.
    assert_eq!(status(&mut requests, get("/")).await, 200);
    assert!(!requests.is_extended_connect_protocol_enabled());
}

#[tokio::test]
async fn a_client_that_does_not_take_what_is_sent_loses_the_stream_and_no_other() {
    let write = MinimumRate { grace: Duration::from_millis(200), bytes_per_second: 1 << 30 };
    let server = start(Options { http: HttpConfig { write, ..HttpConfig::default() }, ..Options::default() });
    let mut requests = connect_and_wait(server.address).await;
    let (mut sending, mut body) = upgraded(&mut requests).await;
    sending.send_data(vec![b'x'; 1 << 20].into(), false).unwrap();
    // Its window stays closed.
    let reset = loop {
        match body.data().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("it ends as if all had been sent"),
        }
    };
    assert!(reset.is_reset(), "{reset}");
    assert_eq!(server.stats.totals().cut_write, 1);
    assert_eq!(status(&mut requests, get("/")).await, 200);
}

#[test]
fn a_drain_ends_it() {
    let mut server = start(Options::default());
    let address = server.address;
    let (opened, is_opened) = std::sync::mpsc::sync_channel(1);
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async move {
            let mut requests = connect_and_wait(address).await;
            let (mut sending, mut body) = upgraded(&mut requests).await;
            sending.send_data(Bytes::from_static(b"here"), false).unwrap();
            assert_eq!(receive(&mut body, 4).await, b"here");
            opened.send(()).unwrap();
            receive(&mut body, usize::MAX).await
        })
    });
    is_opened.recv().unwrap();
    let moment = Duration::from_millis(100);
    let timing = DrainTiming { grace: moment, idle_linger: moment, deadline: PATIENCE, last_words: PATIENCE };
    assert_eq!(server.drain(timing), Drained { aborted: 0 });
    assert_eq!(client.join().unwrap(), b"bye");
}
