//! A real Envoy.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// A running Envoy; dropping it kills it.
pub struct Envoy {
    child: Child,
}

impl Envoy {
    /// Starts it with a configuration and further arguments, and waits until it serves.
    pub fn start(config: &Path, arguments: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/envoy");
        assert!(program.exists(), "{} is missing: run `make setup`", program.display());
        let mut child = Command::new(program)
            .args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "info", "-c"])
            .arg(config)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("starting workers") {
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "Envoy did not start: {said}");
        }
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child }
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
