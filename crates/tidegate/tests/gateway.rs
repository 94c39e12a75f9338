//! `tidegate gateway URL`: the built binary in front of the stub, without a file.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that is ended with the test.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The address in the first line that has `word`.
    fn address(&mut self, word: &str) -> SocketAddr {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended before it said {word:?}");
            if let Some(rest) = line.split_once(word).map(|(_, rest)| rest) {
                let end = rest.find([' ', '\n', '/', ',']).unwrap_or(rest.len());
                return rest[..end].parse().unwrap();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn a_gateway_without_a_file_proxies_and_drains() {
    let mut stub = Running::start(&["stub", "127.0.0.1:0"]);
    let backend = stub.address("listening on ");
    let url = format!("http://{backend}");
    let mut gateway =
        Running::start(&["gateway", &url, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let proxy = gateway.address("gateway   http://");
    let pages = gateway.address("operator  http://");
    for _ in 0..20 {
        let reply = get(proxy, "/");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    assert!(get(pages, "/readyz").contains("\"ready\":true"));
    let metrics = get(pages, "/metrics");
    let attempts = format!(
        "tidegate_upstream_attempts_total{{upstream=\"upstream\",server=\"{backend}\",result=\"success\"}} 20"
    );
    assert!(metrics.contains(&attempts), "{metrics}");
    assert!(get(pages, "/").starts_with("HTTP/1.1 404 "));
    let pid = gateway.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(gateway.child.wait().unwrap().success());
}

#[test]
fn a_taken_port_is_named_with_the_flag_that_changes_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--http-listen"), ("--http-listen", "--listen")] {
        let arguments = ["gateway", "http://127.0.0.1:1", flag, &address, other, "127.0.0.1:0"];
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&address) && said.contains(&format!("another address with {flag})")), "{said}");
    }
}

#[test]
fn a_server_that_is_no_url_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["gateway", "ftp://a"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said, "a server is \"ftp://a\" (accepted: http://host:port)\n");
}
