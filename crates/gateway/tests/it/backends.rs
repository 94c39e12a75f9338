//! Servers of every kind behind the gateway: TLS with an authority of its own, HTTP/2 with and without TLS, gRPC.
//! nginx and grpcio play them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use crate::support::{Backend, PATIENCE, TestGateway, ask_on, config, head, reply, status, text};
use serde_json::{Value, json};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;
use tidegate_testkit::nginx::Nginx;

/// nginx that says what it was asked: TLS and HTTP/2 on one port, HTTP/2 by prior knowledge on another, where only health.example
/// has `/health`, TLS with HTTP/1.1 alone on a third, and HTTP/2 as on the second one on a fourth, where it takes leave after every
/// 20 requests.
fn nginx(certificates: &Certificates) -> (Nginx, [u16; 4]) {
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let [both, clear, old, brief] = ports;
    let say = "location / { return 200 \"$server_protocol $ssl_server_name $http_host $request_method $request_uri $connection\"; }";
    let pair = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        certificates.certificate().display(),
        certificates.key().display()
    );
    let nginx = Nginx::start(&ports, |_| {
        format!(
            "access_log off;\n\
             server {{ listen 127.0.0.1:{both} ssl http2; {pair} {say} }}\n\
             server {{ listen 127.0.0.1:{clear} http2; {say} location = /health {{ return 404; }} }}\n\
             server {{ listen 127.0.0.1:{clear} http2; server_name health.example; location / {{ return 204; }} }}\n\
             server {{ listen 127.0.0.1:{old} ssl; {pair} {say} }}\n\
             server {{ listen 127.0.0.1:{brief} http2; keepalive_requests 20; {say} }}"
        )
    });
    (nginx, ports)
}

pub(crate) fn in_front_of(upstream: Value) -> GatewayConfig {
    let mut app = json!({"name": "app", "eject_after": 0, "breaker": {"enabled": false}});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    config(json!([app]), json!([{"name": "all", "upstream": "app"}]))
}

pub(crate) fn gateway(upstream: Value) -> TestGateway {
    TestGateway::start(Unlimited, GatewaySettings::default(), &in_front_of(upstream))
}

#[test]
fn tls_and_http2_are_spoken_as_configured_and_a_server_must_prove_its_name() {
    let certificates = Certificates::make();
    let (_nginx, [both, clear, old, _]) = nginx(&certificates);
    let trusted = json!({"ca_file": certificates.authority()});
    let named = json!({"ca_file": certificates.authority(), "server_name": "localhost"});
    let other = json!({"ca_file": certificates.authority(), "server_name": "other.example"});
    for (url, protocol, tls, expected) in [
        (format!("https://127.0.0.1:{both}"), "http1", Some(&trusted), "HTTP/1.1  shop.example GET /x?y"),
        (
            format!("https://localhost:{both}"),
            "http1",
            Some(&trusted),
            "HTTP/1.1 localhost shop.example GET /x?y",
        ),
        (
            format!("https://127.0.0.1:{both}"),
            "http2",
            Some(&named),
            "HTTP/2.0 localhost shop.example GET /x?y",
        ),
        (format!("https://127.0.0.1:{both}"), "auto", Some(&trusted), "HTTP/2.0  shop.example GET /x?y"),
        (format!("https://127.0.0.1:{old}"), "auto", Some(&trusted), "HTTP/1.1  shop.example GET /x?y"),
        (format!("http://127.0.0.1:{clear}"), "http2", None, "HTTP/2.0  shop.example GET /x?y"),
        // Neither the system's authorities nor another name will do, nor a server that speaks no HTTP/2.
        (format!("https://127.0.0.1:{both}"), "http1", None, "502"),
        (format!("https://127.0.0.1:{both}"), "http1", Some(&other), "502"),
        (format!("https://127.0.0.1:{old}"), "http2", Some(&trusted), "502"),
        (format!("http://127.0.0.1:{both}"), "http2", None, "502"),
    ] {
        let mut upstream = json!({"servers": [url], "protocol": protocol});
        if let Some(tls) = tls {
            upstream["tls"] = tls.clone();
        }
        let gateway = gateway(upstream);
        let mut connections = Vec::new();
        for _ in 0..20 {
            let reply = gateway.get("/x?y");
            if expected == "502" {
                assert_eq!(status(&reply), 502, "{url} {protocol} {}", text(&reply));
                continue;
            }
            let said = text(&reply);
            let (said, connection) = said.rsplit_once(' ').unwrap();
            assert_eq!((status(&reply), said), (200, expected), "{url} {protocol}");
            connections.push(connection.to_owned());
        }
        connections.sort();
        connections.dedup();
        // One for each core that serves clients.
        assert!(connections.len() <= 2, "{url} {protocol}: connections are used again: {connections:?}");
    }
}

