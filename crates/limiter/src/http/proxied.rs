//! Fields in which a proxy describes the request that it asks about, as far as they are believed (faults 48 and 59).
//!
//! A proxy passes its client's header fields on along with its own, so a field says nothing about who
//! wrote it. Only the pair that is configured is looked at, and both pairs at once are refused: a proxy
//! sets one of them, so the other is its client's, and a proxy that sets the pair which is not configured
//! is a mistake that should show.
//!
//! The client's address is the N-th entry of `X-Forwarded-For` from the right, N being the number of
//! proxies that are trusted to append to it.

use std::net::{IpAddr, SocketAddr};

use crate::sources::{RequestFields, SourceError, header};

/// The header fields by which a proxy says which request it asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeaders {
    /// Nothing is believed.
    #[default]
    None,
    /// `X-Original-URI` and `X-Original-Method`, as in nginx's documentation.
    Original,
    /// `X-Forwarded-Uri` and `X-Forwarded-Method`, which Traefik and Caddy set.
    Forwarded,
}

const ORIGINAL: [&str; 2] = ["x-original-uri", "x-original-method"];
const FORWARDED: [&str; 2] = ["x-forwarded-uri", "x-forwarded-method"];

/// The request that a proxy asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OriginalRequest<'h> {
    /// Its target: a path, perhaps with a query.
    pub(super) target: Option<&'h [u8]>,
    /// Its method.
    pub(super) method: Option<&'h [u8]>,
}

impl<'h> OriginalRequest<'h> {
    pub(super) fn read(headers: &'h impl RequestFields, believed: ProxyHeaders) -> Result<Self, SourceError> {
        let has = |pair: [&str; 2]| pair.iter().any(|name| headers.values(name).next().is_some());
        if has(ORIGINAL) && has(FORWARDED) {
            return Err(SourceError::TwoFamilies);
        }
        let [target, method] = match believed {
            ProxyHeaders::None => return Ok(Self::default()),
            ProxyHeaders::Original => ORIGINAL,
            ProxyHeaders::Forwarded => FORWARDED,
        };
        Ok(Self { target: header(headers, target)?, method: header(headers, method)? })
    }
}

/// The address of the client: of the peer, unless proxies in between are trusted. A request that came
/// by fewer proxies than are trusted is its peer's.
pub(super) fn client_address(
    headers: &impl RequestFields,
    peer: IpAddr,
    trusted_hops: usize,
) -> Result<IpAddr, SourceError> {
    let Some(hops_before) = trusted_hops.checked_sub(1) else { return Ok(peer) };
    let entries = headers.values("x-forwarded-for").flat_map(|field| field.split(|byte| *byte == b','));
    match entries.rev().nth(hops_before) {
        None => Ok(peer),
        Some(entry) => address(entry.trim_ascii()).ok_or(SourceError::NotAnAddress),
    }
}

/// An address as proxies write it: alone, in brackets, or with a port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn client(forwarded: &[&[u8]], trusted_hops: usize) -> Result<String, SourceError> {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(value).unwrap());
        }
        client_address(&headers, "10.0.0.1".parse().unwrap(), trusted_hops).map(|address| address.to_string())
    }

    fn found(forwarded: &[&[u8]], trusted_hops: usize) -> String {
        client(forwarded, trusted_hops).unwrap()
    }

    #[test]
    fn fault_48_forwarded_for_is_believed_only_as_far_as_hops_are_trusted() {
        let spoofed: [&[u8]; 2] = [b"6.6.6.6, 7.7.7.7", b"8.8.8.8"];
        assert_eq!(found(&spoofed, 0), "10.0.0.1");
        assert_eq!(found(&spoofed, 1), "8.8.8.8");
        assert_eq!(found(&spoofed, 2), "7.7.7.7");
        assert_eq!(found(&spoofed, 9), "10.0.0.1");
    }

    #[test]
    fn fault_48_bytes_that_a_client_writes_before_a_trusted_entry_do_not_hide_it() {
        assert_eq!(found(&[b"\xff\xfe, 7.7.7.7"], 1), "7.7.7.7");
        assert_eq!(found(&[b"\xff", b"7.7.7.7"], 1), "7.7.7.7");
        assert_eq!(found(&[b"\xff, 7.7.7.7, 8.8.8.8"], 2), "7.7.7.7");
    }

    #[test]
    fn fault_48_a_trusted_entry_that_is_no_address_is_refused() {
        for entry in [&b"nonsense"[..], b"7.7.7.7, \xff", b"7.7.7.7,", b"", b"[::1", b"1.2.3.4:x"] {
            assert_eq!(client(&[entry], 1), Err(SourceError::NotAnAddress), "{entry:?}");
        }
        for (entry, address) in [
            (&b"7.7.7.7:81"[..], "7.7.7.7"),
            (b"[2001:db8::1]", "2001:db8::1"),
            (b"[2001:db8::1]:81", "2001:db8::1"),
            (b"2001:db8::1", "2001:db8::1"),
        ] {
            assert_eq!(found(&[entry], 1), address);
        }
    }

    #[test]
    fn fault_59_only_the_configured_pair_is_believed_and_both_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("x-original-uri", HeaderValue::from_static("/a"));
        headers.insert("x-original-method", HeaderValue::from_static("GET"));
        let read = |headers: &HeaderMap, believed| {
            OriginalRequest::read(headers, believed).map(|proxied| proxied.target.map(<[u8]>::to_vec))
        };
        assert_eq!(read(&headers, ProxyHeaders::None), Ok(None));
        assert_eq!(read(&headers, ProxyHeaders::Forwarded), Ok(None));
        assert_eq!(read(&headers, ProxyHeaders::Original), Ok(Some(b"/a".to_vec())));
        headers.append("x-original-uri", HeaderValue::from_static("/b"));
        assert!(matches!(read(&headers, ProxyHeaders::Original), Err(SourceError::RepeatedHeader(_))));
        headers.insert("x-original-uri", HeaderValue::from_static("/a"));
        headers.insert("x-forwarded-method", HeaderValue::from_static("GET"));
        for believed in [ProxyHeaders::None, ProxyHeaders::Original, ProxyHeaders::Forwarded] {
            assert_eq!(read(&headers, believed), Err(SourceError::TwoFamilies));
        }
    }
}
