//! Servers of an upstream that register themselves join, drain and leave, and no request fails.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::support::edge::{free, until};
use crate::support::{Tidegate, agent, keep_asking};
use serde_json::json;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";

/// A server that counts what it answers, and who is connected.
struct Server {
    name: &'static str,
    address: SocketAddr,
    answered: Arc<AtomicU64>,
    connected: Arc<AtomicU64>,
}

impl Server {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (answered, connected): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let server = Self {
            name,
            address: listener.local_addr().unwrap(),
            answered: Arc::clone(&answered),
            connected: Arc::clone(&connected),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answered, connected) = (Arc::clone(&answered), Arc::clone(&connected));
                connected.fetch_add(1, SeqCst);
                std::thread::spawn(move || {
                    serve(stream, name, &answered);
                    connected.fetch_sub(1, SeqCst);
                });
            }
        });
        server
    }

    fn answered(&self) -> u64 {
        self.answered.load(SeqCst)
    }
}

fn serve(stream: TcpStream, name: &str, answered: &AtomicU64) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            answered.fetch_add(1, SeqCst);
            let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            if reader.get_mut().write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}

struct Registrar(SocketAddr);

impl Registrar {
    fn register(&self, server: &Server, app: &str) {
        let url = format!("http://{}/api/v1/register", self.0);
        let port = server.address.port();
        let body = json!({"id": server.name, "app": app, "ip": "127.0.0.1", "port": port});
        assert_eq!(agent().post(url).send_json(&body).unwrap().status(), 201);
    }

    fn leave(&self, server: &Server) {
        let url = format!("http://{}/api/v1/backends/{}", self.0, server.name);
        assert_eq!(agent().delete(url).call().unwrap().status(), 200);
    }
}

fn start(folder: tempfile::TempDir) -> Tidegate {
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

fn ask(service: &Tidegate) -> (u16, String) {
    let mut reply = agent().get(format!("http://{}/", service.gateway[0])).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

#[test]
fn servers_that_register_join_drain_and_leave_without_a_failed_request() {
    let registrar = Registrar(free());
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "edge.api_listen = \"{}\"\ngateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"shop\", app = \"shop\" }}]\nroute = [{{ name = \"all\", upstream = \"shop\" }}]\n",
        registrar.0
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let service = start(folder);
    assert_eq!(ask(&service).0, 503, "nobody has registered");
    let [first, second, third, other] = ["first", "second", "third", "other"].map(Server::start);
    registrar.register(&other, "other");
    assert_eq!(ask(&service).0, 503, "it serves another app");
    registrar.register(&first, "shop");
    assert_eq!(ask(&service), (200, "first".to_owned()));
    let stop = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| keep_asking(service.gateway[0], REQUEST, &stop, &answered));
        }
        until("requests are answered", || answered.load(SeqCst) > 100);
        registrar.register(&second, "shop");
        until("the second one has joined", || second.answered() > 100);
        registrar.leave(&first);
        // What it was asked has been answered, and no connection is kept to it.
        until("the first one has drained", || first.connected.load(SeqCst) == 0);
        let at_the_end = first.answered();
        registrar.register(&third, "shop");
        until("the third one has joined", || third.answered() > 100);
        registrar.leave(&second);
        until("the second one has drained", || second.connected.load(SeqCst) == 0);
        let before = answered.load(SeqCst);
        until("the third one does it alone", || answered.load(SeqCst) > before + 100);
        assert_eq!((first.answered(), other.answered()), (at_the_end, 0));
        stop.store(true, SeqCst);
    });
    // Who has registered is a server again after a restart.
    service.signal("TERM");
    let (folder, ended) = service.wait_keeping_data();
    assert!(ended.status.success(), "{}", ended.output);
    let service = start(folder);
    assert_eq!(ask(&service), (200, "third".to_owned()));
    registrar.leave(&third);
    assert_eq!(ask(&service).0, 503, "nobody is left");
}

