//! The header that a proxy of TCP connections writes in front of each with its client's address (PROXY protocol,
//! versions 1 and 2, as HAProxy's `proxy-protocol.txt` has them).
//!
//! | begins with | then | most bytes |
//! |---|---|---|
//! | `PROXY ` | a line of text to CR LF | 107 |
//! | 12 bytes that no other protocol has | 4 bytes, and as many as the last two of these say | 16 + 65,535 |
//!
//! A header without an address of TCP, which proxies write for checks of their own and for clients that reached them otherwise,
//! as by a Unix socket, stands for the proxy itself. What
//! follows the addresses in version 2 is passed over, and need not be kept. Anything else is malformed: a header is never guessed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Bytes that tell the versions apart.
pub const OPENING: usize = 12;
/// Most bytes of version 1, its CR LF included.
pub const MAX_LINE: usize = 107;
/// Bytes of version 2 behind its opening that are always there.
pub const FIXED: usize = 4;
/// Most bytes behind those that matter: two addresses and ports. What follows is what a proxy adds.
pub const MAX_ADDRESSES: usize = 36;

const SIGNATURE: [u8; OPENING] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes that are no such header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the connection does not begin with a header of the PROXY protocol")]
pub struct MalformedProxyHeader;

/// Which version begins so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    One,
    /// Binary.
    Two,
}

/// The version that a connection begins with.
///
/// # Errors
/// When it is neither.
pub fn version(opening: &[u8; OPENING]) -> Result<ProxyVersion, MalformedProxyHeader> {
    match opening {
        _ if *opening == SIGNATURE => Ok(ProxyVersion::Two),
        _ if opening.starts_with(b"PROXY ") => Ok(ProxyVersion::One),
        _ => Err(MalformedProxyHeader),
    }
}

/// The client's address in a line of version 1, CR LF included; `None`: the proxy's own.
///
/// # Errors
/// When it is no such line.
pub fn line(line: &[u8]) -> Result<Option<SocketAddr>, MalformedProxyHeader> {
    let text = line.strip_suffix(b"\r\n").filter(|_| line.len() <= MAX_LINE).ok_or(MalformedProxyHeader)?;
    let text = std::str::from_utf8(text).map_err(|_| MalformedProxyHeader)?;
    let words: Vec<&str> = text.split(' ').collect();
    let (is_v6, [source, destination, source_port, destination_port]) = match words[..] {
        ["PROXY", "UNKNOWN", ..] => return Ok(None),
        ["PROXY", "TCP4", ref rest @ ..] => {
            (false, <[&str; 4]>::try_from(rest).map_err(|_| MalformedProxyHeader)?)
        }
        ["PROXY", "TCP6", ref rest @ ..] => {
            (true, <[&str; 4]>::try_from(rest).map_err(|_| MalformedProxyHeader)?)
        }
        _ => return Err(MalformedProxyHeader),
    };
    let address = |text: &str| {
        text.parse().ok().filter(|ip: &IpAddr| ip.is_ipv6() == is_v6).ok_or(MalformedProxyHeader)
    };
    let port = |text: &str| {
        // `parse` alone would take a sign.
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_digits).ok_or(MalformedProxyHeader)
    };
    address(destination)?;
    port(destination_port)?;
    Ok(Some(SocketAddr::new(address(source)?, port(source_port)?)))
}

/// How many bytes follow the fixed ones of version 2.
///
/// # Errors
/// When they are of another version.
pub fn rest_length(fixed: [u8; FIXED]) -> Result<usize, MalformedProxyHeader> {
    let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if fixed[0] >> 4 == 2 { Ok(length) } else { Err(MalformedProxyHeader) }
}

