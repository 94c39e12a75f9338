//! Servers that demand a certificate of the gateway: nginx and OpenSSL.

use std::fs::{Permissions, set_permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::backends::{gateway, in_front_of, wait_for};
use crate::support::{Backend, PATIENCE, TestGateway, config, status, text};
use serde_json::{Value, json};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::{Certificates, Pair};
use tidegate_testkit::nginx::Nginx;
use tidegate_testkit::{Server, free_port};

/// nginx that lets nobody in without a certificate of the authority, and says the number of the one that it was shown.
fn demanding(certificates: &Certificates) -> (Nginx, u16) {
    let port = free_port();
    let (certificate, key) = (certificates.certificate(), certificates.key());
    let nginx = Nginx::start(&[port], |_| {
        format!(
            "access_log off;\nserver {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {}; ssl_certificate_key {};\n\
             ssl_client_certificate {}; ssl_verify_client on;\n\
             location / {{ return 200 \"$server_protocol $ssl_client_verify $ssl_client_serial\"; }} }}",
            certificate.display(),
            key.display(),
            certificates.authority().display()
        )
    });
    (nginx, port)
}

fn tls(certificates: &Certificates, client: &Pair) -> Value {
    json!({
        "ca_file": certificates.authority(),
        "certificate_file": client.certificate,
        "key_file": client.key,
    })
}

#[test]
fn a_server_that_demands_a_certificate_is_shown_that_of_its_upstream() {
    let certificates = Certificates::make();
    let client = certificates.issue("client");
    let (_nginx, port) = demanding(&certificates);
    let without = json!({"ca_file": certificates.authority()});
    for (protocol, spoken) in [("http1", "HTTP/1.1"), ("http2", "HTTP/2.0"), ("auto", "HTTP/2.0")] {
        let upstream = |tls: &Value| json!({"servers": [format!("https://127.0.0.1:{port}")], "protocol": protocol, "tls": tls});
        let shown = gateway(upstream(&tls(&certificates, &client))).get("/");
        assert_eq!(status(&shown), 200, "{protocol}");
        assert!(text(&shown).starts_with(&format!("{spoken} SUCCESS ")), "{protocol}: {}", text(&shown));
        // nginx takes the connection and refuses its requests.
        let missing = gateway(upstream(&without)).get("/");
        assert_eq!(status(&missing), 400, "{protocol}");
        assert!(text(&missing).contains("No required SSL certificate was sent"), "{}", text(&missing));
    }
}

/// OpenSSL breaks the connection, with an alert during the handshake or, in TLS 1.3, after it.
#[test]
fn a_server_that_breaks_the_connection_without_a_certificate_gives_502() {
    let certificates = Certificates::make();
    let client = certificates.issue("client");
    for version in ["-tls1_2", "-tls1_3"] {
        let port = free_port();
        let (certificate, key) = (certificates.certificate(), certificates.key());
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-www", version, "-accept", &format!("127.0.0.1:{port}")]);
        command.args(["-Verify", "2", "-verify_return_error"]);
        command.arg("-CAfile").arg(certificates.authority());
        command.arg("-cert").arg(certificate).arg("-key").arg(key);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _server = Server::spawn(&mut command);
        let started = monotonic();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "the server does not listen");
            std::thread::yield_now();
        }
        let url = format!("https://127.0.0.1:{port}");
        let shown = gateway(json!({"servers": [url], "tls": tls(&certificates, &client)}));
        assert_eq!(status(&shown.get("/")), 200, "{version}");
        let missing = gateway(json!({"servers": [url], "tls": {"ca_file": certificates.authority()}}));
        assert_eq!(status(&missing.get("/")), 502, "{version}");
    }
}

