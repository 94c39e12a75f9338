//! The edge of the built binary: registration, drain, exhaustion, and what it tells its operator.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::edge::connect_from;
use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A backend that says `rio` and then sends back what comes.
fn rio() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                // A health check leaves at once.
                if stream.write_all(b"rio").is_ok() {
                    let mut reader = stream.try_clone().unwrap();
                    drop(std::io::copy(&mut reader, &mut stream));
                }
            });
        }
    });
    address
}

/// A connection to the edge, and what its backend says first; empty if there is none.
fn visit(edge: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(edge).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut name = [0; 3];
    let said = stream.read_exact(&mut name).map(|()| String::from_utf8(name.to_vec()).unwrap());
    (stream, said.unwrap_or_default())
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = tidegate_net::clock::monotonic();
    let (_sender, never) = std::sync::mpsc::sync_channel::<()>(1);
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        assert!(never.recv_timeout(Duration::from_millis(20)).is_err());
    }
}

/// A status and the JSON that came with it.
fn answered(reply: Result<http::Response<ureq::Body>, ureq::Error>) -> (u16, Value) {
    let mut reply = reply.unwrap();
    (reply.status().as_u16(), reply.body_mut().read_json().unwrap_or_default())
}

fn get(url: &str) -> (u16, Value) {
    answered(agent().get(url).call())
}

fn registration(backend: SocketAddr) -> Value {
    json!({"id": "rio-1", "app": "default", "region": "sa", "country": "BR", "ip": "127.0.0.1", "port": backend.port()})
}

/// `tidegate serve` with an edge at `edge` and its registration API at `api`.
fn serve(data: tempfile::TempDir, edge: SocketAddr, api: SocketAddr, more: &[(&str, &str)]) -> Tidegate {
    let file = data.path().join("edge.toml");
    std::fs::write(&file, format!("edge.listener = [{{ listen = \"{edge}\" }}]\n")).unwrap();
    let api = api.to_string();
    let own = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_EDGE_API_LISTEN", api.as_str())];
    Tidegate::start_in(data, &["--config", file.to_str().unwrap()], &[&own, more].concat())
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()))
}

#[test]
fn what_registers_is_routed_to_at_once_is_audited_and_survives_a_restart() {
    let (backend, edge, api) = (rio(), free(), free());
    let service = serve(tempfile::tempdir().unwrap(), edge, api, &[]);
    let url = |path: &str| format!("http://{api}{path}");
    assert_eq!(visit(edge).1, "");
    let (status, said) = answered(agent().post(url("/api/v1/register")).send_json(registration(backend)));
    assert_eq!((status, &said["id"], &said["registered"]), (201, &json!("rio-1"), &json!(true)), "{said}");
    let (mut held, name) = visit(edge);
    assert_eq!(name, "rio");
    let (status, list) = get(&url("/api/v1/backends"));
    let one = &list["backends"][0];
    assert_eq!((status, &list["total"], &one["healthy"]), (200, &json!(1), &json!(true)), "{list}");
    assert_eq!(
        (&one["weight"], &one["soft_limit"], &one["hard_limit"]),
        (&json!(2), &json!(100), &json!(150))
    );
    assert_eq!(get(&url("/api/v1/backends/rio-1")).1, *one);
    assert_eq!(get(&url("/health")).1["registered_backends"], 1);
    assert_eq!(answered(agent().post(url("/api/v1/heartbeat/rio-1")).send_empty()).0, 200);
    assert_eq!(answered(agent().post(url("/api/v1/heartbeat/rio-2")).send_empty()).0, 404);
    // What the operator is told.
    let (_, explained) = get(&service.url("/v1/explain/edge?client_ip=127.0.0.1"));
    assert_eq!((&explained["next"], &explained["backends"][0]["connections"]), (&json!("rio-1"), &json!(1)));
    assert_eq!(get(&service.url("/v1/explain/edge?client=127.0.0.1")).0, 422);
    assert_eq!(get(&service.url("/v1/explain/edge?listener=127.0.0.1:1")).0, 422);
    let (_, decisions) = get(&service.url("/v1/edge/decisions"));
    let outcomes: Vec<&Value> = decisions["decisions"].as_array().unwrap().iter().collect();
    assert_eq!((&outcomes[0]["backend"], &outcomes[1]["refused"]), (&json!("rio-1"), &json!("no_backend")));
    let metrics = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    for line in [
        format!("tidegate_edge_open{{listener=\"{edge}\"}} 1"),
        format!("tidegate_edge_refused_total{{listener=\"{edge}\",reason=\"no_backend\"}} 1"),
        "tidegate_edge_backend_open{app=\"default\",region=\"sa\",backend=\"rio-1\"} 1".to_owned(),
        "tidegate_connections_open{server=\"edge\"} 1".to_owned(),
    ] {
        assert!(metrics.lines().any(|printed| printed == line), "{line}\nis not in\n{metrics}");
    }
    held.write_all(b"x").unwrap();
    drop(held);
    service.signal("TERM");
    let (data, ended) = service.wait_keeping_data();
    assert!(ended.status.success(), "{}", ended.output);
    // The next process knows the backend, and has it removed.
    let service = serve(data, edge, api, &[]);
    assert_eq!(visit(edge).1, "rio");
    assert_eq!(answered(agent().delete(url("/api/v1/backends/rio-1")).call()).0, 200);
    assert_eq!(answered(agent().delete(url("/api/v1/backends/rio-1")).call()).0, 404);
    assert_eq!(visit(edge).1, "");
    let (_, audit) = get(&service.url("/v1/audit"));
    let text = audit.to_string();
    assert!(text.matches("edge_registration").count() == 2 && text.contains("\"actor\":\"local\""), "{text}");
    assert_eq!(text.matches("\"from\":\"127.0.0.1\"").count(), 2, "{text}");
}