#[test]
fn a_server_of_http2_that_takes_leave_of_a_connection_costs_nobody_a_reply() {
    let (_nginx, [.., brief]) = nginx(&Certificates::make());
    let gateway = gateway(json!({"servers": [format!("http://127.0.0.1:{brief}")], "protocol": "http2"}));
    let ask = |_| {
        let mut reader = BufReader::new(gateway.connect());
        for _ in 0..100 {
            let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
            reader.get_ref().write_all(request).unwrap();
            let head = head(&mut reader).to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 200 "), "{head}");
            let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            std::io::copy(&mut (&mut reader).take(length.parse().unwrap()), &mut std::io::sink()).unwrap();
        }
    };
    std::thread::scope(|scope| (0..16).for_each(|client| drop(scope.spawn(move || ask(client)))));
    let (_, server) = &gateway.gateway.upstreams()[0].servers[0];
    assert_eq!(server.failures, 0, "and nobody blames it");
}

#[test]
fn a_connection_is_kept_no_longer_than_its_server_says() {
    for (said, connections) in [("timeout=1", 3), ("timeout=100, max=1000", 1)] {
        let field = format!("keep-alive: {said}");
        let backend = Backend::start(move |_| reply(200, &[&field], ""));
        let gateway = gateway(json!({"servers": [backend.url()]}));
        // One client is served by one core, which has its own connections.
        let mut reader = BufReader::new(gateway.connect());
        assert_eq!([ask_on(&mut reader, "/"), ask_on(&mut reader, "/"), ask_on(&mut reader, "/")], [200; 3]);
        assert_eq!(backend.connections(), connections, "{said}");
    }
}

#[test]
fn what_is_wrong_with_tls_is_a_mistake_of_the_file() {
    let certificates = Certificates::make();
    let other = certificates.issue("other");
    for (tls, server, pointer) in [
        (json!({"ca_file": "/nowhere"}), "https://a", "/upstream/0/tls/ca_file"),
        (json!({"ca_file": certificates.key()}), "https://a", "/upstream/0/tls/ca_file"),
        (json!({"server_name": "a b"}), "https://a", "/upstream/0/tls/server_name"),
        (json!({"min_version": "1.1"}), "https://a", "/upstream/0/tls/min_version"),
        (json!({"min_version": 1.3}), "https://a", "/upstream/0/tls/min_version"),
        (json!({"certificate_file": certificates.certificate()}), "https://a", "/upstream/0/tls/key_file"),
        (json!({"key_file": certificates.key()}), "https://a", "/upstream/0/tls/certificate_file"),
        (
            json!({"certificate_file": certificates.certificate(), "key_file": other.key}),
            "https://a",
            "/upstream/0/tls/key_file",
        ),
        (
            json!({"certificate_file": "/nowhere", "key_file": certificates.key()}),
            "https://a",
            "/upstream/0/tls/certificate_file",
        ),
        (json!({}), "http://a", "/upstream/0/tls"),
    ] {
        let upstream = json!({"name": "app", "servers": [server], "tls": tls});
        let mistakes = GatewayConfig::check(&[upstream], &[], &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, pointer, "{mistakes:?}");
    }
}

