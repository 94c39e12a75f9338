//! Planted causes in services that others wrote.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tidegate_net::clock::monotonic;
use tidegate_testkit::postgres::PostgresServer;

use crate::planted::{Stub, attempts, ensure, saturate, within};

/// nginx with a configuration of its own; dropping it ends it and its workers.
struct Nginx {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Nginx {
    /// At most `limit` requests at a time go on to `behind`; the others are answered 429.
    fn limited(limit: u32, behind: &str) -> Self {
        Self::start("master_process off;", |port| {
            format!(
                "limit_conn_zone $server_name zone=all:1m; limit_conn_status 429; limit_conn_log_level info;
                 server {{
                   listen 127.0.0.1:{port}; server_name all;
                   location / {{ limit_conn all {limit}; proxy_pass http://{behind}; }}
                 }}"
            )
        })
    }

    /// Two workers, each with a listener of its own, that compress a page for each request.
    fn compressing() -> Self {
        Self::start("user root root; worker_processes 2;", |port| {
            format!(
                "gzip on; gzip_comp_level 9; gzip_types *;
                 server {{ listen 127.0.0.1:{port} reuseport; root pages; }}"
            )
        })
    }

    fn start(main: &str, http: impl Fn(u16) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = tidegate_testkit::free_port();
        let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {kind};"));
        let config = format!(
            "daemon off; {main} error_log stderr; pid nginx.pid; events {{}}
             http {{ access_log off; {} keepalive_requests 1000000; {} }}",
            own.concat(),
            http(port)
        );
        fs::write(folder.path().join("nginx.conf"), config).unwrap();
        fs::create_dir(folder.path().join("pages")).unwrap();
        let words = (0..40_000_u32).map(|word| format!("{} ", word.wrapping_mul(7_919) % 10_007));
        fs::write(folder.path().join("pages/index.html"), words.collect::<String>()).unwrap();
        let child = Command::new("nginx")
            .args(["-p", folder.path().to_str().unwrap(), "-c", "nginx.conf"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = monotonic();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "nginx does not listen");
        }
        Self { child, url: format!("http://127.0.0.1:{port}/"), _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Killed, it would leave its workers behind.
        drop(Command::new("kill").arg(self.child.id().to_string()).status());
        drop(self.child.wait());
    }
}

/// The workers are the server, and not the process that started them and listens beside them.
#[test]
fn the_workers_of_nginx_are_the_server_whose_cores_are_used_up() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let nginx = Nginx::compressing();
        let flags =
            "--levels 1,8,32 --header Accept-Encoding:gzip --step-seconds 2 --warmup-seconds 0.3 --repeats 1";
        saturate(folder.path(), &nginx.url, flags).1
    };
    attempts("server-cpu", run, |report| {
        let seen = report["observations"].as_array().and_then(|steps| steps.last());
        let used = seen.and_then(|step| step["server"]["cpu"].as_f64());
        ensure(used > Some(1.2), &format!("its two workers used {used:?} cores"))
    });
}

/// `limit_conn 8` and replies of 20 ms: 400 a second, and the rest is turned away. `upstream` would be wrong, for what
/// stands behind is as fast as ever, and so would `hot-thread`: clients that pause leave nginx's one thread idle.
#[test]
fn a_limit_of_nginx_is_named() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let behind = Stub::start("--delay-ms 20");
        let nginx = Nginx::limited(8, behind.address());
        let flags = "--levels 4,8,32,64 --think-ms 20 --step-seconds 1.5 --warmup-seconds 0.3 --repeats 1";
        saturate(folder.path(), &nginx.url, flags).1
    };
    attempts("admission", run, |report| {
        ensure(report["cause"]["numbers"]["denied_share"].as_f64() > Some(0.1), "hardly anything is denied")
    });
}

/// Connections of the service below to its database, opened at its start.
const POOL: usize = 8;
/// A request waits 10 ms in the database beside others, and 5 ms while it alone holds a lock.
const WORK: &str =
    "SELECT pg_sleep(0.010); BEGIN; SELECT pg_advisory_xact_lock(1); SELECT pg_sleep(0.005); COMMIT";

/// A service whose requests all want one lock of its database. It is this process, by threads; dropping it ends it.
struct LockedService {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    _database: PostgresServer,
}

impl LockedService {
    fn start() -> Self {
        let database = PostgresServer::start(&["fsync=off"]);
        let (give, take) = mpsc::sync_channel(POOL);
        for _ in 0..POOL {
            give.send(database_connection(database.port)).unwrap();
        }
        let pool = Arc::new(Pool { give, take: Mutex::new(take) });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        thread::spawn(move || {
            for socket in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (pool, socket) = (Arc::clone(&pool), socket.unwrap());
                thread::spawn(move || pool.serve(socket));
            }
        });
        Self { address, stop, _database: database }
    }
}

impl Drop for LockedService {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

/// Connections to the database that no request has at the moment.
struct Pool {
    give: mpsc::SyncSender<TcpStream>,
    take: Mutex<mpsc::Receiver<TcpStream>>,
}

impl Pool {
    /// The requests of one connection of HTTP/1.1, until its client leaves.
    fn serve(&self, mut socket: TcpStream) {
        let mut byte = [0];
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if !socket.read(&mut byte).is_ok_and(|length| length == 1) {
                    return;
                }
                head.push(byte[0]);
            }
            let mut database = self.take.lock().recv().unwrap();
            // The generator ends a step by leaving, and the database ends with the test.
            let done = query(&mut database).is_ok();
            self.give.send(database).unwrap();
            if !done || socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

/// A connection of PostgreSQL's protocol 3.0 as the user that it trusts here.
fn database_connection(port: u16) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let names = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(names.len() + 8).unwrap();
    let hello = [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), names].concat();
    socket.write_all(&hello).unwrap();
    until_ready(&mut socket).unwrap();
    socket
}

fn query(socket: &mut TcpStream) -> io::Result<()> {
    let length = u32::try_from(WORK.len() + 5).unwrap();
    socket.write_all(&[&b"Q"[..], &length.to_be_bytes()[..], WORK.as_bytes(), b"\0"].concat())?;
    until_ready(socket)
}

/// Reads messages up to ReadyForQuery.
fn until_ready(socket: &mut TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; 5];
        socket.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length.saturating_sub(4) as usize];
        socket.read_exact(&mut body)?;
        match head[0] {
            b'Z' => return Ok(()),
            b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body))),
            _ => {}
        }
    }
}

/// One lock for 5 ms of each request: 200 a second, however many connections there are. The service waits for its
/// database, and both have idle cores: `server-cpu` and `hot-thread` would be wrong, and `fixed-concurrency` would look for
/// a pool in the service.
#[test]
fn a_lock_of_the_database_is_named_as_what_stands_behind() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let service = LockedService::start();
        let flags = "--levels 1,2,4,8,16,32 --step-seconds 1.5 --warmup-seconds 0.3 --repeats 1";
        saturate(folder.path(), &format!("http://{}/", service.address), flags).1
    };
    attempts("upstream", run, |report| {
        within("its connections", &report["cause"]["numbers"]["outgoing"], POOL as f64, 0.0)
    });
}
