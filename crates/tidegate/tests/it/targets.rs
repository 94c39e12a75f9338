//! Each target of `clients/targets.json`, as a socket sends it, through nginx that asks `/v1/check`, through the gateway, and
//! through Envoy: with a limit of 0 no handler is reached, in whatever form its path is sent. The libraries of `clients/` send the
//! same ones through their frameworks.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tidegate_testkit::free_port;

use crate::deploy::Nginx;
use crate::envoy::Limited;
use crate::support::Tidegate;

const PATIENCE: Duration = Duration::from_secs(60);
const REACHED: &str = "the handler";
/// A client that no policy is about.
const FREE: &str = "free";

/// The status of a reply, 0 where there was none, and whether the handler made it.
type Answer = (u16, bool);

/// A target with its parts written out, below a prefix.
fn written(document: &Value, target: &str, prefix: &str) -> String {
    let mut whole = target.replace("{p}", prefix).replace("{P}", &prefix.to_uppercase());
    for (name, part) in document["parts"].as_object().unwrap() {
        let times = usize::try_from(part["times"].as_u64().unwrap()).unwrap();
        whole = whole.replace(name, &part["repeat"].as_str().unwrap().repeat(times));
    }
    whole
}

fn send(door: SocketAddr, target: &str, how: &Value, client: &str) -> Answer {
    let method = how["method"].as_str().unwrap_or("GET");
    let fields = how["headers"].as_object().into_iter().flatten();
    let fields: String =
        fields.map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap())).collect();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: x.example\r\nconnection: close\r\nx-api-key: {client}\r\n{fields}\r\n"
    );
    // Texts of the document are Latin-1: a character is a byte.
    let bytes: Vec<u8> = head.chars().map(|character| u8::try_from(character).unwrap()).collect();
    let mut stream = TcpStream::connect(door).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reply = Vec::new();
    // It may have hung up before it has read everything.
    drop(stream.write_all(&bytes));
    drop(stream.read_to_end(&mut reply));
    let reply = String::from_utf8_lossy(&reply);
    let status = reply.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, reply.contains(REACHED))
}

/// The policies of the document, the gateway in front of the application, and whose requests are.
fn file(document: &Value, application: SocketAddr) -> String {
    format!(
        "gateway = {{ listener = [{{ listen = \"127.0.0.1:0\" }}] }}\n\
         upstream = [{{ name = \"app\", servers = [\"http://{application}\"], breaker = {{ enabled = false }} }}]\n\
         route = [{{ name = \"all\", upstream = \"app\", policies = [\"root\"] }}]\n\
         {}\n\
         [attributes.check]\nclient_id = {{ header = \"x-api-key\" }}\n\
         [attributes.gateway]\nclient_id = {{ header = \"x-api-key\" }}\n",
        document["config"].as_str().unwrap()
    )
}

#[test]
fn no_target_reaches_a_handler_uncounted_behind_nginx_the_gateway_or_envoy() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/targets.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(targets).unwrap()).unwrap();
    let targets = document["targets"].as_array().unwrap();
    let application = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file(&document, application)).unwrap();
    let environment = [
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_HTTP_TRUSTED_PROXY_HOPS", "1"),
        ("TIDEGATE_HTTP_PROXY_HEADERS", "original"),
    ];
    let tidegate = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let (folder, handler) = (tempfile::tempdir().unwrap(), format!("{{ return 200 \"{REACHED}\"; }}"));
    let nginx = Nginx::start_before(
        folder.path(),
        &tidegate.http.to_string(),
        &application.to_string(),
        &format!("location = /pay {handler} location = /api/pay {handler}"),
    );
    let envoy = Limited::start(folder.path(), tidegate.grpc, application);
    let doors =
        [("nginx", nginx.front.parse().unwrap()), ("gateway", tidegate.gateway[0]), ("envoy", envoy.address)];
    for (name, door) in doors {
        let mut reached = Vec::new();
        for one in targets {
            let target = one["target"].as_str().unwrap();
            for prefix in ["", "/api"] {
                let sent = written(&document, target, prefix);
                let (free, limited) = (send(door, &sent, one, FREE), send(door, &sent, one, "root"));
                let shown = format!("{name}: {target} below {prefix:?}: {free:?} and {limited:?}");
                assert!(!limited.1, "reached, and not counted: {shown}");
                assert!(!free.1 || limited.0 == 429, "reached, and not denied: {shown}");
                if name == "nginx" {
                    let unasked = send(application, &sent, one, FREE);
                    assert_eq!(free, unasked, "another answer than without the limiter: {shown}");
                }
                if free.1 && prefix.is_empty() {
                    reached.push(one);
                }
            }
        }
        let names = |one: &Value| one["reached"].as_array().unwrap().iter().any(|reaching| reaching == name);
        let stated: Vec<&Value> = targets.iter().filter(|one| names(one)).collect();
        assert_eq!(reached, stated, "{name}");
    }
}
