//! `tidegate edge`: one listener without a file, whose backends register themselves.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::Child;

use crate::support::edge::{answers, echo, visit};
use crate::support::{agent, binary};
use serde_json::{Value, json};

/// An edge that is ended with the test.
struct Running {
    child: Child,
    folder: tempfile::TempDir,
    edge: SocketAddr,
    api: SocketAddr,
    pages: SocketAddr,
}

impl Running {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary();
        command.args(["edge", "--listen", "127.0.0.1:0", "--region", "sa", "--api", "127.0.0.1:0"]);
        command
            .args(["--http-listen", "127.0.0.1:0", "--log-level", "off"])
            .args(more)
            .current_dir(folder.path());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |what: &str| {
            let line = lines.by_ref().map_while(Result::ok).find(|line| line.trim().starts_with(what));
            let line = line.unwrap_or_else(|| panic!("it ended before it said where {what} is"));
            line.split_once("://").unwrap().1.split_whitespace().next().unwrap().parse().unwrap()
        };
        let (edge, api, pages) = (address("edge"), address("registration"), address("operator"));
        Self { child, folder, edge, api, pages }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut reply = agent().get(format!("http://{address}{path}")).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

#[test]
fn an_edge_without_a_file_serves_what_registers_and_nothing_else() {
    let mut running = Running::start(&[]);
    assert!(!visit("127.0.0.1", running.edge).1, "nobody has registered");
    let body =
        json!({"id": "one", "app": "default", "region": "sa", "ip": "127.0.0.1", "port": echo().port()});
    let registered = agent().post(format!("http://{}/api/v1/register", running.api)).send_json(body).unwrap();
    assert_eq!(registered.status(), 201);
    let (mut stream, is_served) = visit("127.0.0.1", running.edge);
    assert!(is_served);
    let listed: Value = serde_json::from_str(&get(running.api, "/api/v1/backends").1).unwrap();
    assert_eq!(listed["backends"][0]["id"], "one");
    assert_eq!(get(running.pages, "/readyz").0, 200);
    assert!(get(running.pages, "/metrics").1.contains("tidegate_edge_placed_total"));
    for path in ["/", "/v1/policies", "/v1/check", "/api/v1/ratelimit"] {
        assert_eq!(get(running.pages, path).0, 404, "{path}");
    }
    assert_eq!(std::fs::read_dir(running.folder.path()).unwrap().count(), 0, "it keeps nothing");
    assert!(answers(&mut stream));
    drop(stream);
    let pid = running.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn an_edge_is_for_the_app_that_is_named() {
    let running = Running::start(&["--app", "web"]);
    let register = |app: &str| {
        let body = json!({"id": app, "app": app, "ip": "127.0.0.1", "port": echo().port()});
        let mut reply =
            agent().post(format!("http://{}/api/v1/register", running.api)).send_json(body).unwrap();
        assert_eq!(reply.status(), 201);
        reply.body_mut().read_to_string().unwrap()
    };
    assert!(register("default").contains("no listener of this edge is for the app"));
    assert!(!visit("127.0.0.1", running.edge).1);
    assert!(register("web").contains("it gets connections from now on"));
    assert!(visit("127.0.0.1", running.edge).1);
}

#[test]
fn a_taken_port_is_named_with_the_flag_that_changes_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--api", "--http-listen"] {
        let mut command = binary();
        command.arg("edge");
        for other in ["--listen", "--api", "--http-listen"] {
            command.args([other, if other == flag { &address } else { "127.0.0.1:0" }]);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&address) && said.contains(&format!("another address with {flag})")), "{said}");
    }
    // Until here, so that nobody else has it.
    drop(taken);
}