#[test]
fn a_server_that_speaks_no_version_of_tls_that_its_upstream_takes_gives_502() {
    let certificates = Certificates::make();
    for (spoken, least, expected) in
        [("-tls1_2", "1.2", 200), ("-tls1_2", "1.3", 502), ("-tls1_3", "1.2", 200), ("-tls1_3", "1.3", 200)]
    {
        let port = free_port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-www", spoken, "-accept", &format!("127.0.0.1:{port}")]);
        command.arg("-cert").arg(certificates.certificate()).arg("-key").arg(certificates.key());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _server = Server::spawn(&mut command);
        let started = monotonic();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "the server does not listen");
            std::thread::yield_now();
        }
        let tls = json!({"ca_file": certificates.authority(), "min_version": least});
        let gateway = gateway(json!({"servers": [format!("https://127.0.0.1:{port}")], "tls": tls}));
        assert_eq!(status(&gateway.get("/")), expected, "{spoken} {least}");
    }
}

/// nginx that speaks TLS 1.2 alone. A request that offers another protocol, as for WebSocket, has a connection made for it alone.
#[test]
fn neither_kept_connections_nor_http2_nor_offers_nor_checks_speak_an_older_tls_than_the_upstream_takes() {
    let certificates = Certificates::make();
    let port = free_port();
    let _nginx = Nginx::start(&[port], |_| {
        format!(
            "access_log off;\nserver {{ listen 127.0.0.1:{port} ssl http2; ssl_protocols TLSv1.2;\n\
             ssl_certificate {}; ssl_certificate_key {};\n\
             location / {{ return 200 \"$server_protocol $ssl_protocol\"; }} }}",
            certificates.certificate().display(),
            certificates.key().display()
        )
    });
    let upstream = |protocol: &str, least: &str| {
        json!({
            "servers": [format!("https://127.0.0.1:{port}")],
            "protocol": protocol,
            "tls": {"ca_file": certificates.authority(), "min_version": least},
        })
    };
    let offer = "GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    for (protocol, spoken) in [("http1", "HTTP/1.1"), ("http2", "HTTP/2.0"), ("auto", "HTTP/2.0")] {
        let gateway = gateway(upstream(protocol, "1.2"));
        assert_eq!(text(&gateway.get("/")), format!("{spoken} TLSv1.2"));
        assert_eq!(text(&gateway.send(offer)), "HTTP/1.1 TLSv1.2", "{protocol}");
        gateway.apply(&in_front_of(upstream(protocol, "1.3")));
        assert_eq!(status(&gateway.get("/")), 502, "{protocol}: a connection from before is kept");
        assert_eq!(status(&gateway.send(offer)), 502, "{protocol}");
        gateway.apply(&in_front_of(upstream(protocol, "1.2")));
        assert_eq!(text(&gateway.get("/")), format!("{spoken} TLSv1.2"));
    }
    let checked = |least: &str| {
        let mut upstream = upstream("http1", least);
        upstream["check"] = json!({"interval_seconds": 0.02, "rise": 1, "fall": 1, "timeout_seconds": 60});
        upstream
    };
    let gateway = gateway(checked("1.3"));
    wait_for(&gateway, false);
    gateway.apply(&in_front_of(checked("1.2")));
    wait_for(&gateway, true);
}

#[test]
fn checks_and_questions_to_a_service_of_authentication_show_it_too() {
    let certificates = Certificates::make();
    let client = certificates.issue("client");
    let (_nginx, port) = demanding(&certificates);
    let url = format!("https://127.0.0.1:{port}");
    let with = tls(&certificates, &client);
    let without = json!({"ca_file": certificates.authority()});
    let check = json!({"path": "/", "interval_seconds": 0.02, "rise": 1, "fall": 1, "timeout_seconds": 60});
    let checked = |tls: &Value| json!({"servers": [url], "tls": tls, "check": check});
    let gateway = gateway(checked(&without));
    wait_for(&gateway, false);
    gateway.apply(&in_front_of(checked(&with)));
    wait_for(&gateway, true);

    let app = Backend::named("app");
    for (tls, expected) in [(&with, 200), (&without, 400)] {
        let upstreams = json!([
            {"name": "app", "servers": [app.url()]},
            {"name": "judge", "servers": [url], "tls": tls},
        ]);
        let ask = json!({"upstream": "judge", "path": "/", "timeout_seconds": 60});
        let route = json!({"name": "all", "upstream": "app", "auth": "forward", "forward_auth": ask});
        let asking =
            TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstreams, json!([route])));
        assert_eq!(status(&asking.get("/")), expected);
    }
}