#[test]
fn a_backend_that_sends_no_heartbeat_is_gone() {
    let (backend, edge, api) = (rio(), free(), free());
    let service = serve(tempfile::tempdir().unwrap(), edge, api, &[("TIDEGATE_EDGE_HEARTBEAT_TTL", "1s")]);
    let url = |path: &str| format!("http://{api}{path}");
    let (status, _) = answered(agent().post(url("/api/v1/register")).send_json(registration(backend)));
    assert_eq!(status, 201);
    until("it is gone", || get(&url("/api/v1/backends")).1["total"] == 0);
    assert_eq!(visit(edge).1, "");
    assert_eq!(answered(agent().post(url("/api/v1/heartbeat/rio-1")).send_empty()).0, 404);
    let (_, audit) = get(&service.url("/v1/audit"));
    assert!(audit.to_string().contains("\"actor\":\"heartbeat\""), "{audit}");
}

#[test]
fn fault_47_who_may_not_register_does_not() {
    let (backend, edge, api) = (rio(), free(), free());
    let token = "a-token-of-more-than-sixteen";
    let service = serve(tempfile::tempdir().unwrap(), edge, api, &[("TIDEGATE_EDGE_API_TOKEN", token)]);
    let url = format!("http://{api}/api/v1/register");
    let send = |bearer: &str, body: Value| {
        let request = agent().post(&url).header("authorization", format!("Bearer {bearer}"));
        answered(request.send_json(body))
    };
    assert_eq!(answered(agent().post(&url).send_json(registration(backend))).0, 401);
    assert_eq!(send("another-token-of-sixteen", registration(backend)).0, 401);
    assert_eq!(get(&format!("http://{api}/api/v1/backends")).0, 401);
    for (ip, status) in
        [("169.254.169.254", 422), ("::ffff:169.254.0.1", 422), ("0.0.0.0", 422), ("rio", 422)]
    {
        let mut body = registration(backend);
        body["ip"] = json!(ip);
        assert_eq!(send(token, body).0, status, "{ip}");
    }
    assert_eq!(send(token, json!({"id": "rio-1"})).0, 422);
    assert_eq!(visit(edge).1, "");
    assert_eq!(send(token, registration(backend)).0, 201);
    assert_eq!(visit(edge).1, "rio");
    let (_, audit) = get(&service.url("/v1/audit"));
    assert!(
        audit.to_string().contains("\"actor\":\"edge\"") && !audit.to_string().contains(token),
        "{audit}"
    );
    drop(service);
    // Without a token, a page of the web is refused, and so is a public address.
    let service = serve(tempfile::tempdir().unwrap(), edge, api, &[]);
    for (field, value) in [("origin", "https://a.example"), ("host", "a.example")] {
        let request = agent().post(&url).header(field, value);
        assert_eq!(answered(request.send_json(registration(backend))).0, 403, "{field}");
    }
    let request = agent().post(&url).header("content-type", "text/plain");
    assert_eq!(answered(request.send(registration(backend).to_string())).0, 415);
    drop(service);
    // Only addresses of these networks may register.
    let allowed = [("TIDEGATE_EDGE_API_ALLOWED", "10.1.0.0/16,127.0.0.1/32")];
    let service = serve(tempfile::tempdir().unwrap(), edge, api, &allowed);
    for (ip, status) in [("10.2.0.1", 422), ("127.0.0.2", 422), ("10.1.0.1", 201), ("127.0.0.1", 201)] {
        let mut body = registration(backend);
        (body["id"], body["ip"]) = (json!(format!("at-{ip}")), json!(ip));
        assert_eq!(answered(agent().post(&url).send_json(body)).0, status, "{ip}");
    }
    drop(service);
    let open = [("TIDEGATE_EDGE_API_LISTEN", "0.0.0.0:0")];
    let ended = binary().arg("serve").envs(open).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.code() == Some(2) && said.contains("there is no edge.api_token"), "{said}");
    let ended = binary().args(["edge", "--api", "0.0.0.0:0"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.code() == Some(2) && said.contains("there is no TIDEGATE_EDGE_API_TOKEN"), "{said}");
}

