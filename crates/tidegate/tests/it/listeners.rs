//! The listeners of the built binary: the admin API on the decision API's port and on its own, and protocols that are off.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;

use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};

/// Status and body of a request without a token.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut reply = agent().get(format!("http://{address}{path}")).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

fn post(address: SocketAddr, path: &str, body: &Value) -> u16 {
    agent().post(format!("http://{address}{path}")).send_json(body).unwrap().status().as_u16()
}

fn paths(address: SocketAddr) -> Vec<String> {
    let document: Value = serde_json::from_str(&get(address, "/openapi.json").1).unwrap();
    document["paths"].as_object().unwrap().keys().cloned().collect()
}

const READ: [&str; 6] =
    ["/v1/policies", "/v1/routes", "/v1/clients", "/v1/audit", "/v1/explain", "/api/v1/client-config/a"];

#[test]
fn without_a_listener_of_its_own_the_admin_api_shares_the_port() {
    let service = Tidegate::start(&[], &[]);
    assert_eq!(service.admin, None);
    for path in READ {
        assert_eq!(get(service.http, path).0, 200, "{path}");
    }
    let all = paths(service.http);
    assert!(all.contains(&"/v1/policies".to_owned()) && all.contains(&"/v1/decisions".to_owned()), "{all:?}");
}

#[test]
fn on_a_listener_of_its_own_the_admin_api_is_nowhere_else() {
    let service = Tidegate::start(&[], &[("TIDEGATE_ADMIN_LISTEN", "127.0.0.1:0")]);
    let (http, admin) = (service.http, service.admin.unwrap());
    assert_ne!(http, admin);
    for path in READ {
        assert_eq!((get(http, path).0, get(admin, path).0), (404, 200), "{path}");
    }
    let numbers = json!({"window_seconds": 60, "request_per_window": 1});
    assert_eq!(post(http, "/api/v1/configure", &numbers), 404);
    assert_eq!(post(admin, "/api/v1/configure", &numbers), 200);
    let ask = json!({"client_id": "a", "resource": "r"});
    assert_eq!((post(http, "/api/v1/ratelimit", &ask), post(admin, "/api/v1/ratelimit", &ask)), (200, 404));
    assert!(get(admin, "/v1/explain?client_id=a").1.contains("\"allowed\":false"), "it is one engine");

    // Each document says what its listener has.
    let (decisions, configuration) = (paths(http), paths(admin));
    assert!(decisions.contains(&"/v1/decisions".to_owned()), "{decisions:?}");
    assert!(configuration.contains(&"/v1/policies".to_owned()), "{configuration:?}");
    assert!(decisions.iter().all(|path| !configuration.contains(path)), "{decisions:?} {configuration:?}");

    // Probes and metrics are on both, and each counts for itself.
    for address in [http, admin] {
        assert_eq!((get(address, "/livez").0, get(address, "/readyz").0), (200, 200));
    }
    let metrics = get(http, "/metrics").1;
    for series in [
        "tidegate_http_requests_total{server=\"api\",route=\"/api/v1/ratelimit\",status=\"2xx\"} 1",
        "tidegate_http_requests_total{server=\"admin\",route=\"/v1/policies\",status=\"2xx\"} 1",
    ] {
        assert!(metrics.lines().any(|line| line == series), "{series} is not in\n{metrics}");
    }
}

#[test]
fn fault_45_a_public_listener_of_the_admin_api_needs_a_token() {
    let data = tempfile::tempdir().unwrap();
    let refused = |environment: &[(&str, &str)]| {
        let ended = binary()
            .arg("serve")
            .current_dir(data.path())
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        assert!(!ended.status.success(), "{ended:?}");
        String::from_utf8_lossy(&ended.stdout).into_owned()
    };
    let said = refused(&[("TIDEGATE_ADMIN_LISTEN", "0.0.0.0:0")]);
    assert!(said.contains("admin.listen") && said.contains("admin.token"), "{said}");
    // Of two mistakes, each is named; and the address is its own.
    let said = refused(&[("TIDEGATE_ADMIN_LISTEN", "127.0.0.1:4000")]);
    assert!(said.contains("admin.listen") && said.contains("as is http.listen"), "{said}");
    let said = refused(&[("TIDEGATE_ADMIN_TLS_CERTIFICATE", "c.pem"), ("TIDEGATE_ADMIN_TLS_KEY", "k.pem")]);
    assert!(said.contains("is given without admin.listen"), "{said}");
}

#[test]
fn protocols_that_are_off_are_neither_served_nor_counted() {
    let folder = tempfile::tempdir().unwrap();
    let listeners = [("HTTP", "127.0.0.1:0"), ("GRPC", "off"), ("RESP", "off"), ("INTAKE", "off")];
    let mut command = binary();
    command.arg("serve").current_dir(folder.path());
    command.envs(listeners.map(|(name, address)| (format!("TIDEGATE_{name}_LISTEN"), address)));
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.by_ref().take_while(|line| line != "try it:").collect();
    let url = said.iter().find_map(|line| line.trim().strip_prefix("decision API")).unwrap();
    let url = url.split_whitespace().next().unwrap().to_owned();
    let metrics = agent().get(format!("{url}/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!said.iter().any(|line| line.contains("grpc://") || line.contains("redis://")), "{said:?}");
    assert!(metrics.contains("server=\"api\""), "{metrics}");
    assert!(!metrics.contains("server=\"grpc\"") && !metrics.contains("server=\"resp\""), "{metrics}");
}
