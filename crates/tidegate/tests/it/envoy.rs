//! A real Envoy in front of a stub, limited by the built binary over gRPC.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support;
use crate::support::envoy::Envoy;
use crate::support::{Tidegate, agent};

const PATIENCE: Duration = Duration::from_secs(60);

/// Rules of the reference service, for descriptors that the routes of `envoy.yaml` make.
const RULES: &str = "
domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: client
        rate_limit: {name: free, unit: day, requests_per_unit: 2}
      - key: client
        value: staff
        rate_limit: {unlimited: true}
      - key: client
        value: trial-*
        rate_limit: {unit: day, requests_per_unit: 1}
      - key: client
        value: watched
        shadow_mode: true
        rate_limit: {unit: day, requests_per_unit: 1}
  - key: order
    value: express
    rate_limit: {unit: day, requests_per_unit: 4, replaces: [{name: free}]}
";

const POLICIES: &str = r#"
[[policy]]
name = "per-client"
algorithm = "token_bucket"
limit = 3
window_seconds = 3600
match = { domain = "shop" }
key = ["client"]

[[policy]]
name = "watch"
limit = 1
window_seconds = 3600
key = ["watched"]
mode = "shadow"
"#;

/// A running Envoy that asks Tidegate.
pub(crate) struct Limited {
    pub(crate) address: SocketAddr,
    _envoy: Envoy,
}

impl Limited {
    pub(crate) fn start(folder: &Path, tidegate: SocketAddr, stub: SocketAddr) -> Self {
        Self::start_with(folder, tidegate, stub, false)
    }

    /// `denies`: what Envoy does with a request for which it gets an error.
    fn start_with(folder: &Path, tidegate: SocketAddr, stub: SocketAddr, denies: bool) -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(manifest.join("tests/it/envoy/envoy.yaml")).unwrap();
        let text = text.replace("failure_mode_deny: false", &format!("failure_mode_deny: {denies}"));
        let text = text.replace("PORT_OF_TIDEGATE", &tidegate.port().to_string());
        let (address, envoy) = start(folder, &text.replace("PORT_OF_STUB", &stub.port().to_string()));
        Self { address, _envoy: envoy }
    }

    /// The status of a request and one of its headers; an order may follow the client.
    fn get(&self, path: &str, client: &str, header: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let (client, order) = client.split_once(' ').unwrap_or((client, "usual"));
        let reply = agent().get(&url).header("x-client", client).header("x-order", order).call().unwrap();
        let value = reply.headers().get(header).map_or("", |value| value.to_str().unwrap());
        (reply.status().as_u16(), value.to_owned())
    }

    /// The status of a request of client `a` with these bytes in its path and user agent; 400 where Envoy hangs up.
    fn written(&self, path: &[u8], agent: &[u8]) -> u16 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let end = b"\r\nhost: h\r\nx-client: a\r\nconnection: close\r\nuser-agent: ";
        let head = [b"GET /written", path, b" HTTP/1.1", end, agent, b"\r\n\r\n"].concat();
        let mut reply = Vec::new();
        // It may have hung up before it has read everything.
        drop(stream.write_all(&head));
        drop(stream.read_to_end(&mut reply));
        let status = reply.get(9..12).and_then(|status| std::str::from_utf8(status).ok());
        status.map_or(400, |status| status.parse().unwrap())
    }

    fn statuses<const N: usize>(&self, path: &str, client: &str) -> [u16; N] {
        std::array::from_fn(|_| self.get(path, client, "").0)
    }
}

/// Starts an Envoy with this configuration, and says where its listener is.
fn start(folder: &Path, text: &str) -> (SocketAddr, Envoy) {
    let config = folder.join("envoy.yaml");
    fs::write(&config, text).unwrap();
    let admin = folder.join("admin-address");
    let envoy = Envoy::start(&config, &["--admin-address-path", admin.to_str().unwrap()]);
    let url = format!("http://{}/listeners", fs::read_to_string(admin).unwrap());
    let listeners = agent().get(&url).call().unwrap().body_mut().read_to_string().unwrap();
    (listeners.trim().rsplit_once("::").unwrap().1.parse().unwrap(), envoy)
}

