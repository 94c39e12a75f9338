//! WebSocket between clients and servers of each kind: the libraries of Python and Node, over HTTP/1.1 and HTTP/2, and a server
//! behind nginx, which speaks HTTP/2 to other requests.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{PATIENCE, TestGateway, config, status, text};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::{Server, free_port};

const UNDERSTOOD: &str = "3 texts, 1000000 bytes, pong, closed with 1000\n";

/// An offer that a server which knows nothing of it answers as any other request.
const OFFER: &str = "GET /plain HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

fn python() -> Command {
    let mut python = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python"));
    python.arg(script("websocket.py"));
    python
}

fn node() -> Command {
    let mut node = Command::new("node");
    node.arg(script("websocket_http2.mjs"));
    node
}

/// What a client says that talked to this port.
fn said(client: &mut Command, port: u16) -> String {
    let output = client.arg(port.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn websocket_server() -> (Server, u16) {
    let port = free_port();
    (Server::start(python().args(["serve", &port.to_string()]), "ready"), port)
}

/// nginx in front of a server of WebSocket.
struct Nginx {
    child: Child,
    _folder: TempDir,
    /// TLS: HTTP/2 and HTTP/1.1 by ALPN.
    both: u16,
    /// HTTP/2 by prior knowledge.
    clear: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

impl Nginx {
    fn start(server: u16, certificates: &Certificates) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        let program = folders.find_map(|folder| Some(folder.join("nginx")).filter(|file| file.is_file()));
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let (both, clear) = (free_port(), free_port());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
            .collect();
        let pair = format!(
            "ssl_certificate {}; ssl_certificate_key {};",
            certificates.certificate().display(),
            certificates.key().display()
        );
        let locations = format!(
            "location = /plain {{ return 200 \"$server_protocol\"; }}\n\
             location / {{ proxy_pass http://127.0.0.1:{server}; proxy_http_version 1.1;\n\
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}"
        );
        let text = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\nevents {{}}\nhttp {{ {temporary} access_log off;\n\
             server {{ listen 127.0.0.1:{both} ssl http2; {pair} {locations} }}\n\
             server {{ listen 127.0.0.1:{clear} http2; {locations} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let child = Command::new(program.expect("nginx is installed: `make setup`"))
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = monotonic();
        while TcpStream::connect(("127.0.0.1", clear)).is_err() {
            assert!(started.elapsed() < PATIENCE, "nginx does not listen");
            std::thread::yield_now();
        }
        Self { child, _folder: folder, both, clear }
    }
}

fn gateway(upstream: Value) -> TestGateway {
    let mut app = json!({"name": "app"});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let all = json!({"name": "all", "upstream": "app"});
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([app]), json!([all])))
}

#[test]
fn a_websocket_passes_whatever_its_client_and_its_server_speak_otherwise() {
    let (_server, port) = websocket_server();
    let certificates = Certificates::make();
    let nginx = Nginx::start(port, &certificates);
    let tls = json!({"ca_file": certificates.authority()});
    let behind_tls = format!("https://127.0.0.1:{}", nginx.both);
    for (upstream, others) in [
        (json!({"servers": [format!("http://127.0.0.1:{port}")]}), None),
        (json!({"servers": [behind_tls], "tls": tls, "protocol": "http1"}), Some("HTTP/1.1")),
        (json!({"servers": [behind_tls], "tls": tls, "protocol": "auto"}), Some("HTTP/2.0")),
        (json!({"servers": [behind_tls], "tls": tls, "protocol": "http2"}), Some("HTTP/2.0")),
    ] {
        let gateway = gateway(upstream.clone());
        // With a connection of the server's there already, and without.
        for _ in 0..4 {
            let port = gateway.address.port();
            assert_eq!(said(python().arg("ask"), port), UNDERSTOOD, "{upstream}");
            assert_eq!(said(&mut node(), port), UNDERSTOOD, "over HTTP/2; {upstream}");
            let Some(others) = others else { continue };
            // One that is not accepted leaves no connection of HTTP/1.1 to others, who may be calls of gRPC.
            let declined = gateway.send(OFFER);
            assert_eq!((status(&declined), text(&declined)), (200, "HTTP/1.1".to_owned()), "{upstream}");
            let other = gateway.get("/plain");
            assert_eq!((status(&other), text(&other)), (200, others.to_owned()), "{upstream}");
        }
    }
}

/// Its reply would tell the client that it knows no WebSocket.
#[test]
fn a_server_that_speaks_http2_alone_is_sent_no_request_without_the_offer() {
    let (_server, port) = websocket_server();
    let certificates = Certificates::make();
    let nginx = Nginx::start(port, &certificates);
    let alone = free_port();
    let mut command = Command::new("node");
    command.arg(script("http2_alone.mjs")).arg(alone.to_string());
    command.arg(certificates.certificate()).arg(certificates.key());
    let _alone = Server::start(&mut command, "ready");
    let clear = [format!("http://127.0.0.1:{}", nginx.clear)];
    let behind_tls = [format!("https://127.0.0.1:{alone}")];
    let tls = json!({"ca_file": certificates.authority()});
    for upstream in [
        json!({"servers": clear, "protocol": "http2"}),
        json!({"servers": behind_tls, "tls": tls, "protocol": "http2"}),
        json!({"servers": behind_tls, "tls": tls, "protocol": "auto"}),
    ] {
        let gateway = gateway(upstream.clone());
        for _ in 0..4 {
            let other = gateway.get("/plain");
            assert_eq!((status(&other), text(&other)), (200, "HTTP/2.0".to_owned()), "{upstream}");
            let refused = gateway.send(OFFER);
            assert_eq!(status(&refused), 502, "{upstream}");
            assert!(text(&refused).contains("switches to the protocol"), "{upstream}: {}", text(&refused));
            assert_eq!(said(&mut node(), gateway.address.port()), "502\n", "{upstream}");
        }
        let (_, server) = &gateway.gateway.upstreams()[0].servers[0];
        assert_eq!(server.failures, 0, "nobody blames it; {upstream}");
    }
}

/// A client of HTTP/2 takes any success for a yes.
#[test]
fn a_page_in_answer_to_an_extended_connect_opens_nothing() {
    let (_server, port) = websocket_server();
    let certificates = Certificates::make();
    let nginx = Nginx::start(port, &certificates);
    let servers = [format!("https://127.0.0.1:{}", nginx.both)];
    let gateway = gateway(json!({"servers": servers, "tls": {"ca_file": certificates.authority()}}));
    let output = node().arg(gateway.address.port().to_string()).arg("/plain").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "502\n");
}
