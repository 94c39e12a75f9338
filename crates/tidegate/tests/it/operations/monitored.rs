//! Two nodes with everything that has metrics, and a Prometheus that scrapes them as `deploy/prometheus` says.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{Server, free_port};

use crate::operations::autoscaling;
use crate::operations::text_of;
use crate::support::edge::{PATIENCE, answers, connect_from, echo};
use crate::support::heads::listening;
use crate::support::{Tidegate, agent};

/// Counts in memory, with a gateway, an edge and an intake, each with all its parts. Nothing listens on port 1.
const FILE: &str = r#"
grpc.tls_certificate = "CERTIFICATE"
grpc.tls_key = "KEY"
gateway.shed_after = "10s"
gateway.listener = [{ listen = "127.0.0.1:0" }, { listen = "127.0.0.1:0", tls_acme = true }]
acme = { names = ["app.example"], directory = "https://127.0.0.1:1/directory", agree_to_terms = true }
access_log.to = "access.log"
telemetry.endpoint = "http://127.0.0.1:1"
policy = [{ name = "per-client", limit = 100, window_seconds = 60, key = ["client_id"], match = { resource = "api" } }]

[edge]
dns_listen = "NAMES"
api_listen = "off"
listener = [{ listen = "EDGE" }]
backend = [{ name = "rio", address = "ECHO" }, { name = "lima", address = "127.0.0.1:1" }]

[intake]
statsd_listen = "STATSD"
series_per_client = 100
alert_webhook = "http://127.0.0.1:1/"
alert = [{ name = "hot", metric = "cpu.usage", above = 80 }]
forward = [{ name = "other", to = "remote-write", url = "http://127.0.0.1:1/write" }]

[[upstream]]
name = "app"
servers = ["http://APP"]
adaptive_concurrency = {}

[[upstream]]
name = "next"
servers = ["http://APP"]

[[upstream]]
name = "away"
servers = ["https://127.0.0.1:1"]
tls = { certificate_file = "CERTIFICATE", key_file = "KEY" }

[[route]]
name = "app"
upstream = "app"
compress = true
mirror = { upstream = "next" }
hedge = true

[[route]]
name = "away"
path = "/away"
upstream = "away"

[[route]]
name = "keys"
path = "/keys"
upstream = "app"
auth = "key"
breaker = {}

[[route]]
name = "tokens"
path = "/tokens"
upstream = "app"
auth = "jwt"
jwt = { issuer = "https://issuer.example/", keys_url = "http://127.0.0.1:1/jwks.json" }

[[route]]
name = "forward"
path = "/forward"
upstream = "app"
auth = "forward"
forward_auth = { upstream = "away" }
"#;

/// The nodes, what they need, and their Prometheus.
pub(crate) struct Monitored {
    /// Counts in memory, by [`FILE`].
    pub(crate) alone: Tidegate,
    /// Counts in Redis with leases, and has its configuration in PostgreSQL.
    pub(crate) shared: Tidegate,
    pub(crate) redis: RedisServer,
    pub(crate) postgres: PostgresServer,
    url: String,
    _kept: (Server, Certificates, tempfile::TempDir),
}

impl Monitored {
    pub(crate) fn start() -> Self {
        let certificates = Certificates::make();
        let (redis, postgres) = (RedisServer::start(&[]), PostgresServer::start(&[]));
        let alone = with_everything(&certificates);
        let store = format!("redis://127.0.0.1:{}/0", redis.port);
        let control = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
        let environment = [
            ("TIDEGATE_STORE", store.as_str()),
            ("TIDEGATE_CONTROL", control.as_str()),
            ("TIDEGATE_SHARED_LEASES", "true"),
            ("TIDEGATE_INTAKE_LISTEN", "off"),
        ];
        let shared = Tidegate::start(&[], &environment);
        for node in [&alone, &shared] {
            decide(node);
        }
        let report = autoscaling::measured(&alone);
        autoscaling::accept(&alone, report.clone(), 1.0);
        autoscaling::accept(&shared, report, 1_000_000.0);
        let folder = tempfile::tempdir().unwrap();
        let (prometheus, url) = prometheus(&folder, &[alone.http, shared.http]);
        Self { alone, shared, redis, postgres, url, _kept: (prometheus, certificates, folder) }
    }