/// A backend that answers every request with 200, for as long as the test runs.
fn stub() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(&stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: &TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    }
}

#[test]
fn envoy_is_limited_and_goes_on_when_tidegate_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, POLICIES).unwrap();
    let tidegate = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
    let envoy = Limited::start(folder.path(), tidegate.grpc, stub());

    // One limit over everything that has the header, told in headers that Envoy makes.
    let stated = "3, 3;w=3600;name=\"per-client\"";
    assert_eq!(envoy.get("/limited", "a", "x-ratelimit-limit"), (200, stated.into()));
    assert_eq!(envoy.get("/limited", "a", "x-ratelimit-remaining"), (200, "1".into()));
    assert_eq!(envoy.statuses("/limited", "a"), [200, 429, 429]);
    let (status, reset) = envoy.get("/limited", "a", "x-ratelimit-reset");
    assert_eq!(status, 429);
    assert!((1_100..=1_200).contains(&reset.parse::<u32>().unwrap()), "{reset}");
    assert_eq!(envoy.get("/limited", "b", "x-ratelimit-remaining"), (200, "2".into()));

    // Each request weighs 3, and one of them is all there is.
    assert_eq!(envoy.statuses("/expensive", "c"), [200, 429]);
    // What Envoy gives back is there again, and is never charged.
    assert_eq!(envoy.statuses("/returned", "c"), [200]);
    assert_eq!(envoy.statuses("/limited", "c"), [200, 200, 429]);
    assert_eq!(envoy.statuses("/returned", "d"), [200; 5]);
    assert_eq!(envoy.statuses("/limited", "d"), [200, 200, 200, 429]);
    // 2 a day, as the request says, though no policy does.
    assert_eq!(envoy.statuses("/own", "a"), [200, 200, 429]);
    // 1 an hour, counted and not enforced.
    assert_eq!(envoy.statuses("/watched", "a"), [200, 200, 200]);

    tidegate.signal("TERM");
    assert!(tidegate.wait().output.contains("drained"));
    assert_eq!(envoy.statuses("/limited", "a"), [200, 200, 200, 200, 200]);
}

/// Envoy lets a request through for which it gets an error, unless it is told otherwise.
#[test]
fn whatever_a_client_writes_a_limit_that_is_used_up_denies_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, POLICIES).unwrap();
    for denies in [false, true] {
        let tidegate = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
        let envoy = Limited::start_with(folder.path(), tidegate.grpc, stub(), denies);
        for _ in 0..3 {
            assert_eq!(envoy.written(b"", b"x"), 200);
        }
        for path in ["/%2f", "/%zz", "/%00", "/a\\b", "/..", "?x=%2f", "/caf\u{e9}", "#x"] {
            assert!([429, 400].contains(&envoy.written(path.as_bytes(), b"x")), "{path}");
        }
        assert_eq!(envoy.written(b"/%2f", &[b'a'; 600]), 429);
        assert_eq!(envoy.written(b"/a%00%zz", &[b'a'; 30_000]), 429);
        let path = "(/|%[0-9a-zA-Z]{2}|%|[a-z.;&=?\\\\]){0,60}";
        let byte = || prop_oneof![0x21..=0x7e_u8, 0x80..=0xff_u8];
        let agent = prop_oneof![vec(byte(), 0..100), vec(byte(), 20_000..20_100)];
        let limited = Cell::new(0);
        let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
        let tried = TestRunner::new(config).run(&(path, agent), |(path, agent)| {
            let status = envoy.written(path.as_bytes(), &agent);
            limited.set(limited.get() + u32::from(status == 429));
            // Envoy refuses some by itself.
            prop_assert!([429, 400].contains(&status), "{status}");
            Ok(())
        });
        tried.unwrap();
        assert!(limited.get() > 20, "of 100 Tidegate was asked about {}", limited.get());
    }
}

