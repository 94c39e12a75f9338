//! The host of a request: one form to route by.

use std::net::Ipv6Addr;

/// A host in lower case, without its port and without a final dot; an address of version 6 as RFC 5952 writes it.
pub(crate) fn bare_host(host: &str) -> String {
    let end = match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => colon,
        _ => host.len(),
    };
    let host = &host[..end];
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')?.parse::<Ipv6Addr>().ok());
    match address {
        Some(address) => format!("[{address}]"),
        None => host.trim_end_matches('.').to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_port_case_and_final_dot_and_addresses_have_one_form() {
        for (host, bare) in [
            ("A.Example:80", "a.example"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("[0:0::0001]:80", "[::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[::ffff:192.0.2.1]", "[::ffff:192.0.2.1]"),
            ("[v1.x]", "[v1.x]"),
            ("a.", "a"),
            ("", ""),
        ] {
            assert_eq!(bare_host(host), bare);
        }
    }
}
