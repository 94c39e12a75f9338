//! The address of a request's client: the peer's, or what trusted proxies in front of it say (fault 48).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;

/// The client's address: the entry `trusted_hops` from the right of `X-Forwarded-For`, where the peer itself is the
/// first proxy; the peer's own address if there is no such entry, or it is no address.
pub(crate) fn client_address(fields: &HeaderMap, peer: IpAddr, trusted_hops: usize) -> IpAddr {
    let forwarded = || {
        let back = trusted_hops.checked_sub(1)?;
        let lines = fields.get_all("x-forwarded-for").into_iter().rev();
        let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        address(entries.nth(back)?.trim_ascii())
    };
    forwarded().unwrap_or(peer).to_canonical()
}

/// An address as proxies write it: alone, in brackets, or with a port.
pub(crate) fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// The address as limits count it: one of version 6 by its network of 64 bits, which one client owns.
pub(crate) fn as_attribute(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            format!("{}/64", Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_48_only_what_trusted_proxies_appended_is_believed() {
        for (lines, hops, expected) in [
            (&["6.6.6.6"][..], 0, "10.0.0.1"),
            (&["6.6.6.6, 192.0.2.7"], 1, "192.0.2.7"),
            (&["6.6.6.6, 192.0.2.7, 10.0.0.2"], 2, "192.0.2.7"),
            (&["6.6.6.6", "192.0.2.7,10.0.0.2"], 2, "192.0.2.7"),
            (&["192.0.2.7", "10.0.0.2"], 2, "192.0.2.7"),
            // Fewer entries than there must be, or no address: only the peer is known.
            (&["192.0.2.7"], 2, "10.0.0.1"),
            (&[], 1, "10.0.0.1"),
            (&["6.6.6.6, unknown"], 1, "10.0.0.1"),
            (&["6.6.6.6,"], 1, "10.0.0.1"),
            (&["6.6.6.6, ::ffff:192.0.2.7"], 1, "192.0.2.7"),
            (&["2001:db8::1"], 1, "2001:db8::1"),
            // With the client's port, as some proxies write it: its clients are not all one.
            (&["6.6.6.6, 192.0.2.7:4711"], 1, "192.0.2.7"),
            (&["[2001:db8::1]:4711"], 1, "2001:db8::1"),
            (&["[2001:db8::1]"], 1, "2001:db8::1"),
            (&["192.0.2.7:x"], 1, "10.0.0.1"),
        ] {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append("x-forwarded-for", line.parse().expect("a value"));
            }
            let peer = "10.0.0.1".parse().expect("an address");
            assert_eq!(client_address(&fields, peer, hops).to_string(), expected, "{lines:?} {hops}");
        }
    }

    #[test]
    fn fault_48_addresses_of_one_network_are_one_client() {
        for (address, client) in [
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
            ("2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"),
            ("2001:db8:0:2::1", "2001:db8:0:2::/64"),
        ] {
            assert_eq!(as_attribute(address.parse().expect("an address")), client);
        }
    }
}
