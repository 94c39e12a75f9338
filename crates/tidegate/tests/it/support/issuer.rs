//! An issuer of JWTs: PyJWT signs them, and Python's web server publishes the keys.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};
use tidegate_net::clock::wall;
use tidegate_testkit::certificates::Pair;

/// What it calls itself.
pub const ISSUER: &str = "https://issuer.example/";

/// PyJWT.
pub struct Issuer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Issuer {
    pub fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("../../.venv/bin/python");
        assert!(python.exists(), "{} is missing: run `make setup`", python.display());
        let mut command = Command::new(python);
        command.arg(root.join("tests/it/jwt/issuer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    pub fn ask(&mut self, question: &Value) -> String {
        writeln!(self.input, "{question}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn keys(&mut self, names: &[&str]) -> String {
        self.ask(&json!({ "publish": names }))
    }

    /// A token of the claims of [`claims`] with these on top, which may take some off.
    pub fn token(&mut self, key: &str, change: Value) -> String {
        self.ask(&json!({"key": key, "claims": claims(change)}))
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn seconds() -> u64 {
    wall().0 / 1_000_000_000
}

pub fn claims(change: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": ["api"], "sub": "alice", "exp": seconds() + 300, "org": {"plan": "pro"},
    });
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// The web server of Python, with the issuer's keys in a folder.
pub struct Published {
    folder: tempfile::TempDir,
    child: Child,
    pub address: SocketAddr,
    /// How often the keys were asked for.
    pub fetches: Arc<AtomicUsize>,
}

/// The same web server with TLS: its port, certificate and key are the arguments.
const WITH_TLS: &str = "
import http.server, ssl, sys
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = tls.wrap_socket(server.socket, server_side=True)
print('Serving HTTPS on 127.0.0.1 port', server.server_port, flush=True)
server.serve_forever()
";

impl Published {
    /// At a free port, or at `port`.
    pub fn start(keys: &str, port: u16) -> Self {
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
        Self::run(command, keys)
    }

    /// As [`Published::start`], with TLS.
    pub fn start_with_tls(keys: &str, port: u16, pair: &Pair) -> Self {
        let mut command = Command::new("python3");
        command.args(["-u", "-c", WITH_TLS, &port.to_string()]).args([&pair.certificate, &pair.key]);
        Self::run(command, keys)
    }

    fn run(mut command: Command, keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), keys);
        command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split(" port ").nth(1).unwrap().split_whitespace().next().unwrap();
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let fetches = Arc::new(AtomicUsize::new(0));
        let (count, log) = (Arc::clone(&fetches), BufReader::new(child.stderr.take().unwrap()));
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                count.fetch_add(usize::from(line.contains("GET /jwks.json")), SeqCst);
            }
        });
        Self { folder, child, address, fetches }
    }

    pub fn put(&self, keys: &str) {
        put(self.folder.path(), keys);
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }
}

/// Whole or not at all.
fn put(folder: &Path, keys: &str) {
    fs::write(folder.join("next"), keys).unwrap();
    fs::rename(folder.join("next"), folder.join("jwks.json")).unwrap();
}

impl Drop for Published {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
