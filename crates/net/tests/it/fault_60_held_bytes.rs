//! Fault 60: what a client of HTTP/2 sends and does not finish, or asks for and does not take, is held for
//! so long and for so many bytes, and no longer; on HTTP/1.1 the same bytes count.

use std::io::Write;
use std::time::Duration;

use crate::common::{Options, PATIENCE, TestServer, exchange, read_to_end};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{Request, Response, StatusCode};
use tidegate_net::buffers::Buffers;
use tidegate_net::http::{BodyPace, HttpConfig, MinimumRate};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Short of grace, and quick.
const RATE: MinimumRate = MinimumRate { grace: Duration::from_millis(200), bytes_per_second: 1 << 20 };

/// A server that never loses patience, and lets a connection hold so many bytes.
fn patient(connection_bytes: usize) -> HttpConfig {
    let rate = MinimumRate { grace: PATIENCE * 10, bytes_per_second: 1 };
    let body = BodyPace { deadline: PATIENCE * 10, rate };
    HttpConfig { connection_bytes, write: rate, body, ..HttpConfig::default() }
}

/// A client that answers pings and lets every request have a window of `window` bytes, and no more.
async fn client(server: &TestServer, window: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 30);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    // How it ends is what the requests are told.
    tokio::spawn(async move { drop(connection.await) });
    client
}

async fn ask(
    client: &mut SendRequest<Bytes>,
    path: &str,
    is_whole: bool,
) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post(format!("http://t{path}")).body(()).unwrap();
    *client = client.clone().ready().await.unwrap();
    client.send_request(request, is_whole).unwrap()
}

/// The bytes of a reply, given back to the window as they come.
async fn body(reply: Response<h2::RecvStream>) -> Result<usize, h2::Error> {
    let (mut body, mut bytes) = (reply.into_body(), 0);
    while let Some(data) = body.data().await {
        bytes += data.as_ref().map_or(0, Bytes::len);
        body.flow_control().release_capacity(data?.len())?;
    }
    Ok(bytes)
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, holds).await.expect(what);
}

