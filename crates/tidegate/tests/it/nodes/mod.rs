//! Several built binaries on one real store, as an operator runs them.

mod analytics;
mod candidate;
mod control;
mod doctor;
mod edges;
mod half_closed;
mod keys;
mod leases;
mod names;
mod opening;
mod shared_edges;
mod turns;
mod urls;

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Tidegate, agent};
use serde_json::Value;

/// A node with a configuration file and this environment.
fn node(file: &str, environment: &[(&str, &str)]) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    // A machine that other tests keep busy is no store in trouble.
    let patient = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_SHARED_DEADLINE", "60s")];
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[&patient[..], environment].concat())
}

/// Asks `nodes` in turn for `count` decisions at once, each on a connection of its own. Returns how
/// many were allowed.
fn allowed_of(nodes: &[&Tidegate], count: usize) -> usize {
    let body = r#"{"attributes":{"client_id":"hot"}}"#;
    let mut streams: Vec<_> =
        (0..count).map(|n| TcpStream::connect(nodes[n % nodes.len()].http).unwrap()).collect();
    for stream in &mut streams {
        let length = body.len();
        let head = format!("POST /v1/decisions HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n");
        let rest = format!("content-type: application/json\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
    }
    let answer = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(!text.contains("degraded"), "{text}");
        text.contains("\"allowed\":true")
    };
    streams.into_iter().map(answer).filter(|allowed| *allowed).count()
}

/// The value of a series on a node's metrics page.
fn metric(node: &Tidegate, series: &str) -> u64 {
    let page = agent().get(node.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().unwrap()
}

fn explained(node: &Tidegate) -> Value {
    agent().get(node.url("/v1/explain?client_id=hot")).call().unwrap().body_mut().read_json().unwrap()
}