/// The client's address in a header of version 2, of which `rest` are the first bytes behind the fixed ones: all, or
/// [`MAX_ADDRESSES`] of them. `None`: the proxy's own.
///
/// # Errors
/// When it is of no known form, or its addresses are not whole.
pub fn binary(fixed: [u8; FIXED], rest: &[u8]) -> Result<Option<SocketAddr>, MalformedProxyHeader> {
    let [command, family, ..] = fixed;
    if rest.len() != rest_length(fixed)?.min(MAX_ADDRESSES) {
        return Err(MalformedProxyHeader);
    }
    match (command & 0x0f, family) {
        // The proxy speaks for itself, whatever else it says.
        (0, _) => Ok(None),
        (1, 0x11) => {
            let (ip, rest) = rest.split_first_chunk::<4>().ok_or(MalformedProxyHeader)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(*ip).into(), source_port::<4>(rest)?)))
        }
        (1, 0x21) => {
            let (ip, rest) = rest.split_first_chunk::<16>().ok_or(MalformedProxyHeader)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(*ip).into(), source_port::<16>(rest)?)))
        }
        // No address, or an address that is not of TCP, which counts as absent (2.2).
        (1, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => Ok(None),
        _ => Err(MalformedProxyHeader),
    }
}

/// The header of a connection that is the proxy's own, as for a check.
#[must_use]
pub fn own(of: ProxyVersion) -> &'static [u8] {
    match of {
        ProxyVersion::One => b"PROXY UNKNOWN\r\n",
        ProxyVersion::Two => b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
    }
}

/// The header that says that a connection is from `client` and was made to `server`. Addresses of different families
/// are both written as IPv6 ones.
#[must_use]
pub fn header(of: ProxyVersion, client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let [client, server] = [client, server].map(|it| SocketAddr::new(it.ip().to_canonical(), it.port()));
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let ports = [client.port(), server.port()];
    let mut addresses = Vec::new();
    let (name, family) = match (client.ip(), server.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            addresses.extend([from, to].iter().flat_map(Ipv4Addr::octets));
            ("TCP4", 0x11)
        }
        (from, to) => {
            addresses.extend([from, to].into_iter().flat_map(|ip| v6(ip).octets()));
            ("TCP6", 0x21)
        }
    };
    match of {
        ProxyVersion::One if name == "TCP4" => {
            format!("PROXY TCP4 {} {} {} {}\r\n", client.ip(), server.ip(), ports[0], ports[1]).into_bytes()
        }
        ProxyVersion::One => {
            let (from, to) = (v6(client.ip()), v6(server.ip()));
            format!("PROXY TCP6 {from} {to} {} {}\r\n", ports[0], ports[1]).into_bytes()
        }
        ProxyVersion::Two => {
            addresses.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
            // Invariant: 12 or 36 bytes.
            let length = u16::try_from(addresses.len()).unwrap_or(u16::MAX).to_be_bytes();
            [&SIGNATURE[..], &[0x21, family], &length, &addresses].concat()
        }
    }
}