#[test]
fn envoy_is_limited_by_imported_rules_as_the_reference_service_would() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, file) = (folder.path().join("rules.yaml"), folder.path().join("tidegate.toml"));
    fs::write(&rules, RULES).unwrap();
    let imported =
        support::binary().args(["import", "envoy"]).arg(&rules).arg("--output").arg(&file).output();
    assert!(imported.unwrap().status.success());
    let tidegate = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
    let envoy = Limited::start(folder.path(), tidegate.grpc, stub());

    // Each client has a counter of its own; the header has the limit of the rule that was asked.
    assert_eq!(envoy.get("/imported", "a", "x-ratelimit-remaining"), (200, "1".into()));
    assert_eq!(envoy.statuses("/imported", "a"), [200, 429]);
    assert_eq!(envoy.statuses("/imported", "b"), [200, 200, 429]);
    // The more specific rule only, whether it has more or less to give.
    assert_eq!(envoy.statuses("/imported", "trial-1"), [200, 429]);
    assert_eq!(envoy.statuses("/imported", "trial-2"), [200, 429]);
    assert_eq!(envoy.statuses("/imported", "staff"), [200; 5]);
    assert_eq!(envoy.statuses("/imported", "watched"), [200; 5]);
    // A descriptor that ends before the rule does, is not the rule's.
    assert_eq!(envoy.statuses("/limited", "a"), [200; 3]);
    // One rule instead of another: `a` has used up the other, and it is not asked.
    assert_eq!(envoy.statuses("/imported", "a express"), [200, 200, 200, 200, 429]);
    assert_eq!(envoy.statuses("/imported", "a"), [429]);
}

/// What a client of WebSocket asks, with further fields; `ACCEPTS` is the answer to its key (RFC 6455, 1.3).
fn ask(address: SocketAddr, fields: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = format!(
        "GET /socket HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    );
    stream.write_all(asked.as_bytes()).unwrap();
    (read_head(&stream), stream)
}

const ACCEPTS: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

fn read_head(mut stream: &TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A server that agrees to that, and sends back what it gets.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let stream = stream.unwrap();
                read_head(&stream);
                let agreed = "HTTP/1.1 101 Go\r\nupgrade: websocket\r\nconnection: upgrade\r\n";
                write!(&stream, "{agreed}{ACCEPTS}\r\n").unwrap();
                std::io::copy(&mut &stream, &mut &stream).unwrap_or_default();
            });
        }
    });
    address
}

fn is_echoed(mut stream: &TcpStream, said: &[u8; 4]) -> bool {
    stream.write_all(said).unwrap();
    let mut heard = [0; 4];
    stream.read_exact(&mut heard).is_ok() && heard == *said
}

/// It leaves the key, and the answer to it, to its client and the server, and has all clients on one connection.
#[test]
fn a_websocket_passes_envoy_that_speaks_http2_to_the_gateway_and_outlives_anothers_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let text = format!(
        "[[gateway.listener]]\nlisten = '127.0.0.1:0'\n[[upstream]]\nname = 'app'\nservers = ['{}']\n\
         [[route]]\nname = 'all'\nupstream = 'app'\n",
        echo()
    );
    fs::write(&file, text).unwrap();
    let tidegate = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
    let text = include_str!("envoy/websocket.yaml");
    let text = text.replace("PORT_OF_TIDEGATE", &tidegate.gateway[0].port().to_string());
    let (address, _envoy) = start(folder.path(), &text);

    let (reply, socket) = ask(address, "");
    assert!(reply.starts_with("HTTP/1.1 101 ") && reply.contains(ACCEPTS), "{reply}");
    assert!(is_echoed(&socket, b"ping"));
    let (reply, _other) = ask(address, "content-length: 5\r\n");
    assert!(reply.starts_with("HTTP/1.1 50"), "{reply}");
    assert!(is_echoed(&socket, b"more"), "another client's request has ended this one's stream");
}
