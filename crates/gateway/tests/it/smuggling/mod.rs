//! What a proxy makes of raw requests: a backend that records what reaches it, a client that speaks bytes,
//! nginx to compare with, and the table of the page.
#![allow(unreachable_pub, reason = "a part of one test binary")]

pub mod http2;
pub mod page;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_testkit::free_port;
use tidegate_testkit::nginx::Nginx;

const PATIENCE: Duration = Duration::from_secs(60);

/// What is sent behind each row: its reply says that the connection was in order until then.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Fields that a proxy adds or frames with. They are shown only where a client's word is in them.
const ADDED: [&str; 10] = [
    "host",
    "via",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "traceparent",
    "content-length",
    "transfer-encoding",
    "sec-websocket-key",
];

/// A server that writes down what it was sent, and reads it as strictly as it can.
pub struct Recorder {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::default();
        let recorder = Self { address, seen: Arc::clone(&seen) };
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || record(stream, &seen));
            }
        });
        recorder
    }

    /// What came since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// Each field once, and how often it came.
fn counted(fields: impl Iterator<Item = String>) -> Vec<String> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for field in fields {
        match counted.last_mut().filter(|(last, _)| *last == field) {
            Some((_, count)) => *count += 1,
            None => counted.push((field, 1)),
        }
    }
    let shown = |(field, count)| if count == 1 { field } else { format!("{field} ({count} times)") };
    counted.into_iter().map(shown).collect()
}

fn record(mut stream: TcpStream, seen: &Mutex<Vec<String>>) {
    let server = stream.local_addr().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let Some((shown, is_head)) = recorded(&mut reader, server) else { return };
        let is_broken = shown.starts_with('?');
        seen.lock().unwrap().push(shown);
        let reply = if is_head {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        };
        if stream.write_all(reply.as_bytes()).is_err() || is_broken {
            return;
        }
    }
}

/// One request, as the page shows it: what is in doubt begins with a question mark.
fn recorded(reader: &mut impl BufRead, server: SocketAddr) -> Option<(String, bool)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = head.escape_ascii().to_string();
    let lines: Vec<&[u8]> = head[..head.len() - 4].split(|byte| *byte == b'\n').collect();
    let mut fields = Vec::new();
    for (index, line) in lines.iter().enumerate().skip(1) {
        let line = if index + 1 < lines.len() { line.strip_suffix(b"\r") } else { Some(*line) };
        let Some((name, value)) = line.and_then(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        }) else {
            return Some((format!("? {text}"), false));
        };
        fields.push((String::from_utf8_lossy(name).to_ascii_lowercase(), value.escape_ascii().to_string()));
    }
    let first = lines[0].strip_suffix(b"\r").unwrap_or(lines[0]).escape_ascii().to_string();
    let target = first.strip_suffix(" HTTP/1.1");
    let all = |wanted: &str| -> Vec<&str> {
        fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_str()).collect()
    };
    let (hosts, lengths, codings) = (all("host"), all("content-length"), all("transfer-encoding"));
    let is_framed = match (&lengths[..], &codings[..]) {
        ([], [] | ["chunked"]) => true,
        ([length], []) => length.bytes().all(|digit| digit.is_ascii_digit()),
        _ => false,
    };
    let Some(target) = target.filter(|_| is_framed && hosts.len() == 1) else {
        return Some((format!("? {text}"), false));
    };
    let body = match read_body(reader, lengths.first().copied(), !codings.is_empty())? {
        Ok(body) => body,
        Err(doubt) => return Some((doubt, false)),
    };
    let mut shown = vec![target.to_owned()];
    if hosts[0] == server.to_string() {
        shown.push("host=(the server)".to_owned());
    } else if hosts[0] != "a" {
        shown.push(format!("host={}", hosts[0]));
    }
    shown.extend(counted(
        fields
            .iter()
            .filter(|(name, value)| !ADDED.contains(&name.as_str()) || value.contains("evil"))
            .filter(|(name, value)| (name.as_str(), value.as_str()) != ("x-user", "nobody"))
            .map(|(name, value)| format!("{name}={value}")),
    ));
    if !body.is_empty() {
        shown.push(match body.len() {
            0..=40 => format!("{:?}", body.escape_ascii().to_string()),
            long => format!("({long} bytes)"),
        });
    }
    Some((shown.join(" "), target.starts_with("HEAD ")))
}