#[tokio::test]
async fn fault_60_a_reply_that_is_not_taken_is_reset_in_time_and_its_connection_goes_on() {
    const COUNT: usize = 100;
    let http = HttpConfig { write: RATE, ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    let mut client = client(&server, 0).await;
    let mut replies = Vec::new();
    for number in 0..COUNT {
        // Small ones, and large ones that others hold too.
        let path = if number % 2 == 0 { "/" } else { "/large" };
        replies.push(ask(&mut client, path, true).await.0.await.unwrap());
    }
    for reply in replies {
        assert_eq!(reply.status(), StatusCode::OK);
        let mut reply = reply.into_body();
        let end = timeout(PATIENCE, reply.data()).await.expect("it ends").unwrap().unwrap_err();
        assert_eq!(end.reason(), Some(Reason::CANCEL), "{end}");
    }
    assert_eq!(server.stats.totals().cut_write, COUNT as u64);
    assert_eq!(server.stats.totals().open, 1);
    let reply = ask(&mut client, "/nothing", true).await.0.await.unwrap();
    assert_eq!(reply.status(), StatusCode::NO_CONTENT, "the connection goes on");
    eventually("nothing is held", || server.buffers.taken() == 0).await;
}

#[tokio::test]
async fn fault_60_a_short_reply_that_is_begun_and_not_taken_ends_the_connection() {
    let http = HttpConfig { write: RATE, ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    // Nothing is left of it here to be reset: one byte of it was sent, the other is queued.
    let mut client = client(&server, 1).await;
    let reply = ask(&mut client, "/", true).await.0.await.unwrap();
    eventually("the connection ends", || server.stats.totals().open == 0).await;
    assert!(timeout(PATIENCE, body(reply)).await.expect("it ends").is_err());
    assert_eq!(server.stats.totals().cut_write, 1);
}

#[tokio::test]
async fn fault_60_a_long_reply_that_is_begun_and_not_taken_is_reset_too() {
    let http = HttpConfig { write: RATE, ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    let mut client = client(&server, 1).await;
    let mut replies = Vec::new();
    for _ in 0..20 {
        replies.push(ask(&mut client, "/fresh", true).await.0.await.unwrap());
    }
    for mut reply in replies {
        // Its first byte, and then the end: the second one is never asked for.
        assert_eq!(reply.body_mut().data().await.unwrap().unwrap().len(), 1);
        let end = timeout(PATIENCE, reply.body_mut().data()).await.expect("it ends");
        assert!(end.unwrap().is_err());
    }
    eventually("nothing is held", || server.buffers.taken() == 0).await;
    assert!(server.stats.totals().cut_write >= 20);
}

#[tokio::test]
async fn a_client_that_takes_its_reply_slowly_but_surely_gets_it_whole() {
    // Slower than hyper hands it on, faster than the rate.
    let http = HttpConfig { write: MinimumRate { grace: PATIENCE, ..RATE }, ..HttpConfig::default() };
    let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
    let mut client = client(&server, 5_000).await;
    let reply = ask(&mut client, "/large", true).await.0.await.unwrap();
    assert_eq!(body(reply).await.unwrap(), 16 << 20);
    assert_eq!(server.stats.totals().cut_write, 0);
}

#[tokio::test]
async fn fault_60_replies_beyond_a_connections_bytes_are_refused_until_some_are_taken() {
    let server = TestServer::start(Options { cores: 1, http: patient(256 << 10), ..Options::default() });
    let mut closed = client(&server, 0).await;
    let mut replies = Vec::new();
    for _ in 0..20 {
        replies.push(ask(&mut closed, "/fresh", true).await.0.await.unwrap());
    }
    let given = replies.iter().filter(|reply| reply.status() == StatusCode::OK).count();
    assert_eq!(given, 3, "each takes 64 KiB and something");
    assert!(replies.iter().all(|reply| [200, 503].contains(&reply.status().as_u16())));
    assert!(server.buffers.taken() <= 256 << 10 && server.buffers.refused() == 17);
    for mut reply in replies.into_iter().filter(|reply| reply.status() == StatusCode::OK) {
        // Opens the window, and lets the reply come.
        reply.body_mut().flow_control().release_capacity(0).unwrap();
        drop(reply);
    }
    eventually("what nobody wants any more is given back", || server.buffers.taken() == 0).await;
    assert_eq!(ask(&mut closed, "/fresh", true).await.0.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn fault_60_a_process_that_holds_all_it_may_still_answers_what_is_small() {
    let buffers = Buffers::new(128 << 10);
    let options = Options { cores: 1, http: patient(4 << 20), buffers, ..Options::default() };
    let server = TestServer::start(options);
    let mut greedy = client(&server, 0).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(ask(&mut greedy, "/fresh", true).await.0.await.unwrap());
    }
    assert!(held.iter().any(|reply| reply.status() == StatusCode::SERVICE_UNAVAILABLE));
    let mut modest = client(&server, 65_535).await;
    let refused = ask(&mut modest, "/fresh", true).await.0.await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    let small = ask(&mut modest, "/", true).await.0.await.unwrap();
    assert_eq!((small.status(), body(small).await.unwrap()), (StatusCode::OK, 2));
    let shared = ask(&mut modest, "/large", true).await.0.await.unwrap();
    assert_eq!(body(shared).await.unwrap(), 16 << 20, "bytes that are there anyway cost nothing");
    drop((held, greedy));
    eventually("all is given back with the connection", || server.buffers.taken() <= 64 << 10).await;
}

/// Its clients know no status of HTTP: in gRPC they hear that they may ask again.
#[tokio::test]
async fn fault_60_a_call_of_grpc_is_told_in_grpc_that_there_is_no_room() {
    let call = |path: &str, kind: &str| {
        let call = Request::post(format!("http://t{path}")).header("content-type", kind);
        call.body(()).unwrap()
    };
    // No room for the reply, and none for a request.
    for (connection_bytes, path) in [(32 << 10, "/fresh"), (1 << 10, "/")] {
        let http = patient(connection_bytes);
        let server = TestServer::start(Options { cores: 1, http, ..Options::default() });
        for kind in ["application/grpc+proto", "application/grpc-web"] {
            let mut client = client(&server, 65_535).await.ready().await.unwrap();
            let told = client.send_request(call(path, kind), true).unwrap().0.await.unwrap();
            let fields = ["content-type", "grpc-status", "retry-after"].map(|name| &told.headers()[name]);
            assert_eq!(fields, [kind, "14", "1"], "{path}");
            assert_eq!(told.status(), StatusCode::OK);
            assert_eq!(body(told).await.unwrap(), 0);
        }
        let failed: u64 = server.stats.routes().iter().map(|route| route.by_class[4]).sum();
        assert_eq!(failed, 2, "counted under the status of plain HTTP");
    }
}

#[tokio::test]
async fn fault_60_unfinished_bodies_hold_no_more_than_a_connections_bytes() {
    const COUNT: usize = 20;
    let server = TestServer::start(Options { cores: 1, http: patient(256 << 10), ..Options::default() });
    let mut client = client(&server, 65_535).await;
    let mut asked = Vec::new();
    for _ in 0..COUNT {
        let (reply, mut sending) = ask(&mut client, "/echo", false).await;
        // 48 KiB of 64: room for all of it is made.
        sending.send_data(vec![b'x'; 48 << 10].into(), false).unwrap();
        asked.push((reply, sending));
    }
    eventually("most are refused", || server.buffers.refused() as usize >= COUNT - 3).await;
    let (mut answered, mut refused) = (0, 0);
    for (reply, mut sending) in asked {
        // One that was refused may be reset before it ends.
        drop(sending.send_data(Bytes::new(), true));
        match reply.await.unwrap() {
            reply if reply.status() == StatusCode::SERVICE_UNAVAILABLE => refused += 1,
            reply => {
                assert_eq!(body(reply).await.unwrap(), 48 << 10);
                answered += 1;
            }
        }
    }
    assert!(answered >= 1 && refused >= COUNT - 3, "{answered} answered, {refused} refused");
    eventually("all is given back", || server.buffers.taken() == 0).await;
}

#[test]
fn fault_60_bodies_and_replies_of_http_1_count_too() {
    let server = TestServer::start(Options { cores: 1, http: patient(32 << 10), ..Options::default() });
    let long = "x".repeat(60_000);
    let post =
        format!("POST /echo HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 60000\r\n\r\n{long}");
    assert!(exchange(server.address, post.as_bytes()).starts_with("HTTP/1.1 503"));
    let fresh = "GET /fresh HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    let reply = exchange(server.address, fresh.as_bytes());
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("retry-after: 1"), "{reply}");
    // By way of hyper.
    let mut stream = server.connect();
    write!(
        stream,
        "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n{fresh}"
    )
    .unwrap();
    let replies = read_to_end(&mut stream);
    assert!(replies.starts_with("HTTP/1.1 200") && replies.contains("HTTP/1.1 503"), "{replies}");
    let large = exchange(server.address, fresh.replace("fresh", "large").as_bytes());
    assert!(large.starts_with("HTTP/1.1 200") && large.len() > 16 << 20);
    assert_eq!(server.buffers.taken(), 0);
}
