//! Backends that say what they were sent, and a client that shows what a configuration decides of a reply.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What a backend must be sent before it answers a path that begins with `/hold`, and what it says when it has one.
pub(super) struct Hold {
    pub(super) arrived: mpsc::Receiver<()>,
    pub(super) release: mpsc::SyncSender<()>,
}

/// A backend that answers with its name and with what it was sent, for as long as the test runs.
pub(super) fn backend(name: &'static str) -> (SocketAddr, Hold) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (here, arrived) = mpsc::sync_channel(8);
    let (release, go) = mpsc::sync_channel(8);
    thread::spawn(move || {
        let go = std::sync::Arc::new(std::sync::Mutex::new(go));
        for stream in listener.incoming() {
            let (here, go) = (here.clone(), std::sync::Arc::clone(&go));
            thread::spawn(move || {
                let held = || {
                    here.send(()).unwrap();
                    go.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
                };
                serve(name, stream.unwrap(), &held)
            });
        }
    });
    (address, Hold { arrived, release })
}

/// Fields that say who a proxy is, not what its configuration sets.
const OF_THE_PROXY: [&str; 12] = [
    "connection",
    "via",
    "traceparent",
    "x-request-id",
    "x-forwarded-",
    "x-real-ip",
    "x-envoy-",
    "user-agent",
    "accept",
    "content-",
    "transfer-encoding",
    "x-original-uri",
];

fn serve(name: &str, stream: TcpStream, held: &dyn Fn()) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut first = String::new();
        if lines.read_line(&mut first).ok()? == 0 {
            return None;
        }
        let (mut fields, mut length) = (BTreeMap::new(), 0);
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok()?;
            let Some((field, value)) = line.trim_end().split_once(':') else { break };
            let (field, value) = (field.to_ascii_lowercase(), value.trim().to_owned());
            if field == "content-length" {
                length = value.parse().unwrap();
            }
            fields.insert(field, value);
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).ok()?;
        let target = first.rsplit_once(' ').unwrap().0;
        let (status, user) = match fields.get("authorization").map(String::as_str) {
            _ if !target.ends_with("/check") => ("200 OK", "nobody"),
            Some("Bearer good") => ("200 OK", "alice"),
            _ => ("401 Unauthorized", "nobody"),
        };
        if target.contains("/hold") {
            held();
        }
        fields.retain(|field, _| !OF_THE_PROXY.iter().any(|it| field.starts_with(it)));
        let said = format!("{name} {target}\n{fields:?}\n{}", String::from_utf8_lossy(&body));
        let head = format!(
            "HTTP/1.1 {status}\r\nx-backend: {name}\r\nx-backend-secret: 1\r\nx-user: {user}\r\ncontent-length: {}\r\n\r\n",
            said.len()
        );
        (&stream).write_all(&[head.as_bytes(), said.as_bytes()].concat()).ok()?;
    }
}

/// A request's answer, as far as the configuration decides it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) fields: BTreeMap<String, String>,
    /// Of replies that are not a proxy's own error.
    pub(super) body: Option<String>,
}

/// Asks by curl, with its further `arguments`.
pub(super) fn ask(url: &str, arguments: &[&str]) -> Reply {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-k", "-i", "--http1.1", "--max-time", "60", "--path-as-is"]).args(arguments).arg(url);
    let ran = curl.output().unwrap();
    assert!(ran.status.success(), "{url} {arguments:?}: {ran:?}");
    reply_of(&String::from_utf8(ran.stdout).unwrap())
}

/// Sends a request that has the connection closed to a port of this machine: without a process for each, as [`ask`] has.
pub(super) fn send(port: u16, request: &str) -> Reply {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    reply_of(&text)
}

fn reply_of(text: &str) -> Reply {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields =
        lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()));
    let shown = [
        "location",
        "x-backend",
        "x-backend-secret",
        "x-api",
        "x-user",
        "x-shop",
        "strict-transport-security",
    ];
    let fields: BTreeMap<String, String> =
        fields.filter(|(name, _)| shown.contains(&name.as_str())).collect();
    let is_its_own = status < 300 || fields.contains_key("x-backend");
    Reply { status, fields, body: is_its_own.then(|| body.to_owned()) }
}