pub(crate) struct Grpc {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Drop for Grpc {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

fn script() -> [PathBuf; 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    [root.join("../../.venv/bin/python"), root.join("tests/it/grpc_through.py")]
}

pub(crate) fn grpc() -> Grpc {
    let [python, script] = script();
    let port = free_port();
    let mut child = Command::new(python)
        .arg(script)
        .args(["serve", &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its port takes connections before it serves them.
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n", "the server does not serve");
    Grpc { child, port }
}

#[test]
fn grpc_passes_with_its_streams_its_metadata_and_its_errors() {
    let server = grpc();
    let gateway =
        gateway(json!({"servers": [format!("http://127.0.0.1:{}", server.port)], "protocol": "http2"}));
    let [python, script] = script();
    let output =
        Command::new(python).arg(script).args(["ask", &gateway.address.port().to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        said,
        "unary cba 1 2\nfailed FAILED_PRECONDITION as asked\nlarge 3000000\ncount 499500\ntotal 5000000\n\
         dialogue heard one, heard two, heard three\nmissing UNIMPLEMENTED\nhealth 1\n"
    );
}

#[test]
fn beyond_the_streams_that_a_server_allows_there_is_a_further_connection() {
    let server = grpc();
    let gateway =
        gateway(json!({"servers": [format!("http://127.0.0.1:{}", server.port)], "protocol": "http2"}));
    let [python, script] = script();
    let output = Command::new(python)
        .arg(script)
        .args(["meet", &gateway.address.port().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "met 6\n");
}

/// Waits until an upstream's only server is up, or is not.
pub(crate) fn wait_for(gateway: &TestGateway, wanted: bool) {
    let started = monotonic();
    while gateway.gateway.upstreams()[0].servers[0].1.is_up != wanted {
        assert!(started.elapsed() < PATIENCE, "the server stays {}", !wanted);
        std::thread::yield_now();
    }
}

#[test]
fn a_check_is_a_connection_a_handshake_or_a_request_whose_reply_has_its_status() {
    let often = |more: Value| {
        let mut check = json!({"interval_seconds": 0.02, "rise": 1, "fall": 1, "timeout_seconds": 60});
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check
    };
    // Who takes connections and says nothing is up where nothing is asked.
    let port = free_port();
    let silent = gateway(json!({"servers": [format!("http://127.0.0.1:{port}")], "check": often(json!({}))}));
    wait_for(&silent, false);
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    wait_for(&silent, true);
    drop(listener);
    wait_for(&silent, false);

    let answer = Arc::new(AtomicU16::new(200));
    let backend = {
        let answer = Arc::clone(&answer);
        Backend::start(move |_| reply(answer.load(SeqCst), &[], ""))
    };
    let check = often(json!({"path": "/health", "status": 401}));
    let locked = gateway(json!({"servers": [backend.url()], "check": check}));
    for (said, is_up) in [(200, false), (401, true), (503, false)] {
        answer.store(said, SeqCst);
        wait_for(&locked, is_up);
    }

    // A connection to a server with TLS is one when the server has proved its name.
    let certificates = Certificates::make();
    let (_nginx, [both, clear, ..]) = nginx(&certificates);
    for (port, server_name) in [(both, "other.example"), (clear, "localhost")] {
        let tls = json!({"ca_file": certificates.authority(), "server_name": server_name});
        let url = format!("https://127.0.0.1:{port}");
        wait_for(&gateway(json!({"servers": [url], "tls": tls, "check": often(json!({}))})), false);
    }
}

/// Servers that tell sites apart by name have none that is called as the server's address.
#[test]
fn a_check_names_the_host_and_has_the_fields_that_its_upstream_states() {
    let check = |more: Value| {
        let mut check =
            json!({"path": "/health", "interval_seconds": 0.02, "rise": 1, "fall": 1, "timeout_seconds": 60});
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check
    };
    let site = Backend::start(|got| {
        let is_right = got.field("host") == Some("shop.example:81")
            && got.field("x-probe") == Some("7")
            && got.field("user-agent") == Some("mine");
        reply(if is_right { 200 } else { 404 }, &[], "")
    });
    let (_nginx, [_, clear, ..]) = nginx(&Certificates::make());
    let named = format!("http://127.0.0.1:{clear}");
    let fields = json!({"x-probe": "7", "user-agent": "mine"});
    for (url, protocol, right, wrong) in [
        (
            site.url(),
            "http1",
            json!({"host": "shop.example:81", "fields": fields}),
            vec![
                json!({}),
                json!({"host": "shop.example", "fields": fields}),
                json!({"host": "shop.example:81"}),
            ],
        ),
        (
            named,
            "http2",
            json!({"host": "health.example"}),
            vec![json!({}), json!({"host": "other.example"})],
        ),
    ] {
        let upstream = |more: Value| json!({"servers": [url], "protocol": protocol, "check": check(more)});
        let gateway = gateway(upstream(json!({})));
        for wrong in wrong {
            gateway.apply(&in_front_of(upstream(wrong)));
            wait_for(&gateway, false);
            gateway.apply(&in_front_of(upstream(right.clone())));
            wait_for(&gateway, true);
        }
        // Clients' requests go on as they did.
        assert_eq!(status(&gateway.get("/health")), 404);
    }
}

#[test]
fn what_is_wrong_with_a_check_is_a_mistake_of_the_file() {
    let many: serde_json::Map<String, Value> = (0..21).map(|n| (format!("x-{n}"), json!("1"))).collect();
    for (check, pointer) in [
        (json!({"host": "shop.example"}), "host"),
        (json!({"fields": {"x-a": "1"}}), "fields"),
        (json!({"path": "/", "host": "a b"}), "host"),
        (json!({"path": "/", "host": "a/b"}), "host"),
        (json!({"path": "/", "host": "me@a"}), "host"),
        (json!({"path": "/", "host": "a\r\nx: y"}), "host"),
        (json!({"path": "/", "fields": {"host": "a"}}), "fields"),
        (json!({"path": "/", "fields": {"connection": "close"}}), "fields"),
        (json!({"path": "/", "fields": {"x-a": "1\r\nx: y"}}), "fields/x-a"),
        (json!({"path": "/", "fields": many}), "fields"),
    ] {
        let upstream = json!({"name": "app", "servers": ["a:80"], "check": check});
        let mistakes = GatewayConfig::check(&[upstream], &[], &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, format!("/upstream/0/check/{pointer}"), "{mistakes:?}");
    }
}
