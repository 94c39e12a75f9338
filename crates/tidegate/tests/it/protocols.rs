//! Load over TLS, HTTP/2, gRPC, RESP and bare TCP, by the built binary: nginx, OpenSSL's certificates and
//! tidegate's own service are the other ends.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Tidegate, binary};
use serde_json::Value;
use tidegate_net::clock::monotonic;

/// Bytes of a body that needs more than the windows of HTTP/2.
const BIG: usize = 3 << 20;

/// A running nginx over TLS and in the clear, HTTP/2 and HTTP/1.1; dropping it kills it.
struct Nginx {
    child: Child,
    tls: SocketAddr,
    plain: SocketAddr,
    http2: SocketAddr,
    folder: tempfile::TempDir,
}

impl Nginx {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args([
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-addext",
                "subjectAltName=DNS:localhost",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
            ])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(certificate.status.success(), "{certificate:?}");
        let [tls, plain, http2] = [free_port(), free_port(), free_port()];
        fs::write(folder.path().join("big"), vec![b'x'; BIG]).unwrap();
        let root = folder.path().display();
        let config = format!(
            "daemon off; master_process off; error_log stderr; pid nginx.pid; events {{}}
             http {{ access_log off; client_body_temp_path body; keepalive_requests 100000;
               server {{
                 listen {tls} ssl http2; listen {plain}; listen {http2} http2;
                 ssl_certificate cert.pem; ssl_certificate_key key.pem;
                 location / {{ return 200 \"hello from nginx\"; }}
                 location /limited {{ return 429; }}
                 location /big {{ root {root}; }}
                 location /echo {{ if ($request_method = POST) {{ return 201 $http_x_word; }} return 404; }}
               }} }}"
        );
        fs::write(folder.path().join("nginx.conf"), config).unwrap();
        let child = Command::new("nginx")
            .args(["-p", folder.path().to_str().unwrap(), "-c", "nginx.conf"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for address in [tls, plain, http2] {
            let start = monotonic();
            while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
                assert!(start.elapsed() < Duration::from_secs(60), "nginx does not listen at {address}");
            }
        }
        Self { child, tls, plain, http2, folder }
    }

    fn https(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.tls.port())
    }

    fn authority(&self) -> String {
        self.folder.path().join("cert.pem").to_str().unwrap().to_owned()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> SocketAddr {
    ([127, 0, 0, 1], tidegate_testkit::free_port()).into()
}

fn load(arguments: &[&str]) -> Output {
    // A scenario says its times itself.
    let times: &[&str] = if arguments.contains(&"-s") { &[] } else { &["-w", "0", "-d", "120"] };
    binary().arg("load").args(arguments).args(times).args(["-t", "1"]).output().unwrap()
}

/// The record of a run of 200 requests on 4 connections.
fn measured(arguments: &[&str]) -> Value {
    let output = load(&[arguments, &["--json", "-c", "4", "-n", "200"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or_else(|_| panic!("{output:?}"))
}

fn counts(record: &Value) -> (u64, u64, &Value) {
    (record["good"].as_u64().unwrap(), record["denied"].as_u64().unwrap(), &record["errors"])
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

#[test]
fn https_and_http2_are_measured_with_their_handshake_apart() {
    let nginx = Nginx::start();
    let (root, ca) = (nginx.https("/"), nginx.authority());
    for flags in [&["--ca", &ca][..], &["--insecure"], &["--ca", &ca, "--http2"]] {
        // A pause of the machine just while it connects may make that the longer one; not ten times.
        let told_apart = (0..10).any(|_| {
            let record = measured(&[&[root.as_str()], flags].concat());
            assert_eq!(counts(&record), (200, 0, &serde_json::json!({})), "{flags:?}: {record}");
            assert_eq!((&record["statuses"]["200"], &record["handshake"]["count"]), (&200.into(), &4.into()));
            record["handshake"]["p50_us"].as_u64() > record["connect"]["p50_us"].as_u64()
        });
        assert!(told_apart, "{flags:?}: connecting took longer than the handshake");
    }
    let output = load(&[&root, "--ca", &ca, "--http2", "-n", "20"]);
    let said = said(&output);
    assert!(
        said.contains("engine          HTTP/2 by h2, one stream per connection, within TLS by rustls"),
        "{said}"
    );
    assert!(said.contains("; handshake ms p50 "), "{said}");
}

#[test]
fn http2_in_the_clear_judges_status_header_and_body() {
    let nginx = Nginx::start();
    let h2c = |path: &str| format!("h2c://{}{path}", nginx.http2);
    assert_eq!(counts(&measured(&[&h2c("/")])), (200, 0, &serde_json::json!({})));
    let with_flag = format!("http://{}/", nginx.http2);
    assert_eq!(counts(&measured(&[&with_flag, "--http2"])).0, 200);
    assert_eq!(counts(&measured(&[&h2c("/limited")])), (0, 200, &serde_json::json!({})));
    let flags = ["-H", "X-Word: w{{counter}}", "--data", "n={{counter}}"];
    let record = measured(&[&[h2c("/echo").as_str()], &flags[..]].concat());
    assert_eq!((&record["good"], &record["statuses"]["201"]), (&200.into(), &200.into()), "{record}");
    let file = nginx.folder.path().join("checks.toml");
    let text = "name = 'checks'\n[[request]]\npath = '/'\n[good]\nheaders = { Server = 'nginx' }\nbody_contains = ['hello']\n\
                [[request]]\npath = '/'\ngood = { body_contains = ['goodbye'] }\n\
                [[step]]\nconnections = 2\nrequests = 100\nduration_s = 20\n";
    fs::write(&file, text).unwrap();
    let output = load(&[&h2c("/"), "-s", file.to_str().unwrap(), "--json"]);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let failed = record["errors"]["failed-check"].as_u64().unwrap();
    assert!((30..=70).contains(&failed) && record["good"] == 100 - failed, "{record}");
    // A connection for each request, and what is not HTTP/2 at all.
    let record = measured(&[&h2c("/"), "--connection-per-request"]);
    assert_eq!((&record["good"], &record["connect"]["count"]), (&200.into(), &200.into()), "{record}");
    let output = load(&[&format!("h2c://{}/", nginx.plain), "--json", "-c", "1", "-n", "4"]);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(record["good"], 0, "{record}");
    assert!(record["errors"]["protocol"].as_u64() >= Some(1), "{record}");
}

#[test]
fn bodies_larger_than_a_window_come_whole() {
    let nginx = Nginx::start();
    let (https, h2c) = (nginx.https("/big"), format!("h2c://{}/big", nginx.http2));
    for arguments in [&[https.as_str(), "--insecure"][..], &[&https, "--insecure", "--http2"], &[&h2c]] {
        let output = load(&[arguments, &["--json", "-c", "2", "-n", "20"]].concat());
        let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(counts(&record), (20, 0, &serde_json::json!({})), "{arguments:?}: {record}");
        assert!(record["bytes_read"].as_u64() >= Some(20 * BIG as u64), "{}", record["bytes_read"]);
    }
}

#[test]
fn a_certificate_that_is_not_trusted_and_a_port_without_tls_are_said_before_the_run() {
    let nginx = Nginx::start();
    let output = load(&[&nginx.https("/")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = said(&output);
    assert!(
        text.contains("TLS with it fails: invalid peer certificate") && text.contains("--insecure"),
        "{text}"
    );
    let clear = load(&[&format!("https://{}/", nginx.plain), "--insecure"]);
    assert!(said(&clear).contains("TLS with it fails"), "{}", said(&clear));
    // Forced, it is measured as what it is: no connection speaks the protocol.
    let output = load(&[&nginx.https("/"), "--force", "--json", "-c", "2", "-n", "6"]);
    let forced: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(forced["errors"]["protocol"].as_u64() >= Some(1) && forced["good"] == 0, "{forced}");
}

#[test]
fn a_handshake_alone_can_be_the_load() {
    let nginx = Nginx::start();
    let url = format!("tls://localhost:{}", nginx.tls.port());
    let record = measured(&[&url, "--ca", &nginx.authority()]);
    assert_eq!(counts(&record), (200, 0, &serde_json::json!({})), "{record}");
    assert_eq!((&record["connect"]["count"], &record["handshake"]["count"]), (&200.into(), &200.into()));
    let (response, handshake) = (&record["response"]["mean_us"], &record["handshake"]["mean_us"]);
    assert!(response.as_f64() >= handshake.as_f64(), "{response} {handshake}");
}

/// `RateLimitRequest { domain: "shop", descriptors: [{ entries: [{ "client", "ann" }] }] }`.
fn rate_limit_request() -> String {
    let field = |tag: u8, bytes: &[u8]| [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let entry = [field(0x0a, b"client"), field(0x12, b"ann")].concat();
    let descriptor = field(0x0a, &entry);
    let message = [field(0x0a, b"shop"), field(0x12, &descriptor)].concat();
    message.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn grpc_is_judged_by_its_status_and_a_limit_by_its_body() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "[[policy]]\nname = 'ann'\nalgorithm = 'fixed_window'\nlimit = 30\nwindow_seconds = 86400\n\
                  key = ['client']\nmatch = { domain = 'shop' }\n";
    let config = folder.path().join("tidegate.toml");
    fs::write(&config, policy).unwrap();
    let service = Tidegate::start(&["--config", config.to_str().unwrap()], &[]);
    let method = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let url = format!("grpc://{}/{method}", service.grpc);
    let scenario = folder.path().join("limit.toml");
    // overall_code (field 1) is OVER_LIMIT (2).
    let text = format!(
        "name = 'limit'\n[[request]]\npath = '/{method}'\nbody_hex = '{}'\n[denied]\nbody_contains = [\"\\u0008\\u0002\"]\n\
         [[step]]\nconnections = 4\nrequests = 200\nduration_s = 20\n",
        rate_limit_request()
    );
    fs::write(&scenario, text).unwrap();
    let output = load(&[&url, "-s", scenario.to_str().unwrap(), "--json"]);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(counts(&record), (30, 170, &serde_json::json!({})), "{record}");
    // From flags, and a method that is not there: its code (UNIMPLEMENTED, 12) is kept as the status.
    let data = format!("hex:{}", rate_limit_request());
    assert_eq!(counts(&measured(&[&url, "--data", &data])), (200, 0, &serde_json::json!({})));
    let record = measured(&[&format!("grpc://{}/no.Such/Method", service.grpc), "--data", &data]);
    assert_eq!(
        (&record["errors"]["bad-status"], &record["statuses"]["12"]),
        (&200.into(), &200.into()),
        "{record}"
    );
}

#[test]
fn resp_commands_have_variables_and_their_denials_are_counted() {
    let service = Tidegate::start(&[], &[]);
    let url = format!("redis://{}", service.resp);
    // 10 clients with a burst of 4 and one: 50 of 200 are admitted, and hardly one a day later.
    let record = measured(&[&url, "--command", "CL.THROTTLE user{{counter % 10}} 4 1 86400"]);
    assert_eq!(counts(&record), (50, 150, &serde_json::json!({})), "{record}");
    assert_eq!(counts(&measured(&[&url])), (200, 0, &serde_json::json!({})), "PING");
    let record = measured(&[&url, "--command", "NO.SUCH command"]);
    assert_eq!(record["errors"]["failed-check"], 200, "{record}");
}

/// A stub of this program; dropping it kills it.
struct Stub(Child, String);

impl Stub {
    fn start(arguments: &[&str]) -> Self {
        use std::io::BufRead as _;
        let mut child = binary().args(["stub", "127.0.0.1:0"]).args(arguments).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().strip_prefix("listening on ").unwrap().to_owned())
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn tcp_is_connected_to_and_echoed_over() {
    let stub = Stub::start(&["--echo"]);
    for path in ["", "/echo", "/echo?bytes=5000"] {
        let record = measured(&[&format!("tcp://{}{path}", stub.1)]);
        assert_eq!(counts(&record), (200, 0, &serde_json::json!({})), "{path}: {record}");
    }
}

/// The report of `tidegate saturate` says what made the load.
#[test]
fn a_search_over_http2_names_its_engine() {
    let nginx = Nginx::start();
    let json = nginx.folder.path().join("report.json");
    let flags = "--http2 --levels 1,4 --step-seconds 2 --warmup-seconds 0.1 --repeats 1 --json";
    let output = binary()
        .args(["saturate", &format!("http://{}/", nginx.http2)])
        .args(flags.split_whitespace())
        .arg(Path::new(&json))
        .output()
        .unwrap();
    let report: Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap_or_else(|_| panic!("{output:?}"))).unwrap();
    assert_eq!(report["engine"], "HTTP/2 by h2, one stream per connection");
    assert!(report["steps"][1]["good"].as_u64() > Some(100), "{}", report["steps"][1]);
}
