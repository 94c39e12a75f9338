//! The built binary, in a scratch folder, on a free port.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part of it"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// A running `tidegate serve`. Dropping it kills it.
pub struct Tidegate {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub resp: SocketAddr,
    /// The intake, unless it is off.
    pub intake: Option<SocketAddr>,
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
        if name.to_string_lossy().starts_with("TIDEGATE_") {
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
        Self { http, grpc, resp, intake, gateway, data, child, stdout: Some(stdout), stderr: Some(stderr) }
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
pub fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}

/// The library that shows a program another civil time.
pub fn faketime() -> String {
    let folders = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime"];
    let mut libraries = folders.iter().map(|path| format!("{path}/libfaketime.so.1"));
    let library = libraries.find(|path| std::fs::exists(path).unwrap());
    library.expect("libfaketime is there: run `make setup`")
}
