//! Fault 36: without free descriptors the accept loop survives, backs off and recovers.
//!
//! The only test of its binary, because it lowers the limit of its whole process.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "it/common/mod.rs"]
mod common;

use common::{Options, TestServer, eventually, request};
use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

#[test]
fn fault_36_the_accept_loop_survives_emfile() {
    const WAITING: usize = 8;
    let server = TestServer::start(Options::default());
    let mut before = server.connect();
    assert!(request(&mut before, "/").unwrap().starts_with("HTTP/1.1 200"));

    let waiting: Vec<_> =
        (0..WAITING).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = getrlimit(Resource::Nofile);
    let mut low = limit;
    // The listing's own descriptor is closed by now, so none is left.
    low.current = Some(open - 1);
    setrlimit(Resource::Nofile, low).unwrap();

    for socket in &waiting {
        socket.connect(&server.address.into()).unwrap();
    }
    eventually("accepting fails for want of descriptors", || server.stats.totals().accept_exhausted >= 4);
    assert!(request(&mut before, "/").unwrap().starts_with("HTTP/1.1 200"), "open connections are served");
    let open = server.drain.connections();
    assert!(open < WAITING, "{open} connections were accepted without descriptors");

    setrlimit(Resource::Nofile, limit).unwrap();
    for socket in waiting {
        socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
        assert!(request(&mut std::net::TcpStream::from(socket), "/").unwrap().starts_with("HTTP/1.1 200"));
    }
}
