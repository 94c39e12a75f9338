//! Health by gRPC: whether a server is used is what its own health service says, of the site that the check names.

use std::io::Write;

use serde_json::{Value, json};
use tidegate_testkit::free_port;
use tidegate_testkit::nginx::Nginx;

use crate::backends::{gateway, grpc, in_front_of, wait_for};

#[test]
fn the_health_of_a_grpc_service_decides_whether_its_server_is_used() {
    let mut server = grpc();
    let upstream = json!({
        "servers": [format!("http://127.0.0.1:{}", server.port)], "protocol": "http2",
        "check": {"grpc": "test.Service", "interval_seconds": 0.02, "rise": 1, "fall": 1}
    });
    let gateway = gateway(upstream);
    let mut say = |word: &str| server.child.stdin.as_mut().unwrap().write_all(format!("{word}\n").as_bytes());
    say("NOT_SERVING").unwrap();
    wait_for(&gateway, false);
    say("SERVING").unwrap();
    wait_for(&gateway, true);
    say("SERVICE_UNKNOWN").unwrap();
    wait_for(&gateway, false);
}

/// nginx tells sites of gRPC apart by name, and has none that is called as its address.
#[test]
fn a_check_by_grpc_names_the_site_that_it_asks_about() {
    let mut server = grpc();
    let port = free_port();
    let servers = format!(
        "server {{ listen 127.0.0.1:{port} http2; location / {{ return 404; }} }}\n\
         server {{ listen 127.0.0.1:{port} http2; server_name health.example; \
         location / {{ grpc_pass grpc://127.0.0.1:{}; }} }}\n",
        server.port
    );
    let _nginx = Nginx::start(&[port], |_| format!("access_log off;\n{servers}"));
    let upstream = |named: Value| {
        let mut check = json!({
            "grpc": "test.Service", "interval_seconds": 0.02, "rise": 1, "fall": 1, "timeout_seconds": 60
        });
        check.as_object_mut().unwrap().extend(named.as_object().unwrap().clone());
        json!({"servers": [format!("http://127.0.0.1:{port}")], "protocol": "http2", "check": check})
    };
    let gateway = gateway(upstream(json!({})));
    wait_for(&gateway, false);
    for (host, is_up) in [("health.example", true), ("other.example", false), ("health.example:80", true)] {
        gateway.apply(&in_front_of(upstream(json!({"host": host}))));
        wait_for(&gateway, is_up);
    }
    server.child.stdin.as_mut().unwrap().write_all(b"NOT_SERVING\n").unwrap();
    wait_for(&gateway, false);
}
