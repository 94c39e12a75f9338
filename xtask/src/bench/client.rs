//! A small HTTP/1.1 client for what a load generator cannot do: hold connections idle, send each key
//! once, put 5,000 requests in flight before the first reply is read, and read what replies say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

use super::case::Subject;
use super::generator::{body_of, path_of};

/// A server that is silent for longer has failed.
const TIMEOUT: Duration = Duration::from_secs(20);
/// No reply of ours is longer.
const BODY_MAX: usize = 1 << 20;

/// A kept-alive connection.
pub(crate) struct BenchConnection {
    stream: BufReader<TcpStream>,
}

/// One reply.
pub(crate) struct BenchReply {
    /// Status code.
    pub(crate) status: u16,
    /// Body as text.
    pub(crate) body: String,
}

impl BenchReply {
    /// Whether this is a decision that admits.
    pub(crate) fn admits(&self) -> bool {
        self.status == 200 && self.body.contains(r#""allowed":true"#)
    }

    /// Whether this is a decision that denies.
    pub(crate) fn denies(&self) -> bool {
        self.status == 200 && self.body.contains(r#""allowed":false"#)
    }
}

impl BenchConnection {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not accept.
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends bytes that [`post`] made, without waiting for a reply.
    ///
    /// # Errors
    /// When the connection fails.
    pub(crate) fn send(&mut self, requests: &[u8]) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(requests).context("sending a request")
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// When the connection fails or the reply is not HTTP/1.1 with a length.
    pub(crate) fn receive(&mut self) -> anyhow::Result<BenchReply> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("reading a reply")?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("no status in {line:?}"))?;
        let mut length = 0_usize;
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the connection closed inside a header");
            }
            let header = line.trim_end();
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().with_context(|| format!("content-length{value}"))?;
            }
        }
        if length > BODY_MAX {
            bail!("a reply of {length} bytes");
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).context("reading a body")?;
        Ok(BenchReply { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// The bytes of a POST with a JSON body.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The bytes that ask a subject to decide on a client.
pub(crate) fn decision(subject: Subject, client: &str) -> Vec<u8> {
    post(path_of(subject), &body_of(subject).replace("CLIENT", client))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn replies_are_read_one_after_the_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = BenchConnection::open(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"allowed\":true}HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        assert!(connection.receive().unwrap().admits());
        let second = connection.receive().unwrap();
        assert!(second.status == 429 && !second.admits() && !second.denies());
        drop(server);
        assert!(connection.receive().is_err());
    }

    #[test]
    fn a_request_states_its_length() {
        let bytes = String::from_utf8(decision(Subject::Tidegate, "a")).unwrap();
        assert!(bytes.starts_with("POST /api/v1/ratelimit HTTP/1.1\r\n"));
        assert!(
            bytes.contains("Content-Length: 34\r\n")
                && bytes.ends_with(r#"{"client_id":"a","resource":"api"}"#)
        );
    }
}
