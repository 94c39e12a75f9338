//! Clients of HTTP/2 that open a stream for another protocol (RFC 8441): for everything that judges requests it is the GET that
//! would ask for the same on HTTP/1.1, and what opens nothing is no success.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use crate::support::{PATIENCE, TestGateway, config, head, server};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};
use tidegate_gateway::access_log::{AccessLog, AccessLogSettings, Destination, LineFormat};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::{
    Denial, LimitPermit, LimitedRequest, Limits, LimitsAnswer, Ruling, Unlimited,
};
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

/// A server that agrees to every offer and sends back what it gets. It tells what it was asked, and each end of a
/// connection that it reads.
fn echo() -> (SocketAddr, Receiver<String>) {
    let (tell, told) = sync_channel(64);
    let address = server(move |reader| serve(reader, &tell));
    (address, told)
}

fn serve(mut reader: BufReader<TcpStream>, tell: &SyncSender<String>) {
    let asked = head(&mut reader);
    let protocol = asked.lines().find_map(|line| line.strip_prefix("upgrade: ")).unwrap().to_owned();
    let mut writer = reader.get_ref().try_clone().unwrap();
    // Who is gone by now is told nothing.
    tell.send(asked).unwrap_or_default();
    let reply =
        format!("HTTP/1.1 101 Go\r\nupgrade: {protocol}\r\nconnection: upgrade\r\nx-mine: 1\r\n\r\nhello");
    writer.write_all(reply.as_bytes()).unwrap();
    std::io::copy(&mut reader, &mut writer).unwrap_or_default();
    tell.send("end".to_owned()).unwrap_or_default();
    writer.shutdown(Shutdown::Write).unwrap_or_default();
}

fn in_front_of(server: SocketAddr, route: Value) -> GatewayConfig {
    let mut all = json!({"name": "all", "upstream": "app", "path": "/socket/*", "method": "GET", "upgrades": ["mine", "websocket"]});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    config(json!([{"name": "app", "servers": [format!("http://{server}")]}]), json!([all]))
}

fn plain(server: SocketAddr, route: Value) -> TestGateway {
    TestGateway::start(Unlimited, GatewaySettings::default(), &in_front_of(server, route))
}

/// A connection of HTTP/2 to a gateway that has offered extended CONNECT.
async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    // How it ends is what the requests are told.
    tokio::spawn(async move { drop(connection.await) });
    let requests = requests.ready().await.unwrap();
    until("it is offered", || requests.is_extended_connect_protocol_enabled()).await;
    requests
}

/// Waits for what others bring about, of whom some are on this thread.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = monotonic();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "did not happen: {what}");
        tokio::task::yield_now().await;
    }
}

fn open(path: &str, protocol: &'static str) -> Request<()> {
    let request = Request::builder().method(Method::CONNECT).uri(format!("http://shop.example{path}"));
    request.extension(Protocol::from_static(protocol)).body(()).unwrap()
}

/// What a client is told, and the stream where it was opened.
async fn ask(
    requests: &mut SendRequest<Bytes>,
    request: Request<()>,
) -> (u16, HeaderMap, SendStream<Bytes>, RecvStream) {
    let (reply, sending) = requests.send_request(request, false).unwrap();
    let (head, body) = reply.await.unwrap().into_parts();
    (head.status.as_u16(), head.headers, sending, body)
}

async fn status(requests: &mut SendRequest<Bytes>, request: Request<()>) -> u16 {
    ask(requests, request).await.0
}

/// Reads until there are so many bytes, or the end.
async fn receive(body: &mut RecvStream, bytes: usize) -> String {
    let mut received = Vec::new();
    while received.len() < bytes {
        let Some(piece) = body.data().await else { break };
        let piece = match piece {
            // The gateway is not interested in what else would come.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => break,
            piece => piece.unwrap(),
        };
        body.flow_control().release_capacity(piece.len()).unwrap();
        received.extend_from_slice(&piece);
    }
    String::from_utf8(received).unwrap()
}

/// Lets one request through at a time.
#[derive(Debug, Default)]
struct OneAtATime {
    is_taken: Arc<AtomicBool>,
    /// Method and path of what it was asked about.
    asked: Arc<Mutex<Vec<String>>>,
}

struct Permit(Arc<AtomicBool>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl<'r> Limits<LimitedRequest<'r>> for OneAtATime {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(format!("{} {}", request.method, request.path));
            if self.is_taken.swap(true, SeqCst) {
                let policies = policies.iter().map(ToString::to_string).collect();
                return Ruling { denial: Some(Denial::Quota { policies }), ..Ruling::default() };
            }
            Ruling { held: Some(LimitPermit::new(Permit(Arc::clone(&self.is_taken)))), ..Ruling::default() }
        })
    }
}

