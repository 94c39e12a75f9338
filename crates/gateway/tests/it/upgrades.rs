//! Connections that go on in another protocol: WebSocket by a real client and a real server; what is not allowed;
//! silence; reloads; the drain.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::support::{Backend, PATIENCE, TestGateway, config, status};
use serde_json::{Value, json};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;
use tidegate_net::drain::DrainTiming;
use tidegate_testkit::Server;

const OFFER: &str =
    "GET /socket HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\r\n";

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain";

fn python() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python"))
}

fn head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A server that agrees to every upgrade it is offered, greets, and then echoes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let request = loop {
                    // Whoever needs no more requests goes.
                    if stream.peek(&mut [0]).unwrap_or(0) == 0 {
                        return;
                    }
                    let request = head(&mut stream);
                    if request.contains("\r\nupgrade: ") {
                        break request;
                    }
                    stream.write_all(PLAIN).unwrap();
                };
                let protocol = request.lines().find_map(|line| line.strip_prefix("upgrade: ")).unwrap();
                let reply = format!(
                    "HTTP/1.1 101 Go\r\nupgrade: {protocol}\r\nconnection: upgrade\r\nx-mine: 1\r\n\r\nhello"
                );
                stream.write_all(reply.as_bytes()).unwrap();
                let mut reader = stream.try_clone().unwrap();
                std::io::copy(&mut reader, &mut stream).unwrap_or_default();
                stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
            });
        }
    });
    address
}

fn configuration(server: SocketAddr, route: Value) -> GatewayConfig {
    let mut all = json!({"name": "all", "upstream": "app"});
    all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
    config(json!([{"name": "app", "servers": [format!("http://{server}")]}]), json!([all]))
}

fn gateway(route: Value) -> (TestGateway, SocketAddr) {
    let server = echo();
    (TestGateway::start(Unlimited, GatewaySettings::default(), &configuration(server, route)), server)
}

fn expect(stream: &mut TcpStream, expected: &str) {
    let mut received = vec![0; expected.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8(received).unwrap(), expected);
}

/// Offers an upgrade, which is agreed to.
fn upgraded(gateway: &TestGateway, behind: &str) -> TcpStream {
    let mut stream = gateway.connect();
    stream.write_all(format!("{OFFER}{behind}").as_bytes()).unwrap();
    let reply = head(&mut stream);
    assert!(reply.starts_with("HTTP/1.1 101 ") && reply.contains("x-mine: 1\r\n"), "{reply}");
    assert!(reply.to_ascii_lowercase().contains("upgrade: websocket\r\n"), "{reply}");
    expect(&mut stream, &format!("hello{behind}"));
    stream
}