#[test]
fn fault_47_a_registration_that_can_be_read_in_two_ways_is_refused() {
    let registrar = Registrar(free());
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "edge.api_listen = \"{}\"\nupstream = [{{ name = \"shop\", app = \"shop\" }}]\n\
         gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n",
        registrar.0
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let _service = start(folder);
    let twice = r#"{"id":"a","app":"shop","ip":"127.0.0.1","port":1,"port":2}"#;
    let once = r#"{"id":"a","app":"shop","ip":"127.0.0.1","port":1}"#;
    for (host, body, status) in [
        ("localhost", twice, "400"),
        ("[::1].evil", once, "400"),
        ("127.0.0.1:80:80", once, "400"),
        ("127.0.0.1.evil", once, "403"),
        ("[::1]:1", once, "201"),
    ] {
        let mut stream = TcpStream::connect(registrar.0).unwrap();
        let length = body.len();
        let head = format!(
            "POST /api/v1/register HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert_eq!(line.split(' ').nth(1), Some(status), "{host} {body}: {line}");
    }
}

/// The whole contract with a gateway in front: a token, networks, heartbeats, and their absence.
#[test]
fn fault_47_a_server_of_an_upstream_joins_by_token_and_network_and_leaves_by_its_silence() {
    const TOKEN: &str = "an-edge-token-of-the-test";
    let registrar = Registrar(free());
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "edge.api_listen = \"{}\"\nedge.api_token = \"{TOKEN}\"\nedge.api_allowed = [\"127.0.0.0/31\"]\n\
         edge.heartbeat_ttl = \"3s\"\ngateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"shop\", app = \"shop\" }}]\nroute = [{{ name = \"all\", upstream = \"shop\" }}]\n",
        registrar.0
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let service = start(folder);
    let server = Server::start("only");
    let send = |path: &str, token: &str, body: Option<&serde_json::Value>| {
        let request = agent().post(format!("http://{}{path}", registrar.0));
        let request = request.header("authorization", format!("Bearer {token}"));
        let reply = match body {
            Some(body) => request.send_json(body),
            None => request.send_empty(),
        };
        reply.unwrap().status().as_u16()
    };
    let port = server.address.port();
    let body = |ip: &str| json!({"id": "only", "app": "shop", "ip": ip, "port": port});
    assert_eq!(send("/api/v1/register", "another-token-of-no-one", Some(&body("127.0.0.1"))), 401);
    for ip in ["127.0.0.2", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.2", "localhost", "0"] {
        assert_eq!(send("/api/v1/register", TOKEN, Some(&body(ip))), 422, "{ip}");
    }
    assert_eq!(ask(&service).0, 503, "none of these has joined");
    assert_eq!(send("/api/v1/register", TOKEN, Some(&body("127.0.0.1"))), 201);
    assert_eq!(ask(&service), (200, "only".to_owned()));
    // It stays for longer than the time to live, as long as it says that it is there.
    let begun = tidegate_net::clock::monotonic();
    while begun.elapsed() < std::time::Duration::from_secs(5) {
        assert_eq!(send("/api/v1/heartbeat/only", TOKEN, None), 200);
        assert_eq!(ask(&service).0, 200);
    }
    assert_eq!(send("/api/v1/heartbeat/only", "another-token-of-no-one", None), 401);
    until("its silence removes it", || ask(&service).0 == 503);
    assert_eq!(send("/api/v1/heartbeat/only", TOKEN, None), 404);
    let audit = agent().get(service.url("/v1/audit")).call().unwrap().body_mut().read_to_string().unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&audit).unwrap();
    let told: Vec<_> = rows.iter().map(|row| (&row["actor"], &row["from"], &row["action"])).collect();
    let null = serde_json::Value::Null;
    assert_eq!(
        told,
        [
            (&json!("edge"), &json!("127.0.0.1"), &json!("put")),
            (&json!("heartbeat"), &null, &json!("delete"))
        ]
    );
    assert!(!audit.contains(TOKEN), "{audit}");
}
