//! A server process and the ways to break it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A child process, killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts `command` and waits until a line of its standard output contains `ready`.
    ///
    /// # Panics
    /// If it cannot be started or ends before it is ready; with its output.
    #[must_use]
    pub fn start(command: &mut Command, ready: &str) -> Self {
        let program = command.get_program().to_owned();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()));
        let output = child.stdout.take().expect("the output is piped");
        let mut lines = BufReader::new(output);
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            let length = lines.read_line(&mut line).unwrap_or(0);
            assert!(length > 0, "{} ended before it was ready:\n{seen}", program.display());
            if line.contains(ready) {
                break;
            }
            seen.push_str(&line);
        }
        // Keeps the pipe from filling.
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Self { child }
    }

    /// Starts `command`, drops its output, and waits for nothing.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(command: &mut Command) -> Self {
        let program = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()));
        Self { child }
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it without a trace: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, as a crash would, and waits for its end.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("a child can be waited for");
    }

    /// Asks it to end with this signal, and waits for its end.
    pub fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.child.wait().expect("a child can be waited for");
    }

    fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }
}

/// Stops processes that a server has started.
pub fn freeze_all(pids: &[u32]) {
    pids.iter().for_each(|pid| send(*pid, Signal::STOP));
}

/// Lets them go on.
pub fn thaw_all(pids: &[u32]) {
    pids.iter().for_each(|pid| send(*pid, Signal::CONT));
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process has an id");
    // It may have ended already.
    kill_process(pid, signal).unwrap_or_default();
}

/// Waits until somebody listens on a port of 127.0.0.1.
pub(crate) fn wait_for(port: u16) {
    for _ in 0..6_000 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("nobody listens on port {port}");
}

impl Drop for Server {
    fn drop(&mut self) {
        // `Child::kill` knows whether the process was waited for, so no other one is hit.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}
