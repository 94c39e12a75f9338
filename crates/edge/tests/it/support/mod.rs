//! An edge in this process, on free ports, and backends that behave as a test wants.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part of it"
)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_edge::config::{EdgeConfig, ListenerConfig, check};
use tidegate_edge::limits::Unlimited;
use tidegate_edge::service::{BackendReport, Edge, EdgeListener};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::proxied::Proxied;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_net::tls::Tls;

/// Longer than any pause of a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Running {
    pub edge: Arc<Edge>,
    pub listener: Arc<EdgeListener>,
    pub address: SocketAddr,
    pub drain: Drain,
    pub cores: Option<Cores>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain.advance(Stage::Stopped);
        if let Some(cores) = self.cores.take() {
            cores.stop();
        }
    }
}

/// What documents end as.
pub fn config(backends: &[Value], places: &[Value]) -> EdgeConfig {
    let (backends, places) = check(backends, places).unwrap();
    EdgeConfig { backends, places: places.into(), ..EdgeConfig::default() }
}

/// An edge with one listener, on a free port unless it says another one.
pub fn start(listener: Value, backends: &[Value], places: &[Value]) -> Running {
    start_with(None, listener, backends, places)
}

/// The same, whose listener ends TLS.
pub fn start_with(tls: Option<Tls>, listener: Value, backends: &[Value], places: &[Value]) -> Running {
    let mut listener = listener;
    if listener.get("listen").is_none() {
        listener["listen"] = json!("127.0.0.1:0");
    }
    let listener = ListenerConfig::read(&listener, "").unwrap();
    let two = NonZeroUsize::new(2).unwrap();
    let cores = Cores::start(two).unwrap();
    let edge = Arc::new(Edge::new(Clock::start(), &cores));
    edge.apply(&config(backends, places));
    let drain = Drain::new();
    let gate = Gate {
        permits: Permits::new(20_000),
        buffers: Buffers::new(64 << 20),
        drain: drain.clone(),
        stats: Arc::new(Stats::new(2, &["other"])),
    };
    let sockets = Listeners::bind(&ListenConfig::new(listener.listen, two)).unwrap();
    let sockets = sockets.with_tls(tls);
    let trusted = &listener.proxy_protocol_from;
    let sockets = sockets.with_proxied((!trusted.is_empty()).then(|| Proxied::by(trusted.clone())));
    let address = sockets.address();
    let listener = EdgeListener::new(edge.clone(), listener, gate, &sockets, Arc::new(Unlimited));
    listener.start(&cores, sockets);
    drain.advance(Stage::Ready);
    Running { edge, listener, address, drain, cores: Some(cores) }
}

/// A backend: each connection is given to `serve` on a thread of its own.
pub fn backend(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    backend_on("127.0.0.1:0", serve)
}

/// The same, at an address.
pub fn backend_on(address: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A backend that says its name, then sends back what comes, and ends when the client does.
pub fn named(name: &'static str) -> SocketAddr {
    backend(move |mut stream| {
        // Whoever only looks whether it is there leaves at once.
        if stream.write_all(name.as_bytes()).is_ok() {
            let mut reader = stream.try_clone().unwrap();
            if std::io::copy(&mut reader, &mut stream).is_ok() {
                drop(stream.shutdown(Shutdown::Write));
            }
        }
    })
}

/// A backend that takes thousands of connections, and ends each when its client does.
pub fn patient() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                drop(tokio::spawn(async move {
                    // However it ends, it has ended.
                    drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
                }));
            }
        });
    });
    address
}

/// A document of a backend without checks.
pub fn unchecked(name: &str, address: SocketAddr) -> Value {
    json!({"name": name, "address": address.to_string(), "check": {"kind": "off"}})
}

/// A connection to the edge.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A connection from another address of this machine.
pub fn connect_from(source: &str, address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(source.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What a backend called so by [`named`] says first; empty if the edge closes instead.
pub fn name_of(stream: &mut TcpStream, length: usize) -> String {
    let mut name = vec![0; length];
    match stream.read_exact(&mut name) {
        Ok(()) => String::from_utf8(name).unwrap(),
        Err(_) => String::new(),
    }
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<()>(1);
    let began = tidegate_net::clock::monotonic();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        // A pause between two looks, which nobody cuts short.
        assert!(receiver.recv_timeout(Duration::from_millis(5)).is_err());
    }
    drop(sender);
}

/// Counts what is open at a time, and the most that ever was.
#[derive(Default)]
pub struct Peak {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Peak {
    pub fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    pub fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// A listener whose queue is full, so that the kernel drops every further attempt to connect: nothing answers.
pub fn black_hole() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener: TcpListener = socket.into();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        held.push(stream);
    }
    (address, held, listener)
}

/// What is known of a backend.
pub fn report(running: &Running, name: &str) -> BackendReport {
    running.edge.backends().into_iter().find(|report| &*report.name == name).unwrap()
}