#[tokio::test]
async fn a_stream_is_judged_and_logged_as_the_get_that_it_stands_for_and_holds_its_permit_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let destination = Destination::File { path: path.clone(), max_bytes: 1 << 30, keep: 1 };
    let settings = AccessLogSettings { destination, format: LineFormat::Json, rules: Vec::new() };
    let log = AccessLog::open(settings).unwrap();
    let (address, told) = echo();
    let limits = OneAtATime::default();
    let (is_taken, asked) = (Arc::clone(&limits.is_taken), Arc::clone(&limits.asked));
    let config = in_front_of(address, json!({"policies": ["per-client"]}));
    let gateway = TestGateway::start_with(limits, GatewaySettings::default(), &config, |gateway| {
        gateway.with_access_log(Some(log))
    });
    let mut requests = connect(gateway.address).await;
    let (status_of_first, fields, mut sending, mut body) =
        ask(&mut requests, open("/socket/%61?b", "mine")).await;
    assert_eq!((status_of_first, fields.get("x-mine").is_some()), (200, true), "{fields:?}");
    assert!(!fields.contains_key("upgrade") && !fields.contains_key("connection"), "{fields:?}");
    assert_eq!(receive(&mut body, 5).await, "hello");
    for _ in 0..10 {
        sending.send_data(Bytes::from_static(b"more"), false).unwrap();
        assert_eq!(receive(&mut body, 4).await, "more");
    }
    let got = told.recv_timeout(PATIENCE).unwrap();
    assert!(got.starts_with("GET /socket/%61?b HTTP/1.1\r\n"), "{got}");
    for line in ["host: shop.example", "connection: upgrade", "upgrade: mine", "via: 2.0 tidegate"] {
        assert!(got.contains(&format!("\r\n{line}\r\n")), "{got}");
    }
    assert_eq!(status(&mut requests, open("/socket/b", "mine")).await, 429, "its permit is held");
    sending.send_data(Bytes::new(), true).unwrap();
    assert_eq!(receive(&mut body, usize::MAX).await, "");
    until("the permit comes back", || !is_taken.load(SeqCst)).await;
    assert_eq!(*asked.lock().unwrap(), ["GET /socket/a", "GET /socket/b"]);
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    until("the lines are written", || lines().lines().count() == 2).await;
    let read: Vec<Value> = lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |status: u16| read.iter().find(|line| line["status"] == status).unwrap();
    for (key, value) in [
        ("method", json!("GET")),
        ("target", json!("/socket/%61?b")),
        ("protocol", json!("HTTP/2.0")),
        ("bytes", json!(45)),
        ("route", json!("all")),
        ("end", json!("complete")),
    ] {
        assert_eq!(line(101)[key], value, "{read:?}");
    }
    assert_eq!(line(429)["because"], "quota", "{read:?}");
}

#[tokio::test]
async fn each_side_hears_of_the_others_end() {
    let (address, told) = echo();
    let gateway = plain(address, json!({}));
    let mut requests = connect(gateway.address).await;
    // The client gives it up.
    let (_, _, mut sending, mut body) = ask(&mut requests, open("/socket/a", "mine")).await;
    assert_eq!(receive(&mut body, 5).await, "hello");
    told.recv_timeout(PATIENCE).unwrap();
    sending.send_reset(Reason::CANCEL);
    until("the server hears of it", || told.try_recv().is_ok_and(|end| end == "end")).await;
    // Its connection is gone.
    let (_, _, sending, mut body) = ask(&mut requests, open("/socket/b", "mine")).await;
    assert_eq!(receive(&mut body, 5).await, "hello");
    told.recv_timeout(PATIENCE).unwrap();
    drop((sending, body, requests));
    until("the server hears of it", || told.try_recv().is_ok_and(|end| end == "end")).await;
    // The server ends first.
    let brief = server(|mut reader| {
        head(&mut reader);
        let reply = b"HTTP/1.1 101 Go\r\nupgrade: mine\r\nconnection: upgrade\r\n\r\nlast words";
        reader.get_ref().write_all(reply).unwrap();
        reader.get_ref().shutdown(Shutdown::Write).unwrap();
        // Until the client has ended, too.
        reader.read_to_end(&mut Vec::new()).unwrap_or_default();
    });
    let gateway = plain(brief, json!({}));
    let mut requests = connect(gateway.address).await;
    let (_, _, mut sending, mut body) = ask(&mut requests, open("/socket/c", "mine")).await;
    assert_eq!(receive(&mut body, usize::MAX).await, "last words");
    sending.send_data(Bytes::new(), true).unwrap();
}

#[tokio::test]
async fn what_opens_nothing_is_no_success() {
    let (agreeing, _told) = echo();
    let gateway = plain(agreeing, json!({}));
    let mut requests = connect(gateway.address).await;
    assert_eq!(status(&mut requests, open("/socket/a", "mine")).await, 200);
    for (request, expected) in [
        (open("/socket/a", "other"), 501),
        (open("/socket/a", "h2c"), 501),
        (open("/elsewhere", "mine"), 404),
        // It agrees without the answer to the gateway's key.
        (open("/socket/a", "websocket"), 502),
        (Request::connect("shop.example:443").body(()).unwrap(), 501),
    ] {
        let what = format!("{request:?}");
        assert_eq!(status(&mut requests, request).await, expected, "{what}");
    }
    for (reply, expected) in [
        ("200 OK\r\ncontent-length: 2\r\n\r\nok", 502),
        ("204 No Content\r\n\r\n", 502),
        ("404 Not Found\r\ncontent-length: 2\r\n\r\nno", 404),
        ("302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", 302),
        ("101 Go\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", 502),
    ] {
        let address = server(move |mut reader| {
            head(&mut reader);
            reader.get_ref().write_all(format!("HTTP/1.1 {reply}").as_bytes()).unwrap();
            reader.read_to_end(&mut Vec::new()).unwrap_or_default();
        });
        let gateway = plain(address, json!({}));
        let mut requests = connect(gateway.address).await;
        assert_eq!(status(&mut requests, open("/socket/a", "mine")).await, expected, "{reply}");
    }
    for (route, expected) in [
        (json!({"auth": "key"}), 401),
        (json!({"upgrades": []}), 501),
        (json!({"method": "POST"}), 404),
        (json!({"maintenance": {"status": 200}}), 502),
    ] {
        let gateway = plain(agreeing, route.clone());
        let mut requests = connect(gateway.address).await;
        assert_eq!(status(&mut requests, open("/socket/a", "mine")).await, expected, "{route}");
    }
}
