//! Listeners behind a proxy of TCP connections, which states the client's address of each (PROXY protocol).
//!
//! Every connection of such a listener comes from a proxy that is listed and begins with the header, within
//! [`PATIENCE`]; any other is closed (fault 43). Nothing is guessed: a listener either has proxies in front of it,
//! and then only those, or the header is no part of what is spoken there.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tidegate_wire::proxy_protocol::{
    FIXED, MAX_ADDRESSES, MAX_LINE, MalformedProxyHeader, OPENING, ProxyVersion, binary, line, rest_length,
    version,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// How long the header may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The proxies in front of a listener.
#[derive(Clone, Debug)]
pub struct Proxied {
    trusted: Arc<[Network]>,
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text that is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is no address, nor an address with a number of bits: 10.0.0.0/8")]
pub struct NotANetwork;

/// Why a connection has no valid PROXY header.
#[derive(Debug, Error)]
pub enum Unproxied {
    /// It comes from somewhere else.
    #[error("the peer is not one of the listed proxies")]
    Untrusted,
    /// The header took too long.
    #[error("the header did not arrive in time")]
    TooSlow,
    /// There is none.
    #[error(transparent)]
    Malformed(#[from] MalformedProxyHeader),
    /// The connection ended before its end.
    #[error("the connection broke off in the header: {0}")]
    Broken(#[from] io::Error),
}

impl Network {
    /// An address in it.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits its addresses have in common.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether the address is in it. An IPv4 address that is written as IPv6 (`::ffff:192.0.2.1`) counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| NotANetwork)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(NotANetwork) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

impl Proxied {
    /// Connections come from these proxies alone.
    #[must_use]
    pub fn by(trusted: Vec<Network>) -> Self {
        Self { trusted: trusted.into() }
    }

    /// Reads the header of a connection from `peer`, and no byte behind it: the client's address, or the proxy's
    /// own if the connection is its own.
    ///
    /// # Errors
    /// When the peer is no proxy, or no whole header came in time.
    pub async fn read<S>(&self, stream: &mut S, peer: SocketAddr) -> Result<SocketAddr, Unproxied>
    where
        S: AsyncRead + Unpin,
    {
        if !self.trusted.iter().any(|network| network.contains(peer.ip())) {
            return Err(Unproxied::Untrusted);
        }
        let client = timeout(PATIENCE, header(stream)).await.unwrap_or(Err(Unproxied::TooSlow))?;
        Ok(client.unwrap_or(peer))
    }
}

async fn header<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Option<SocketAddr>, Unproxied> {
    let mut opening = [0; OPENING];
    stream.read_exact(&mut opening).await?;
    match version(&opening)? {
        ProxyVersion::One => {
            let mut text = opening.to_vec();
            // By the byte, for what follows is the client's.
            while !text.ends_with(b"\n") {
                if text.len() == MAX_LINE {
                    return Err(MalformedProxyHeader.into());
                }
                text.push(stream.read_u8().await?);
            }
            Ok(line(&text)?)
        }
        ProxyVersion::Two => {
            let mut fixed = [0; FIXED];
            stream.read_exact(&mut fixed).await?;
            let length = rest_length(fixed)?;
            let mut start = [0; MAX_ADDRESSES];
            let (start, _) = start.split_at_mut(length.min(MAX_ADDRESSES));
            stream.read_exact(start).await?;
            let client = binary(fixed, start)?;
            skip(stream, length - start.len()).await?;
            Ok(client)
        }
    }
}

/// Reads `count` bytes that say nothing here: certificates, names and whatever else a proxy adds.
async fn skip<S: AsyncRead + Unpin>(stream: &mut S, mut count: usize) -> io::Result<()> {
    let mut passed_over = [0; 512];
    while count > 0 {
        let most = count.min(passed_over.len());
        stream.read_exact(&mut passed_over[..most]).await?;
        count -= most;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn fault_43_fields_of_any_length_are_passed_over_and_no_byte_behind_them() {
        let proxied = Proxied::by(vec!["127.0.0.1".parse().expect("a network")]);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        for fields in [0_u16, 24, 25, 1_025, 4_096, 65_523] {
            let fixed = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &(12 + fields).to_be_bytes()].concat();
            let addresses = [192, 0, 2, 1, 10, 0, 0, 1, 0, 7, 1, 187];
            let bytes = [&fixed[..], &addresses, &vec![b'f'; usize::from(fields)], b"hello"].concat();
            let mut stream = &bytes[..];
            let client = proxied.read(&mut stream, peer).await.expect("a header");
            assert_eq!((client.to_string().as_str(), stream), ("192.0.2.1:7", &b"hello"[..]), "{fields}");
        }
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.1.2.3", "11.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Network = network.parse().expect("a network");
            assert!(parsed.contains(inside.parse().expect("an address")), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().expect("an address")), "{network} {outside}");
        }
        let everyone: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(everyone.contains("192.0.2.1".parse().expect("an address")));
        for text in ["", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }
}