/// A process that is ended with the test.
struct EdgeProcess {
    child: Child,
    edge: SocketAddr,
    api: SocketAddr,
    pages: SocketAddr,
}

impl EdgeProcess {
    /// An edge without a file that may have so many descriptors.
    fn start(descriptors: usize) -> Self {
        Self::start_with(descriptors, "", Stdio::null())
    }

    /// The same with further arguments, and its log.
    fn start_with(descriptors: usize, more: &str, log: Stdio) -> Self {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let arguments = "edge --listen 127.0.0.1:0 --region sa --api 127.0.0.1:0 --http-listen 127.0.0.1:0";
        let script = format!("ulimit -n {descriptors}; exec {program} {arguments} {more}");
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", &script]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().skip(1).take(3);
        let addresses: Vec<SocketAddr> = lines
            .map(|line| {
                let line = line.unwrap();
                line.split_once("://").unwrap().1.split(' ').next().unwrap().parse().unwrap()
            })
            .collect();
        Self { child, edge: addresses[0], api: addresses[1], pages: addresses[2] }
    }

    fn register(&self, backend: SocketAddr, limit: usize) {
        let mut body = registration(backend);
        body["hard_limit"] = json!(limit);
        body["soft_limit"] = json!(limit);
        let url = format!("http://{}/api/v1/register", self.api);
        assert_eq!(answered(agent().post(url).send_json(body)).0, 201);
    }

    fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.pages);
        agent().get(url).call().unwrap().body_mut().read_to_string().unwrap()
    }
}

impl Drop for EdgeProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn fault_22_a_drain_refuses_new_connections_and_lets_running_ones_live() {
    let mut process = EdgeProcess::start(1_000);
    process.register(rio(), 100);
    let (mut held, name) = visit(process.edge);
    assert_eq!(name, "rio");
    let pid = process.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    until("new ones are refused", || TcpStream::connect(process.edge).is_err());
    for _ in 0..100 {
        held.write_all(b"abc").unwrap();
        let mut back = [0; 3];
        held.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"abc");
    }
    drop(held);
    assert!(process.child.wait().unwrap().success(), "it ends when the last connection does");
}

