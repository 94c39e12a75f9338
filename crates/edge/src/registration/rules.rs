//! Rules of registration: the addresses that may register (fault 47).

use std::net::{IpAddr, Ipv4Addr};

use tidegate_algorithms::document::{DocumentReader, shown};
use tidegate_net::proxied::Network;

/// Which addresses may register.
#[derive(Clone, Debug, Default)]
pub struct AddressRules {
    /// The networks that they must be of; empty: any.
    pub allowed: Vec<Network>,
    /// Whether this machine's own are good.
    pub allows_loopback: bool,
}

impl AddressRules {
    /// Why `address` may not register. Where one of version 6 leads to one of version 4, that may not either.
    #[must_use]
    pub fn objection(&self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        let inner = embedded(address).and_then(|inner| self.never(inner));
        inner.or_else(|| self.never(address)).or_else(|| {
            let is_listed =
                self.allowed.is_empty() || self.allowed.iter().any(|network| network.contains(address));
            (!is_listed).then_some("is in no network of edge.api_allowed")
        })
    }

    /// Why `address` may not register, whatever the list has.
    fn never(&self, address: IpAddr) -> Option<&'static str> {
        let is_link_local = match address {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        let is_zero = matches!(address, IpAddr::V4(ip) if ip.octets()[0] == 0);
        if address.is_unspecified() || is_zero {
            Some("is no machine's address")
        } else if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            Some("is not one machine's address")
        } else if is_link_local {
            Some("is a link-local address")
        } else if address.is_loopback() && !self.allows_loopback {
            Some("is a loopback address, and the API does not listen on one")
        } else {
            None
        }
    }

    /// Reads an address that may register.
    pub(super) fn read(&self, reader: &mut DocumentReader<'_>, field: &str) -> Option<IpAddr> {
        let accepted = "the backend's IP address, of a network that may register";
        let Some(value) = reader.field(field) else {
            reader.mistake(field, "is missing", accepted);
            return None;
        };
        let Some(address) = value.as_str().and_then(|text| text.parse::<IpAddr>().ok()) else {
            reader.mistake(field, format!("is {}", shown(value)), accepted);
            return None;
        };
        if let Some(objection) = self.objection(address) {
            reader.mistake(field, format!("is {address}, which {objection}"), accepted);
            return None;
        }
        Some(address.to_canonical())
    }
}

/// The address of version 4 that one of version 6 stands for where networks translate: IPv4-compatible (RFC 4291,
/// 2.5.5.1), NAT64 (RFC 6052), 6to4 (RFC 3056).
fn embedded(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    if address.is_loopback() {
        return None;
    }
    let bits = match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [high, low],
        [0x2002, high, low, ..] => [high, low],
        _ => return None,
    };
    let [[a, b], [c, d]] = bits.map(u16::to_be_bytes);
    Some(Ipv4Addr::new(a, b, c, d).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_47_only_addresses_of_the_list_that_are_one_machines_may_register() {
        let open = AddressRules::default();
        let own = AddressRules { allows_loopback: true, ..AddressRules::default() };
        let listed =
            AddressRules { allowed: vec!["10.0.0.0/8".parse().expect("a network")], allows_loopback: true };
        for (address, expected) in [
            ("10.1.2.3", [true, true, true]),
            ("192.0.2.1", [true, true, false]),
            ("2001:db8::1", [true, true, false]),
            ("::ffff:10.1.2.3", [true, true, true]),
            ("127.0.0.1", [false, true, false]),
            ("::1", [false, true, false]),
            ("::ffff:127.0.0.1", [false, true, false]),
            ("169.254.169.254", [false, false, false]),
            ("::ffff:169.254.169.254", [false, false, false]),
            ("fe80::1", [false, false, false]),
            ("0.0.0.0", [false, false, false]),
            ("0.1.2.3", [false, false, false]),
            ("::", [false, false, false]),
            ("224.0.0.1", [false, false, false]),
            ("ff02::1", [false, false, false]),
            ("255.255.255.255", [false, false, false]),
            ("::127.0.0.1", [false, true, false]),
            ("64:ff9b::127.0.0.1", [false, true, false]),
            ("64:ff9b::169.254.169.254", [false, false, false]),
            ("2002:a9fe:a9fe::1", [false, false, false]),
            ("64:ff9b::192.0.2.1", [true, true, false]),
        ] {
            let parsed = address.parse().expect("an address");
            let may = [&open, &own, &listed].map(|rules| rules.objection(parsed).is_none());
            assert_eq!(may, expected, "{address}");
        }
    }
}
