//! An HTTP server that a test owns: it keeps what it was sent, and answers what the test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, SyncSender, sync_channel};

use super::PATIENCE;

/// A request that came.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    /// The header's lines, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

/// A server on a port of its own, until the test ends.
pub struct Receiver {
    pub address: SocketAddr,
    requests: Channel<Received>,
}

/// Requests that a test has not looked at.
const UNSEEN: usize = 100_000;

impl Receiver {
    /// A server that answers each request with the status that `answer` gives it.
    pub fn start(answer: impl Fn(&Received) -> u16 + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), answer)
    }

    /// The same at an address that is free.
    pub fn on(address: SocketAddr, answer: impl Fn(&Received) -> u16 + Send + Sync + 'static) -> Self {
        Self::telling("", address, answer)
    }

    /// The same, whose replies have these lines in their heads, too, each with its end.
    pub fn telling(
        fields: &'static str,
        address: SocketAddr,
        answer: impl Fn(&Received) -> u16 + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = sync_channel(UNSEEN);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (sender, answer) = (sender.clone(), Arc::clone(&answer));
                std::thread::spawn(move || {
                    // A peer that leaves ends its connection, and no more.
                    drop(converse(stream.unwrap(), &sender, fields, &*answer));
                });
            }
        });
        Self { address, requests }
    }

    pub fn url(&self, path: &str) -> tidegate_intake::EndpointUrl {
        tidegate_intake::EndpointUrl::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    /// The next request, in the order in which they came.
    pub fn next(&self) -> Received {
        self.requests.recv_timeout(PATIENCE).expect("a request comes")
    }
}

fn converse(
    stream: TcpStream,
    sender: &SyncSender<Received>,
    fields: &str,
    answer: &(dyn Fn(&Received) -> u16 + Send + Sync),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let received = Received { path, head, body };
        let status = answer(&received);
        // The test may have ended.
        drop(sender.send(received));
        let reason = if status == 200 { "" } else { "because the test says so" };
        // In one piece: of several, the kernel would hold back all but the first until the peer has confirmed it.
        let length = reason.len();
        let reply = format!("HTTP/1.1 {status} x\r\n{fields}content-length: {length}\r\n\r\n{reason}");
        stream.write_all(reply.as_bytes())?;
    }
}
