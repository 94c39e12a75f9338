//! TLS at the edge, as real clients and servers speak it: ended there, passed on, and as a health check.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use support::Tidegate;
use support::edge::{free, metric, until};
use tidegate_testkit::certificates::Certificates;

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An HTTP server without TLS whose replies say `body`.
fn stub(at: SocketAddr, body: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["stub", &at.to_string(), "--body", body]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the stub listens", || std::net::TcpStream::connect(at).is_ok());
    Running(child)
}

/// A web server with TLS: openssl's own.
fn tls_server(at: SocketAddr, certificate: &Path, key: &Path) -> Running {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-www", "-accept", &at.to_string(), "-cert"]);
    command.arg(certificate).arg("-key").arg(key);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Running(child)
}

/// `curl` for a page of the edge, which is called `localhost` and trusted by its authority.
fn curl(edge: SocketAddr, authority: &Path, more: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--cacert"]).arg(authority);
    command.args(["--resolve", &format!("localhost:{}:127.0.0.1", edge.port())]).args(more);
    command.arg(format!("https://localhost:{}/", edge.port())).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn start(file: &str) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("edge.toml"), file).unwrap();
    let own = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_EDGE_API_LISTEN", "off")];
    Tidegate::start_in(data, &["--config", "edge.toml"], &own)
}

#[test]
fn tls_ends_at_the_edge_and_its_server_names_lead_to_apps() {
    let certificates = Certificates::make();
    let (edge, web, shop) = (free(), free(), free());
    let (_web, _shop) = (stub(web, "web"), stub(shop, "shop"));
    let named = certificates.issue_named("named", "DNS:localhost,DNS:a.shop.example");
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", tls_certificate = {:?}, tls_key = {:?}, \
         server_names = [{{ names = [\"*.shop.example\"], app = \"shop\" }}] }}]\n\
         edge.backend = [{{ name = \"web\", address = \"{web}\" }}, \
         {{ name = \"shop\", address = \"{shop}\", app = \"shop\" }}]\n",
        named.certificate, named.key
    );
    let service = start(&file);
    let authority = certificates.authority();
    for protocol in ["--tlsv1.3", "--tls-max=1.2"] {
        let output = match protocol.split_once('=') {
            Some((option, version)) => curl(edge, &authority, &[option, version]),
            None => curl(edge, &authority, &[protocol]),
        };
        assert_eq!(said(&output), "web", "{protocol}: {output:?}");
    }
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "60", "--cacert"]).arg(&authority);
    command.args(["--resolve", &format!("a.shop.example:{}:127.0.0.1", edge.port())]);
    let output = command.arg(format!("https://a.shop.example:{}/", edge.port())).output().unwrap();
    assert_eq!(said(&output), "shop", "{output:?}");
    // Who does not speak TLS, or does not trust the certificate, has no backend.
    let plain =
        Command::new("curl").args(["--silent", "--max-time", "60", &format!("http://{edge}/")]).output();
    assert!(!plain.unwrap().status.success());
    let distrusted = curl(edge, &certificates.other_authority("/CN=other"), &[]);
    assert!(!distrusted.status.success() && distrusted.stdout.is_empty(), "{distrusted:?}");
    let refused =
        metric(&service, &format!("tidegate_edge_refused_total{{listener=\"{edge}\",reason=\"handshake\"}}"));
    assert!(refused >= 1, "{refused}");
    assert_eq!(
        metric(&service, &format!("tidegate_edge_placed_total{{listener=\"{edge}\",by=\"score\"}}")),
        2
    );
}

#[test]
fn tls_is_passed_on_to_a_backend_that_a_handshake_has_found_up() {
    let certificates = Certificates::make();
    let (edge, backend) = (free(), free());
    let check = "check = { kind = \"tls\", interval_seconds = 0.1, timeout_seconds = 5, fall = 1, rise = 1 }";
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", server_names = [{{ names = [\"localhost\"], app = \"web\" }}] }}]\n\
         edge.backend = [{{ name = \"web\", app = \"web\", address = \"{backend}\", {check} }}]\n"
    );
    let service = start(&file);
    let up = || metric(&service, "tidegate_edge_backend_up{app=\"web\",region=\"\",backend=\"web\"}") == 1;
    until("nobody is there", || !up());
    let _server = tls_server(backend, &certificates.certificate(), &certificates.key());
    until("the handshake is answered", up);
    let output = curl(edge, &certificates.authority(), &[]);
    assert!(output.status.success() && said(&output).contains("s_server"), "{output:?}");
}
