//! Tokens in the built binary: one list for every protocol, rotated by a reload of the file.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support;
use crate::support::{Tidegate, agent};
use tidegate_net::clock::monotonic;

const PATIENCE: Duration = Duration::from_secs(60);
const FIRST: &str = "the-first-secret-of-checkout";
const FIRST_DIGEST: &str = "a9a52cc7c54c85d407b68ba3f815dacc0fd31d0a8ad43d24786326325014d5d4";
const SECOND: &str = "the-second-secret-of-checkout";
const SECOND_DIGEST: &str = "20172395acdd1719edd273e859d1b1ea3067984cc82945a00fc280cb09abd956";
const OPERATOR: &str = "the-secret-of-the-operator";

fn token(name: &str, scopes: &str, digest: &str) -> String {
    format!("[[token]]\nname = \"{name}\"\nscopes = [{scopes}]\nsha256 = \"{digest}\"\n")
}

fn start(file: &str, environment: &[(&str, &str)]) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("t.toml"), file).unwrap();
    Tidegate::start_in(data, &["--config", "t.toml"], environment)
}

fn rewrite(service: &Tidegate, file: &str) {
    std::fs::write(service.path().join("t.toml"), file).unwrap();
    service.signal("HUP");
}

fn ask(service: &Tidegate, secret: &str) -> u16 {
    let body = serde_json::json!({"client_id": "a", "resource": "r"});
    let request = agent().post(service.url("/api/v1/ratelimit"));
    request.header("authorization", format!("Bearer {secret}")).send_json(&body).unwrap().status().as_u16()
}

fn metrics(service: &Tidegate) -> String {
    agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = monotonic();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

/// What RESP answers to `command`: one line.
fn redis(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// `grpc-status` of a rate-limit call: 3 once it is let in, since its message is empty.
fn grpc(service: &Tidegate, secret: &str) -> String {
    let call = format!("http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", service.grpc);
    let frame = service.path().join("frame");
    std::fs::write(&frame, [0; 5]).unwrap();
    let ran = Command::new("curl")
        .args(["-sS", "-D", "-", "--http2-prior-knowledge", "-H", "content-type: application/grpc"])
        .args(["-H", &format!("authorization: Bearer {secret}"), "--data-binary"])
        .args([&format!("@{}", frame.display()), &call])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let status = said.lines().find_map(|line| line.strip_prefix("grpc-status: "));
    status.unwrap_or_else(|| panic!("{ran:?}")).trim().to_owned()
}

#[test]
fn one_token_opens_every_protocol_and_a_reload_rotates_it() {
    let service =
        start(&token("checkout", "\"decide\"", FIRST_DIGEST), &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    assert_eq!((ask(&service, "nothing-like-a-secret"), ask(&service, FIRST)), (401, 200));
    assert_eq!((grpc(&service, "nothing-like-a-secret"), grpc(&service, FIRST)), ("16".into(), "3".into()));
    let mut client = TcpStream::connect(service.resp).unwrap();
    assert_eq!(redis(&mut client, "PING"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(redis(&mut client, &format!("AUTH other {FIRST}"))[..10], *"-WRONGPASS");
    assert_eq!(redis(&mut client, &format!("AUTH checkout {FIRST}")), "+OK\r\n");
    assert_eq!(redis(&mut client, "PING"), "+PONG\r\n");

    rewrite(&service, &token("checkout", "\"decide\"", SECOND_DIGEST));
    wait_for("the new token is in force", || ask(&service, SECOND) == 200);
    assert_eq!(
        (ask(&service, FIRST), grpc(&service, FIRST), grpc(&service, SECOND)),
        (401, "16".into(), "3".into())
    );
    assert_eq!(redis(&mut client, "PING"), "-NOAUTH Authentication required.\r\n", "on the open connection");
    let mut client = TcpStream::connect(service.resp).unwrap();
    assert_eq!(redis(&mut client, &format!("AUTH {SECOND}")), "+OK\r\n");
}

#[test]
fn decide_sends_the_token_of_its_environment() {
    let service =
        start(&token("checkout", "\"decide\"", FIRST_DIGEST), &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    let decide = |secret: &str| {
        let mut command = support::binary();
        command.args(["decide", "client_id=a", "--server", &service.url("")]).env("TIDEGATE_TOKEN", secret);
        command.output().unwrap().status.code()
    };
    assert_eq!((decide(FIRST), decide(SECOND)), (Some(0), Some(1)));
}

#[test]
fn fault_45_a_reload_that_would_leave_a_public_listener_to_everybody_is_refused() {
    let guarded = format!("http.listen = \"0.0.0.0:0\"\n{}", token("ops", "\"configure\"", FIRST_DIGEST));
    let service = start(&guarded, &[]);
    let read = || agent().get(service.url("/v1/policies")).call().unwrap().status().as_u16();
    assert_eq!(read(), 401);
    // Good at a start. Now, connections to the public listener are still there.
    rewrite(&service, "http.listen = \"127.0.0.1:0\"\n");
    let refused = "tidegate_config_last_reload_successful 0\n";
    wait_for("the reload is refused", || metrics(&service).contains(refused));
    assert_eq!(read(), 401);
    service.signal("TERM");
    let said = service.wait().output;
    assert!(said.contains("which others can reach, and there is no admin.token"), "{said}");
}

#[test]
fn fault_52_no_output_has_a_token_or_its_digest() {
    let environment = [
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_LOG_LEVEL", "trace"),
        ("TIDEGATE_ADMIN_TOKEN", OPERATOR),
        ("TIDEGATE_GRPC_TOKEN", SECOND),
    ];
    let service = start(&token("checkout", "\"decide\"", FIRST_DIGEST), &environment);
    assert_eq!(
        (ask(&service, FIRST), ask(&service, OPERATOR), grpc(&service, SECOND)),
        (200, 403, "3".into())
    );
    let page = metrics(&service);
    service.signal("TERM");
    let said = service.wait().output + &page;
    for secret in [FIRST, SECOND, OPERATOR, &FIRST_DIGEST[..16]] {
        assert!(!said.contains(secret), "{said}");
    }
}
