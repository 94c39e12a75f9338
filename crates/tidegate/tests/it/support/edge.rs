//! What tests of the edge have in common: backends, clients at addresses of their own, and looks at the metrics.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tidegate_net::clock::monotonic;

use super::{Tidegate, agent};

/// Longer than any pause of a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A free address of this machine.
pub fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()))
}

/// A backend that sends back what comes.
pub fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    echo_at(listener);
    address
}

/// As [`echo`], on a listener.
pub fn echo_at(listener: TcpListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = stream.try_clone().unwrap();
                drop(std::io::copy(&mut reader, &mut stream));
                drop(stream.shutdown(Shutdown::Write));
            });
        }
    });
}

/// A connection from an address of this machine.
pub fn connect_from(source: &str, edge: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(source.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&edge.into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether what is sent to [`echo`] comes back.
pub fn answers(stream: &mut TcpStream) -> bool {
    let mut back = [0; 4];
    stream.write_all(b"ping").is_ok() && stream.read_exact(&mut back).is_ok() && &back == b"ping"
}

/// A connection, and whether it is served.
pub fn visit(source: &str, edge: SocketAddr) -> (TcpStream, bool) {
    let mut stream = connect_from(source, edge);
    let is_served = answers(&mut stream);
    (stream, is_served)
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = monotonic();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The reply of a process's own pages.
pub fn json(service: &Tidegate, path: &str) -> Value {
    agent().get(service.url(path)).call().unwrap().body_mut().read_json().unwrap()
}

/// The value of a series on the metrics page.
pub fn metric(service: &Tidegate, series: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().unwrap()
}
