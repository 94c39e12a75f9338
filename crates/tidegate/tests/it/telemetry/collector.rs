//! A collector: `collector.py`, and what it has read so far. With `TIDEGATE_COLLECTOR` OpenTelemetry's own, which is that program,
//! stands before it and passes on as JSON what it has understood; `cargo xtask collector` runs the tests so.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidegate_net::clock::monotonic;
use tidegate_testkit::free_port;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running collector; dropping it kills it.
pub(crate) struct Collector {
    programs: Vec<Child>,
    pub(crate) port: u16,
    read: Arc<(Mutex<Vec<Value>>, Condvar)>,
}

impl Collector {
    /// Starts on this port, or on any. With a token it answers nobody else.
    pub(crate) fn start(port: u16, token: Option<&str>) -> Self {
        // OpenTelemetry's own knows tokens only with more parts.
        let own = std::env::var_os("TIDEGATE_COLLECTOR").filter(|_| token.is_none());
        let read_at = if own.is_some() { 0 } else { port };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("../../.venv/bin/python");
        assert!(python.exists(), "{} is missing: run `make setup`", python.display());
        let mut command = Command::new(python);
        command.arg(root.join("tests/it/telemetry/collector.py")).arg(read_at.to_string()).args(token);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let read_at = u16::try_from(first["listening"].as_u64().unwrap()).unwrap();
        let read = Arc::<(Mutex<Vec<Value>>, Condvar)>::default();
        let keep = Arc::clone(&read);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                keep.0.lock().unwrap().push(serde_json::from_str(&line).unwrap());
                keep.1.notify_all();
            }
        });
        let mut this = Self { programs: vec![child], port: read_at, read };
        if let Some(own) = own {
            this.port = if port == 0 { free_port() } else { port };
            this.stand_before(Path::new(&own), read_at);
        }
        this
    }

    /// Starts OpenTelemetry's collector on this one's port, which passes on what it gets to the other one.
    fn stand_before(&mut self, program: &Path, other: u16) {
        let port = self.port;
        let settings = format!(
            "{{receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}, \
              exporters: {{otlphttp: {{endpoint: 'http://127.0.0.1:{other}', encoding: json, compression: none, \
                sending_queue: {{enabled: false}}, retry_on_failure: {{enabled: false}}}}}}, \
              service: {{telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}, pipelines: {{\
                traces: {{receivers: [otlp], exporters: [otlphttp]}}, metrics: {{receivers: [otlp], exporters: [otlphttp]}}}}}}}}"
        );
        let child = Command::new(program).args(["--config", &format!("yaml:{settings}")]).spawn().unwrap();
        // Kept before anything can fail here, so that it is killed all the same.
        self.programs.insert(0, child);
        let began = monotonic();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert_eq!(self.programs[0].try_wait().unwrap(), None, "the collector has ended");
            assert!(began.elapsed() < PATIENCE, "the collector does not listen");
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it has read so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.read.0.lock().unwrap().clone()
    }

    /// Waits until `find` finds what it looks for among the lines.
    pub(crate) fn until<T>(&self, what: &str, find: impl Fn(&[Value]) -> Option<T>) -> T {
        let (lines, come) = &*self.read;
        let mut found = None;
        let lacks = |lines: &mut Vec<Value>| {
            found = find(lines);
            found.is_none()
        };
        let (lines, _) = come.wait_timeout_while(lines.lock().unwrap(), PATIENCE, lacks).unwrap();
        let (count, last) = (lines.len(), lines.iter().rev().take(8).cloned().collect::<Vec<_>>());
        drop(lines);
        found.unwrap_or_else(|| panic!("{what} did not come; of {count} lines the last: {last:#?}"))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        for program in &mut self.programs {
            drop(program.kill());
            drop(program.wait());
        }
    }
}