/// The first port behind the second address, whose place the second port is behind.
fn source_port<const ADDRESS: usize>(rest: &[u8]) -> Result<u16, MalformedProxyHeader> {
    let (_, ports) = rest.split_first_chunk::<ADDRESS>().ok_or(MalformedProxyHeader)?;
    let ([high, low, ..], _) = ports.split_first_chunk::<4>().ok_or(MalformedProxyHeader)?;
    Ok(u16::from_be_bytes([*high, *low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        for (text, address) in [
            ("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", Some("192.0.2.1:56324")),
            ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", Some("[2001:db8::1]:1")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        ] {
            let read = line(text.as_bytes()).map(|read| read.map(|address| address.to_string()));
            assert_eq!(read, Ok(address.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (client, server) in [
            ("192.0.2.1:56324", "192.0.2.2:443"),
            ("[2001:db8::1]:1", "[::1]:2"),
            ("192.0.2.1:7", "[2001:db8::2]:8"),
            ("[::ffff:192.0.2.1]:9", "192.0.2.2:10"),
        ] {
            let [from, to] = [client, server].map(|text| text.parse::<SocketAddr>().expect("an address"));
            let same = |read: Option<SocketAddr>| {
                let read = read.expect("an address");
                (read.ip().to_canonical(), read.port()) == (from.ip().to_canonical(), from.port())
            };
            let text = header(ProxyVersion::One, from, to);
            assert!(text.len() <= MAX_LINE && same(line(&text).expect("a line")), "{client}");
            let bytes = header(ProxyVersion::Two, from, to);
            let (opening, rest) = bytes.split_first_chunk().expect("an opening");
            assert_eq!(version(opening), Ok(ProxyVersion::Two));
            let (fixed, rest) = rest.split_first_chunk().expect("four bytes");
            assert!(same(binary(*fixed, rest).expect("a header")), "{client}");
        }
    }

    #[test]
    fn a_proxys_own_header_is_nobodys() {
        assert_eq!(line(own(ProxyVersion::One)), Ok(None));
        let (opening, rest) = own(ProxyVersion::Two).split_first_chunk().expect("an opening");
        assert_eq!(version(opening), Ok(ProxyVersion::Two));
        let (fixed, rest) = rest.split_first_chunk().expect("four bytes");
        assert_eq!(binary(*fixed, rest), Ok(None));
    }

    #[test]
    fn fault_43_lines_in_doubt_are_malformed() {
        for text in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 5\r\n",
            "PROXY TCP4 192.0.2.1  192.0.2.2 56324 443\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 x 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            &format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)),
        ] {
            assert_eq!(line(text.as_bytes()), Err(MalformedProxyHeader), "{text}");
        }
    }

    #[test]
    fn binary_headers_are_read() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0xdc, 4, 1, 187];
        assert_eq!(version(&SIGNATURE), Ok(ProxyVersion::Two));
        assert_eq!(
            binary([0x21, 0x11, 0, 12], &v4),
            Ok(Some("192.0.2.1:56324".parse().expect("an address")))
        );
        let v6 = [[0; 15].as_slice(), &[1], &[0; 16], &[0, 7, 0, 8]].concat();
        assert_eq!(binary([0x21, 0x21, 0, 36], &v6), Ok(Some("[::1]:7".parse().expect("an address"))));
        // Behind the addresses is whatever the proxy adds.
        let more = [&v4[..], &[4, 0, 1, 0]].concat();
        assert!(matches!(binary([0x21, 0x11, 0, 16], &more), Ok(Some(_))));
        // However much that is, nothing of it need be kept.
        let start = [&v4[..], &[0; 24]].concat();
        assert!(matches!(binary([0x21, 0x11, 0xff, 0xff], &start), Ok(Some(_))));
        assert_eq!(binary([0x20, 0, 0, 0], &[]), Ok(None));
        assert_eq!(binary([0x21, 0, 0, 0], &[]), Ok(None));
        // Of a client that reached the proxy by UDP or by a Unix socket.
        for family in [0x12, 0x22, 0x31, 0x32] {
            assert_eq!(binary([0x21, family, 0, 216], &[b'/'; MAX_ADDRESSES]), Ok(None), "{family}");
        }
    }

    #[test]
    fn fault_43_binary_headers_in_doubt_are_malformed() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0xdc, 4, 1, 187];
        for (fixed, rest) in [
            ([0x11, 0x11, 0, 12], &v4[..]),
            ([0x31, 0x11, 0, 12], &v4),
            ([0x22, 0x11, 0, 12], &v4),
            ([0x21, 0x10, 0, 12], &v4),
            ([0x21, 0x01, 0, 12], &v4),
            ([0x21, 0x33, 0, 12], &v4),
            ([0x21, 0x41, 0, 12], &v4),
            ([0x21, 0x21, 0, 12], &v4),
            ([0x21, 0x11, 0, 11], &v4[..11]),
            ([0x21, 0x11, 0, 13], &v4),
            ([0x21, 0x11, 4, 1], &[0; MAX_ADDRESSES - 1]),
            ([0x21, 0x11, 4, 1], &[0; MAX_ADDRESSES + 1]),
        ] {
            assert_eq!(binary(fixed, rest), Err(MalformedProxyHeader), "{fixed:?}");
        }
        assert_eq!(version(b"GET / HTTP/1"), Err(MalformedProxyHeader));
    }
}
