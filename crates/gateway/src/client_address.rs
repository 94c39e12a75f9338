//! Whose request it is: the peer, or what trusted proxies in front of it say (fault 48).

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;

/// The client's address: `trusted_hops` entries from the right of `X-Forwarded-For`, of which the peer
/// itself is the first proxy; the peer's own where there are none, or they are no addresses.
pub(crate) fn client_address(fields: &HeaderMap, peer: IpAddr, trusted_hops: usize) -> IpAddr {
    let forwarded = || {
        let back = trusted_hops.checked_sub(1)?;
        let lines = fields.get_all("x-forwarded-for").into_iter().rev();
        let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        let entry = std::str::from_utf8(entries.nth(back)?).ok()?;
        entry.trim().parse::<IpAddr>().ok()
    };
    forwarded().unwrap_or(peer).to_canonical()
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
