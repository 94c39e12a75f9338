//! Addresses of this edge itself: a connection that is passed on to one of them would come back, and be passed on again,
//! until everything is full.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use tidegate_upstream::backend::{Host, Target};
use tokio::net::TcpStream;

use crate::config::ListenerConfig;

/// A listener that has a socket, or connections still.
#[derive(Clone, Debug)]
pub(crate) struct BoundListener {
    /// Where it is, with the real port.
    pub(crate) address: SocketAddr,
    /// As it was bound.
    pub(crate) config: Arc<ListenerConfig>,
    /// Whether it accepts connections.
    pub(crate) is_open: bool,
}

/// Where those of them are that accept connections.
pub(crate) fn open_addresses(bound: &[BoundListener]) -> impl Iterator<Item = SocketAddr> {
    bound.iter().filter(|bound| bound.is_open).map(|bound| bound.address)
}

/// Whether `target` is where one of `listening` listens. Of a name that is known only when it is connected to.
#[must_use]
pub fn is_own(target: &Target, mut listening: impl Iterator<Item = SocketAddr>) -> bool {
    let Host::Address(ip) = target.host else { return false };
    let ip = ip.to_canonical();
    listening.any(|own| own.port() == target.port && (is_at(own, ip) || is_on_all(own, ip) && is_local(ip)))
}

/// Whether a connection that was made has one of `listening` at its other end.
pub(crate) fn leads_back(stream: &TcpStream, mut listening: impl Iterator<Item = SocketAddr>) -> bool {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
    let (ip, from) = (peer.ip().to_canonical(), local.ip().to_canonical());
    // What is connected to on this machine is connected to from the same address, or on loopback.
    let is_here = ip.is_loopback() || ip == from;
    listening.any(|own| own.port() == peer.port() && (is_at(own, ip) || is_on_all(own, ip) && is_here))
}

fn is_at(own: SocketAddr, ip: IpAddr) -> bool {
    own.ip().to_canonical() == ip
}

/// Whether a listener on all addresses hears `ip`, too: one of version 6 hears that version alone.
fn is_on_all(own: SocketAddr, ip: IpAddr) -> bool {
    own.ip().is_unspecified() && own.is_ipv6() == ip.is_ipv6()
}

/// Whether it is an address of this machine: others cannot be bound.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::address;

    #[test]
    fn an_own_address_is_one_that_a_listener_has_or_hears() {
        for (listening, target, is) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("10.0.0.1:80", "10.0.0.1:80", true),
            ("0.0.0.0:80", "127.3.2.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("0.0.0.0:80", "192.0.2.7:80", false),
            ("[::]:80", "127.0.0.1:80", false),
            ("[::]:80", "[::1]:80", true),
            ("[::1]:80", "[::ffff:127.0.0.1]:80", false),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:80", "localhost:80", false),
        ] {
            let own: SocketAddr = listening.parse().expect("an address");
            let target = address(target).expect("a target");
            assert_eq!(is_own(&target, [own].into_iter()), is, "{listening} {target}");
        }
    }
}
