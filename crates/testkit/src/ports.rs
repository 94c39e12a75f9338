//! TCP ports for the servers of tests: on the loopback address, below the usual ephemeral range, each given once.
//!
//! That a port is free says too little: a server of another test, which runs beside this one, may not have bound it yet. So a
//! process claims each port that it gives, by a socket of an abstract name (unix(7)): names, like ports, belong to a network
//! namespace, and the kernel takes them back when the process ends, however it ends.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is given: below 32768, where Linux begins with the ports of clients.
const PORTS: Range<u16> = 20_000..32_000;

/// What this process has claimed.
static CLAIMED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A TCP port that nobody listens on, and that no other test is given while this process lives.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    free_ports(1).start
}

/// `count` such ports in a row.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn free_ports(count: u16) -> Range<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each process begins elsewhere, so that it seldom meets a port of another.
    let offset = u16::try_from(process::id() % 1_200).unwrap_or(0) * 10;
    let all = PORTS.end - PORTS.start;
    for _ in PORTS {
        let first = PORTS.start + (offset + NEXT.fetch_add(count, Ordering::Relaxed) % all) % all;
        let ports = first..first + count;
        if ports.end <= PORTS.end
            && let Some(claims) = ports.clone().map(claim).collect::<Option<Vec<_>>>()
        {
            CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).extend(claims);
            return ports;
        }
    }
    panic!("no {count} free ports in a row between {} and {}", PORTS.start, PORTS.end);
}

/// Claims a port until what is returned is dropped; `None` if it is claimed or somebody listens on it.
fn claim(port: u16) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("tidegate-test-port-{port}")).expect("a short name");
    let claim = UnixDatagram::bind_addr(&name).ok()?;
    TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_though_nobody_listens_on_it() {
        let ports = free_ports(3);
        assert_eq!(ports.len(), 3);
        assert!(ports.clone().all(|port| claim(port).is_none()));
        assert!(!ports.contains(&free_port()));
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_given() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(claim(listener.local_addr().unwrap().port()).is_none());
    }
}
