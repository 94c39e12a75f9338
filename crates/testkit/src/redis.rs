//! redis-server: single, with a replica, Sentinels or a Cluster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Server, free_port};

/// A redis-server without persistence.
#[derive(Debug)]
pub struct RedisServer {
    /// The process: freeze, thaw, kill.
    pub server: Server,
    /// Its port on 127.0.0.1.
    pub port: u16,
    folder: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts one with these further options.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let port = free_port();
        let server = launch(&folder, port, &options);
        Self { server, port, folder, options }
    }

    /// Its scratch folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it again on the same port, empty, after it was killed.
    pub fn restart(&mut self) {
        self.server = launch(&self.folder, self.port, &self.options);
    }

    /// Sends one command and returns its reply as text, arrays by line.
    ///
    /// # Panics
    /// If the server does not answer within five seconds.
    pub fn command(&self, words: &[&str]) -> String {
        command(self.port, words)
    }
}

/// Sends one command to a Redis on the loopback address and returns its reply, arrays by line.
///
/// # Panics
/// If the server does not answer within five seconds.
pub fn command(port: u16, words: &[&str]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("redis accepts connections");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout can be set");
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes()).expect("redis takes the command");
    let mut reply = String::new();
    read_reply(&mut BufReader::new(stream), &mut reply);
    reply
}

fn read_reply(stream: &mut BufReader<TcpStream>, reply: &mut String) {
    let mut line = String::new();
    stream.read_line(&mut line).expect("redis answers within five seconds");
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).expect("a reply has a type");
    match kind {
        "$" if rest != "-1" => {
            let mut bytes = vec![0; rest.parse::<usize>().expect("a length") + 2];
            stream.read_exact(&mut bytes).expect("the whole string arrives");
            reply.push_str(&String::from_utf8_lossy(&bytes[..bytes.len() - 2]));
            reply.push('\n');
        }
        "*" => (0..rest.parse::<usize>().unwrap_or(0)).for_each(|_| read_reply(stream, reply)),
        _ => {
            reply.push_str(rest);
            reply.push('\n');
        }
    }
}

fn launch(folder: &TempDir, port: u16, options: &[String]) -> Server {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--port").arg(port.to_string()).arg("--dir").arg(folder.path()).args(options);
    Server::start(&mut command, "Ready to accept connections")
}
