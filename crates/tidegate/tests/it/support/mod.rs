//! The built binary, in a scratch folder, on a free port.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part of it"
)]

pub mod edge;
pub mod envoy;
pub mod heads;
pub mod issuer;
pub mod severed;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_net::clock::monotonic;

/// A running `tidegate serve`. Dropping it kills it.
pub struct Tidegate {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub resp: SocketAddr,
    /// The intake, unless it is off.
    pub intake: Option<SocketAddr>,
    /// The admin API's own listener, if it has one.
    pub admin: Option<SocketAddr>,
    /// The gateway's listeners, in the file's order.
    pub gateway: Vec<SocketAddr>,
    pub data: tempfile::TempDir,
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// How a process ended and what it wrote.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
}

/// The binary with a clean environment.
pub fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") || name.to_string_lossy().starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Tidegate {
    /// Starts on a free port with further arguments and environment.
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
        Self::start_in(data, arguments, &environment)
    }

    /// Starts in `data`, which becomes the working directory.
    pub fn start_in(data: tempfile::TempDir, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = binary();
        command.arg("serve").args(arguments);
        Self::spawn(data, command, environment)
    }

    /// Runs `command`, which must become `tidegate serve`, in `data`.
    pub fn spawn(data: tempfile::TempDir, mut command: Command, environment: &[(&str, &str)]) -> Self {
        for listener in ["GRPC", "RESP", "INTAKE"] {
            command.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
        }
        command.current_dir(data.path()).envs(environment.iter().copied());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("try it:") {
            if lines.read_line(&mut said).unwrap() == 0 {
                let mut errors = String::new();
                child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                panic!("tidegate did not start: {said}{errors}");
            }
        }
        let address = |label: &str| {
            let (_, rest) = said.split_once(label).unwrap();
            let url = rest.split_whitespace().next().unwrap();
            url.split_once("://").unwrap().1.parse().unwrap()
        };
        let (http, grpc, resp) = (address("decision API"), address("gRPC"), address("RESP"));
        let intake = said.lines().any(|line| line.starts_with("  intake ")).then(|| address("  intake "));
        let admin = said.contains("admin API").then(|| address("admin API"));
        let gateway = said.lines().filter_map(|line| line.trim().strip_prefix("gateway "));
        let gateway = gateway.map(|url| url.split_once("://").unwrap().1.parse().unwrap()).collect();
        let stdout = std::thread::spawn(move || {
            let mut rest = said;
            lines.read_to_string(&mut rest).unwrap();
            rest
        });
        let mut errors = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            text
        });
        Self {
            http,
            grpc,
            resp,
            intake,
            admin,
            gateway,
            data,
            child,
            stdout: Some(stdout),
            stderr: Some(stderr),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; everything that it wrote, both streams.
    pub fn wait(self) -> Ended {
        self.wait_keeping_data().1
    }

    /// Waits for the end, and keeps the data.
    pub fn wait_keeping_data(mut self) -> (tempfile::TempDir, Ended) {
        let status = self.child.wait().unwrap();
        let mut output = self.stdout.take().unwrap().join().unwrap();
        output.push_str(&self.stderr.take().unwrap().join().unwrap());
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().unwrap());
        (data, Ended { status, output })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    pub fn path(&self) -> &Path {
        self.data.path()
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A client that takes every status as an answer.
#[allow(clippy::disallowed_methods, reason = "a pause between questions, which no event ends")]
pub fn agent() -> ureq::Agent {
    // Sleeps because tests ask until an answer changes: without a pause they take every port of the machine for a minute.
    std::thread::sleep(Duration::from_millis(5));
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}

/// The library that shows a program another civil time.
pub fn faketime() -> String {
    let folders = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime"];
    let mut libraries = folders.iter().map(|path| format!("{path}/libfaketime.so.1"));
    let library = libraries.find(|path| std::fs::exists(path).unwrap());
    library.expect("libfaketime is there: run `make setup`")
}

/// Has a program under [`faketime`] see the time that is `offset` from now; `clock` is its `FAKETIME_TIMESTAMP_FILE`.
pub fn set_clock(clock: &Path, offset: &str) {
    // In one step: the program reads the file at every look at the clock.
    std::fs::write(clock.with_extension("new"), offset).unwrap();
    std::fs::rename(clock.with_extension("new"), clock).unwrap();
}

/// Asks over kept connections until the service is gone. A request that was sent is answered, or
/// this panics; between requests a connection may end, and a new one may be refused at the end. While the
/// service drains it closes connections on which nothing came for a second: also that of a client that the
/// machine let wait before its first request, which is no loss.
pub fn keep_asking(address: SocketAddr, request: &str, stop: &AtomicBool, answered: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let connecting = monotonic();
        let Ok(mut stream) = TcpStream::connect(address) else { break };
        let (mut first, mut close) = (true, false);
        while !close {
            let sent = stream.write_all(request.as_bytes());
            let late = first && connecting.elapsed() >= Duration::from_millis(500);
            match sent.ok().and_then(|()| read_reply(&mut stream)) {
                Some(last) => close = last,
                None if late => break,
                None => panic!("a request was sent and not answered"),
            }
            answered.fetch_add(1, Ordering::Relaxed);
            first = false;
        }
    }
}

/// Reads one reply; whether the server closes after it. `None` if the connection ended instead.
fn read_reply(stream: &mut TcpStream) -> Option<bool> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split_once("content-length: ")?.1;
            let length: usize = length.split("\r\n").next()?.parse().ok()?;
            if body.len() >= length {
                assert!(head.starts_with("http/1.1 200"), "{head}");
                return Some(head.contains("connection: close"));
            }
        }
    }
}