#[test]
fn bytes_pass_both_ways_and_each_side_may_end_first() {
    let (gateway, _) = gateway(json!({}));
    for behind in ["", "early", &"x".repeat(100_000)] {
        let mut stream = upgraded(&gateway, behind);
        for _ in 0..10 {
            stream.write_all(b"more").unwrap();
            expect(&mut stream, "more");
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    let counted = gateway.gateway.route_flows()[0].totals;
    let said = 3 * 40 + 5 + 100_000;
    assert_eq!((counted.request_bytes, counted.reply_bytes), (said, said + 3 * 5), "each greeting has five");
}

/// A client that names its token's place twice does not say which item is the token: none is taken for it, and none is left as an offer.
#[test]
fn a_token_whose_place_is_named_twice_is_refused_and_reaches_no_server() {
    let app = Backend::named("app");
    let jwt = json!({
        "issuer": "a", "keys_url": "http://127.0.0.1:1/keys", "token_in": ["protocol:access_token"]
    });
    let route = json!({"auth": "jwt", "jwt": jwt});
    let settings = GatewaySettings::default();
    let gateway = TestGateway::start(Unlimited, settings, &configuration(app.address, route));
    for protocols in ["access_token, access_token, a.b.c", "access_token, a.b.c, access_token"] {
        let request = OFFER.replace("\r\n\r\n", &format!("\r\nsec-websocket-protocol: {protocols}\r\n\r\n"));
        assert_eq!(status(&gateway.send(&request)), 400, "{protocols}");
    }
    assert!(app.got().is_empty());
}

#[test]
fn only_protocols_that_the_route_names_are_offered_on() {
    let (gateway, server) = gateway(json!({}));
    let ask = |gateway: &TestGateway, upgrade: &str| {
        let mut stream = gateway.connect();
        let request =
            format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: {upgrade}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    for other in ["h2c", "TLS/1.0", "evil", "h2c, websocket", "websocket\r\nupgrade: h2c"] {
        assert_eq!(ask(&gateway, other), "HTTP/1.1 200 OK\r\n", "{other}");
    }
    gateway.apply(&configuration(server, json!({"upgrades": []})));
    assert_eq!(ask(&gateway, "websocket"), "HTTP/1.1 200 OK\r\n");
    gateway.apply(&configuration(server, json!({"upgrades": ["mine"]})));
    assert!(ask(&gateway, "mine").starts_with("HTTP/1.1 101 "));
    for refused in ["h2c", "HTTP/2.0", "tls/1.3", "a b"] {
        let route = json!({"name": "all", "upstream": "app", "upgrades": [refused]});
        let upstream = json!({"name": "app", "servers": ["a:80"]});
        let mistakes = GatewayConfig::check(&[upstream], &[route], &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, "/route/0/upgrades/0", "{refused}");
    }
}

#[test]
fn a_connection_on_which_nobody_speaks_ends() {
    const BOUND: Duration = Duration::from_secs(4);
    let (gateway, _) = gateway(json!({"upgrade_idle_timeout_seconds": BOUND.as_secs()}));
    let mut stream = upgraded(&gateway, "");
    let started = monotonic();
    let mut last = started;
    // Longer than the bound in all, and never silent for as long.
    while last.duration_since(started) < BOUND * 3 / 2 {
        last = monotonic();
        stream.write_all(b"x").unwrap();
        expect(&mut stream, "x");
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty() && last.elapsed() >= BOUND);
}

/// Ends the clients, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn fault_64_a_hundred_reloads_under_load_close_no_connection_and_fail_no_request() {
    let (gateway, server) = gateway(json!({}));
    let mut streams: Vec<TcpStream> = (0..1_000).map(|_| upgraded(&gateway, "")).collect();
    let (replies, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ask_on = |mut stream: TcpStream| {
        while !is_over.load(Relaxed) {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            let reply = head(&mut stream);
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
            expect(&mut stream, "plain");
            replies.fetch_add(1, Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        let ask = |stream| {
            let ask_on = &ask_on;
            scope.spawn(move || ask_on(stream))
        };
        let clients: Vec<_> = (0..4).map(|_| ask(gateway.connect())).collect();
        for number in 0..100_usize {
            // Another route beside it, and in every second round other bounds of this one, which nobody comes to.
            let other = json!({"name": format!("other-{number}"), "path": "/other", "respond": {}});
            let all = json!({"name": "all", "upstream": "app", "idle_timeout_seconds": 3600 + number % 2});
            let upstream = json!([{"name": "app", "servers": [format!("http://{server}")]}]);
            gateway.apply(&config(upstream, json!([all, other])));
            if number % 10 == 0 {
                let stream = streams.get_mut(number).unwrap();
                stream.write_all(b"still").unwrap();
                expect(stream, "still");
            }
            // Each is met by requests.
            let so_far = replies.load(Relaxed);
            while replies.load(Relaxed) < so_far + 2 * clients.len() {
                assert!(!clients.iter().any(ScopedJoinHandle::is_finished), "a request failed");
                std::thread::yield_now();
            }
        }
    });
    for stream in &mut streams {
        stream.write_all(b"here").unwrap();
        expect(stream, "here");
    }
}

#[test]
fn fault_22_a_drain_lets_both_sides_say_their_last_words() {
    let (gateway, _) = gateway(json!({}));
    let mut streams: Vec<TcpStream> = (0..20).map(|_| upgraded(&gateway, "")).collect();
    let (none, all) = (Duration::ZERO, PATIENCE);
    let timing = DrainTiming { grace: none, idle_linger: none, deadline: all, last_words: all };
    let drained = gateway.drain(timing);
    assert_eq!(drained.aborted, 0);
    for stream in &mut streams {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
}

#[test]
fn a_websocket_client_and_server_understand_each_other() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/websocket.py");
    let port = tidegate_testkit::free_port();
    let _server = Server::start(python().arg(&script).args(["serve", &port.to_string()]), "ready");
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let gateway =
        TestGateway::start(Unlimited, GatewaySettings::default(), &configuration(server, json!({})));
    let output = python().arg(&script).args(["ask", &gateway.address.port().to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "3 texts, 1000000 bytes, pong, closed with 1000\n");
}