#[test]
fn fault_36_an_edge_without_descriptors_goes_on_when_it_has_some() {
    let process = EdgeProcess::start(100);
    process.register(rio(), 1_000);
    let held: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(process.edge).unwrap()).collect();
    drop(held);
    until("a connection passes", || visit(process.edge).1 == "rio");
    let metrics = process.metrics();
    let mark = "tidegate_accept_errors_total{server=\"edge\",cause=\"resources\"} ";
    let count: u64 = metrics.split_once(mark).unwrap().1.split('\n').next().unwrap().parse().unwrap();
    assert!(count > 0, "it ran out");
    let ejected = "tidegate_edge_backend_ejected{app=\"default\",region=\"sa\",backend=\"rio-1\"} 0";
    assert!(metrics.lines().any(|line| line == ejected), "a lack here is not the backend's fault\n{metrics}");
}

#[test]
fn every_connection_has_a_line_with_what_became_of_it_and_no_client_is_a_label() {
    let mut process = EdgeProcess::start_with(1_000, "--log-level debug --log-format json", Stdio::piped());
    let log = BufReader::new(process.child.stderr.take().unwrap());
    let visit = || connect_from("127.7.7.7", process.edge);
    // Refused, for there is no backend yet; then served.
    assert!(matches!(visit().read(&mut [0]), Ok(0) | Err(_)));
    process.register(rio(), 100);
    let mut held = visit();
    held.write_all(b"hello").unwrap();
    held.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    held.read_to_string(&mut all).unwrap();
    assert_eq!(all, "riohello");
    let (edge, client) = (process.edge.to_string(), held.local_addr().unwrap().to_string());
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut fields = lines.map(|line| line["fields"].clone());
    let refused = fields.find(|fields| fields["message"] == "connection refused").unwrap();
    assert_eq!((&refused["listener"], &refused["app"]), (&json!(edge), &json!("default")), "{refused}");
    assert_eq!((&refused["reason"], &refused["attempts"]), (&json!("no_backend"), &json!(0)), "{refused}");
    let served = fields.find(|fields| fields["message"] == "connection").unwrap();
    let expected = [
        ("listener", json!(edge)),
        ("app", json!("default")),
        ("client", json!(client)),
        ("backend", json!("rio-1")),
        ("tier", json!("node")),
        ("score", json!(200.0)),
        ("attempts", json!(1)),
        ("to_backend", json!(5)),
        ("to_client", json!(8)),
        ("end", json!("closed")),
    ];
    for (name, value) in &expected {
        assert_eq!(served[*name], *value, "{name} in {served}");
    }
    assert!(served["seconds"].as_f64().unwrap() > 0.0, "{served}");
    // Beside these, the time and the message.
    assert_eq!(served.as_object().unwrap().len(), expected.len() + 2, "{served}");
    let metrics = process.metrics();
    assert!(metrics.contains("rio-1") && !metrics.contains("127.7.7.7"), "a client is a label\n{metrics}");
}

#[test]
fn fault_22_a_drain_is_told_to_balancers_and_cuts_what_is_left_at_its_deadline() {
    let (backend, edge, api) = (rio(), free(), free());
    let times = [("TIDEGATE_LIMITS_DRAIN_DEADLINE", "8s"), ("TIDEGATE_LIMITS_HEADER_DEADLINE", "60s")];
    let service = serve(tempfile::tempdir().unwrap(), edge, api, &times);
    let url = format!("http://{api}/api/v1/register");
    assert_eq!(answered(agent().post(url).send_json(registration(backend))).0, 201);
    let (mut held, name) = visit(edge);
    assert_eq!(name, "rio");
    assert_eq!(get(&service.url("/readyz")).0, 200);
    // A question that is being sent when the drain begins is answered, however late the rest of it comes.
    let mut balancer = TcpStream::connect(service.http).unwrap();
    balancer.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n").unwrap();
    service.signal("TERM");
    until("new ones are refused", || TcpStream::connect(edge).is_err());
    balancer.write_all(b"connection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    balancer.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    held.write_all(b"abc").unwrap();
    let mut back = [0; 3];
    held.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"abc", "it is served until the deadline");
    // This client never ends it.
    assert!(matches!(held.read(&mut [0]), Ok(0) | Err(_)), "it is cut");
    let ended = service.wait();
    assert!(!ended.status.success(), "it says that something was cut: {}", ended.output);
    assert!(ended.output.contains("stopped with connections still open"), "{}", ended.output);
}