    /// What Prometheus answers at a path of its API: `data`.
    pub(crate) fn api(&self, path: &str, query: &str) -> Value {
        let asked = agent().get(format!("{}/api/v1/{path}", self.url)).query("query", query).call();
        let answer: Value = asked.unwrap().body_mut().read_json().unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"].clone()
    }

    /// Those of `queries` that have no result, however long Prometheus scrapes.
    pub(crate) fn without_result(&self, mut queries: Vec<String>) -> Vec<String> {
        let began = monotonic();
        loop {
            queries.retain(|query| self.api("query", query)["result"].as_array().unwrap().is_empty());
            if queries.is_empty() || began.elapsed() > PATIENCE {
                return queries;
            }
            std::thread::park_timeout(Duration::from_millis(500));
        }
    }
}

/// The Prometheus of `deploy/prometheus`, every second, and its URL. The nodes have the labels of pods, too, as in Kubernetes.
fn prometheus(folder: &tempfile::TempDir, nodes: &[SocketAddr]) -> (Server, String) {
    let pod = |(number, address): (usize, &SocketAddr)| {
        format!(
            "- targets: [\"{address}\"]\n        labels: {{ namespace: limits, pod: tidegate-{number} }}\n      "
        )
    };
    let nodes: String = nodes.iter().enumerate().map(pod).collect();
    let file = text_of("deploy/prometheus/prometheus.yml");
    let target = "- targets: [\"tidegate:4000\"]";
    assert!(file.contains(": 15s") && file.contains(target));
    let file = file.replace(": 15s", ": 1s").replace(target, &nodes);
    fs::write(folder.path().join("prometheus.yml"), file).unwrap();
    for rules in ["alerts.yml", "rules.yml"] {
        fs::write(folder.path().join(rules), text_of(&format!("deploy/prometheus/{rules}"))).unwrap();
    }
    let listen = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus");
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.arg(format!("--web.listen-address={listen}")).current_dir(folder.path());
    let server = Server::spawn(&mut command);
    let url = format!("http://{listen}");
    let began = monotonic();
    while agent().get(format!("{url}/-/ready")).call().map_or(true, |reply| reply.status() != 200) {
        assert!(began.elapsed() < PATIENCE, "Prometheus does not answer");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    (server, url)
}

/// The node of [`FILE`], after one of everything that is counted by what it was.
fn with_everything(certificates: &Certificates) -> Tidegate {
    let free = || format!("127.0.0.1:{}", free_port());
    let (names, edge, statsd) = (free(), free(), free());
    let (application, _) = listening();
    let file = FILE
        .replace("CERTIFICATE", certificates.certificate().to_str().unwrap())
        .replace("KEY", certificates.key().to_str().unwrap())
        .replace("NAMES", &names)
        .replace("EDGE", &edge)
        .replace("STATSD", &statsd)
        .replace("ECHO", &echo().to_string())
        .replace("APP", &application.to_string());
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("tidegate.toml"), file).unwrap();
    let arguments = ["--config", "tidegate.toml"];
    let node = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    for path in ["/", "/away", "/keys", "/tokens", "/forward"] {
        agent().get(format!("http://{}{path}", node.gateway[0])).call().unwrap();
    }
    assert!(answers(&mut connect_from("127.0.0.1", edge.parse().unwrap())));
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"a:1|c", &statsd).unwrap();
    let batch = json!({"metrics": [{"name": "cpu.usage", "value": 81.5, "tags": {"host": "a"}}]});
    let taken = agent().post(format!("http://{}/metrics", node.intake.unwrap())).send_json(&batch).unwrap();
    assert_eq!(taken.status(), 200);
    handshakes(node.grpc);
    node
}

/// A handshake that succeeds and one that fails.
fn handshakes(listener: SocketAddr) {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &listener.to_string()]).stdin(Stdio::null());
    assert!(openssl.output().unwrap().status.success());
    let mut plain = TcpStream::connect(listener).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // It is closed, by a reset or with an alert before.
    drop(plain.read_to_end(&mut Vec::new()));
}

/// A decision by HTTP and one by RESP.
fn decide(node: &Tidegate) {
    let body = json!({"client_id": "user123", "resource": "api"});
    assert_eq!(agent().post(node.url("/api/v1/ratelimit")).send_json(&body).unwrap().status(), 200);
    let mut redis = TcpStream::connect(node.resp).unwrap();
    redis.write_all(b"PING\r\n").unwrap();
    redis.read_exact(&mut [0; 7]).unwrap();
}
