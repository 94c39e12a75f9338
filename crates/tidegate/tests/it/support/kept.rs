//! A client of openssl's own whose TLS connection outlives many requests.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    missing_docs,
    reason = "a test says what it expects by unwrapping it"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A connection that openssl has made, and keeps.
pub struct Kept {
    client: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Kept {
    pub fn connect(name: &str, address: SocketAddr) -> Self {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-servername", name, "-connect", &address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()));
        Self { client, to, from }
    }

    /// The reply to a request.
    pub fn ask(&mut self, name: &str) -> String {
        write!(self.to, "GET / HTTP/1.1\r\nhost: {name}\r\n\r\n").unwrap();
        self.to.flush().unwrap();
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let begin = head.len();
            assert!(self.from.read_line(&mut head).unwrap() > 0, "the connection ended: {head}");
            if let Some(value) = head[begin..].to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.from.read_exact(&mut body).unwrap();
        head + &String::from_utf8(body).unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.client.kill().unwrap_or_default();
        self.client.wait().map(drop).unwrap_or_default();
    }
}