/// Each connection is a new one, so that the next request tells what is shown now.
#[test]
fn fault_42_a_renewed_client_certificate_is_shown_without_a_restart() {
    let certificates = Certificates::make();
    let [client, renewed] = ["client", "renewed"].map(|name| certificates.issue(name));
    let (_nginx, port) = demanding(&certificates);
    let gateway = gateway(json!({
        "servers": [format!("https://127.0.0.1:{port}")],
        "idle_connections": 0,
        "tls": tls(&certificates, &client),
    }));
    let maintained = Arc::clone(&gateway.gateway);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(maintained.maintain());
    });
    let first = text(&gateway.get("/"));
    assert!(first.contains("SUCCESS"), "{first}");
    assert_eq!(text(&gateway.get("/")), first);
    renewed.replace(&client);
    let replaced = monotonic();
    loop {
        let now = gateway.get("/");
        assert!(status(&now) == 200 && text(&now).contains("SUCCESS"), "{}", text(&now));
        if text(&now) != first {
            break;
        }
        assert!(replaced.elapsed() < PATIENCE, "the old one is still shown");
    }
}

#[test]
fn fault_42_a_client_certificate_that_is_half_written_changes_nothing() {
    let certificates = Certificates::make();
    let [client, renewed] = ["client", "renewed"].map(|name| certificates.issue(name));
    let (_nginx, port) = demanding(&certificates);
    let upstream = json!({
        "servers": [format!("https://127.0.0.1:{port}")],
        "idle_connections": 0,
        "tls": tls(&certificates, &client),
    });
    let config = in_front_of(upstream);
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let tls = config.upstreams[0].tls.as_ref().unwrap();
    let first = text(&gateway.get("/"));
    assert!(tls.look_again().is_none(), "nothing has changed");
    let key = std::fs::read(&client.key).unwrap();
    std::fs::copy(&renewed.key, &client.key).unwrap();
    assert!(tls.look_again().is_none(), "what has just changed may change again");
    let refused = tls.look_again().unwrap().unwrap_err().to_string();
    assert!(refused.contains("client.key is no key for the certificate in "), "{refused}");
    assert!(tls.look_again().is_none(), "it is refused once");
    assert_eq!(text(&gateway.get("/")), first, "the old pair is shown still");
    std::fs::copy(&renewed.certificate, &client.certificate).unwrap();
    assert!(tls.look_again().is_none());
    tls.look_again().unwrap().unwrap();
    let second = text(&gateway.get("/"));
    assert!(second.contains("SUCCESS") && second != first, "{second}");
    std::fs::write(&client.key, &key[..20]).unwrap();
    assert!(tls.look_again().is_none());
    let refused = tls.look_again().unwrap().unwrap_err().to_string();
    assert!(refused.contains("holds no private key in PEM"), "{refused}");
    assert_eq!(text(&gateway.get("/")), second);
}

#[test]
fn fault_42_a_renewed_pair_that_could_not_be_read_is_read_once_its_rights_are_mended() {
    let certificates = Certificates::make();
    let [client, renewed] = ["client", "renewed"].map(|name| certificates.issue(name));
    let (_nginx, port) = demanding(&certificates);
    let upstream = json!({
        "servers": [format!("https://127.0.0.1:{port}")],
        "idle_connections": 0,
        "tls": tls(&certificates, &client),
    });
    let config = in_front_of(upstream);
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let tls = config.upstreams[0].tls.as_ref().unwrap();
    let first = text(&gateway.get("/"));
    std::fs::copy(&renewed.certificate, &client.certificate).unwrap();
    std::fs::copy(&renewed.key, &client.key).unwrap();
    set_permissions(&client.key, Permissions::from_mode(0o000)).unwrap();
    assert!(tls.look_again().is_none());
    // Refused, unless the test is root, whom no rights keep out.
    assert!(tls.look_again().is_some());
    assert!(tls.look_again().is_none());
    set_permissions(&client.key, Permissions::from_mode(0o600)).unwrap();
    assert!(tls.look_again().is_none());
    tls.look_again().unwrap().unwrap();
    let second = text(&gateway.get("/"));
    assert!(second.contains("SUCCESS") && second != first, "{second}");
}