/// The body, or what is in doubt about it.
fn read_body(
    reader: &mut impl BufRead,
    length: Option<&str>,
    chunked: bool,
) -> Option<Result<Vec<u8>, String>> {
    let mut body = Vec::new();
    if !chunked {
        body.resize(length.unwrap_or("0").parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
        return Some(Ok(body));
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Ok(size) = usize::from_str_radix(line.strip_suffix("\r\n")?, 16) else {
            return Some(Err(format!("? chunk of {line:?}")));
        };
        let mut chunk = vec![0; size];
        reader.read_exact(&mut chunk).ok()?;
        body.extend(chunk);
        let mut end = String::new();
        reader.read_line(&mut end).ok()?;
        if size == 0 {
            return Some(Ok(body));
        }
    }
}

/// Sends a row and [`NEXT`] behind it, in pieces of this size; the replies' statuses.
fn exchange(address: SocketAddr, request: &[u8], piece: usize) -> Vec<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let bytes = [request, NEXT].concat();
    let writing = std::thread::spawn(move || {
        for piece in bytes.chunks(piece) {
            // The server may have closed by now; what it said is read by the other half.
            if writer.write_all(piece).is_err() {
                return;
            }
        }
    });
    let received = read_to_end(&mut stream);
    drop(stream);
    writing.join().unwrap();
    let text = String::from_utf8_lossy(&received);
    let replies = text.split("HTTP/1.").skip(1).filter_map(|reply| reply.get(2..5));
    replies.map(str::to_owned).collect()
}

/// Until the peer closes, however it does that.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let mut space = [0; 16 << 10];
    loop {
        match stream.read(&mut space) {
            Ok(0) => return received,
            Ok(size) => received.extend_from_slice(&space[..size]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return received,
            Err(error) => panic!("{error}; until then: {}", received.escape_ascii()),
        }
    }
}

/// What becomes of a row, as the page shows it: what reached the backend, then what the client got.
pub fn outcome(backend: &Recorder, address: SocketAddr, request: &[u8], piece: usize) -> String {
    let mut statuses = exchange(address, request, piece);
    let mut seen = backend.take();
    let is_open = seen.last().is_some_and(|last| last == "GET /next");
    if is_open {
        seen.pop();
        statuses.pop();
    }
    let closed = if is_open { "" } else { " closed" };
    shown(&seen, &statuses, closed)
}

pub fn shown(seen: &[String], statuses: &[String], closed: &str) -> String {
    let seen = if seen.is_empty() { "-".to_owned() } else { seen.join(" + ") };
    format!(
        "{seen} => {}{closed}",
        if statuses.is_empty() { "nothing".to_owned() } else { statuses.join(" ") }
    )
}

/// The real nginx in front of a backend, as is customary: HTTP/1.1 and kept connections towards it, and the
/// client's host.
pub struct ComparedNginx {
    _nginx: Nginx,
    pub address: SocketAddr,
    pub http2: SocketAddr,
    pub version: String,
}

impl ComparedNginx {
    pub fn start(backend: SocketAddr) -> Self {
        let [port, port2] = [free_port(), free_port()];
        let [address, http2] = [port, port2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let nginx = Nginx::start(&[port, port2], |_| {
            format!(
                "access_log off;\nupstream app {{ server {backend}; keepalive 8; }}\n\
                 server {{ listen {address}; listen {http2} http2; location / {{ proxy_pass http://app;\n\
                 proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection \"\"; }} }}"
            )
        });
        Self { _nginx: nginx, address, http2, version: Nginx::version() }
    }
}
