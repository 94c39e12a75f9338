//! A proxy in front that nothing trusts: all of its clients have its address, and share its limits. The log says so, once.
//!
//! Whoever connects may write `X-Forwarded-For`, so only a peer of this machine or of a private network is taken for a proxy. A
//! client of the open network that writes it changes nothing, and nothing is said of it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the log has it already.
#[derive(Debug, Default)]
pub struct UntrustedProxy {
    is_said: AtomicBool,
}

impl UntrustedProxy {
    /// Takes note of a request from `peer` whose field is not believed, as `setting` has it. `has_field`: whether it states a
    /// client's address.
    pub fn see(&self, peer: IpAddr, setting: &str, has_field: impl FnOnce() -> bool) {
        if self.is_said.load(Relaxed) || !is_near(peer) || !has_field() || self.is_said.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            proxy = %peer.to_canonical(),
            "a proxy in front states whose requests these are, and is not believed: all of its clients share its address, \
             and its limits. {setting} says how many proxies to believe"
        );
    }
}

/// Whether an address is of this machine or of a private network.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            // 100.64.0.0/10 is what providers and clouds use inside (RFC 6598).
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || first == 100 && second & 0xc0 == 64
        }
        // fc00::/7 and fe80::/10.
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.segments()[0] & 0xfe00 == 0xfc00 || ip.segments()[0] & 0xffc0 == 0xfe80
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_near_and_clients_of_the_open_network_are_not() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.18.0.1", true),
            ("192.168.0.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", true),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("::ffff:10.0.0.1", true),
            ("203.0.113.7", false),
            ("100.128.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_near(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn the_field_is_not_looked_for_once_it_is_said() {
        let seen = UntrustedProxy::default();
        let near = "10.0.0.1".parse().unwrap();
        seen.see(near, "hops", || false);
        assert!(!seen.is_said.load(Relaxed));
        seen.see("203.0.113.7".parse().unwrap(), "hops", || true);
        assert!(!seen.is_said.load(Relaxed));
        seen.see(near, "hops", || true);
        assert!(seen.is_said.load(Relaxed));
        seen.see(near, "hops", || panic!("it is said"));
    }
}
