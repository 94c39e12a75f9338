//! Looking for the values that configured sources name ([`tidegate_algorithms::policy::Source`]).
//!
//! A field, cookie or parameter that is there twice has no value that everybody agrees on: the service
//! behind the proxy may take the other one. Such a request is refused, like a path that can be read in
//! two ways (fault 59).

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Deref;

use http::{HeaderMap, HeaderValue};
use thiserror::Error;
use tidegate_net::http::Plain;

/// Why there is no one value to believe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// A header field is there twice.
    #[error("the header field {0:?} is there more than once")]
    RepeatedHeader(String),
    /// A cookie is there twice.
    #[error("the cookie {0:?} is there more than once")]
    RepeatedCookie(String),
    /// A parameter of the query is there twice.
    #[error("the parameter {0:?} is there more than once")]
    RepeatedParameter(String),
    /// A parameter of the query is no attribute's source. A caller that puts a client's text into the query without
    /// escaping it lets the client add parameters.
    #[error("the parameter {0:?} is no attribute's source: see [attributes.check] in the configuration")]
    UnknownParameter(String),
    /// The headers of two kinds of proxies at once: one pair is the client's.
    #[error(
        "the request has both X-Original-* and X-Forwarded-Uri or -Method; only one pair can be the proxy's, so the other is forged"
    )]
    TwoFamilies,
    /// The entry of `X-Forwarded-For` that is believed is no address.
    #[error("the believed entry of X-Forwarded-For is not an address")]
    NotAnAddress,
}

/// The header fields of a request, as whoever read it has them.
pub(crate) trait RequestFields {
    /// The values of all fields of that name, in their order.
    fn values<'f>(&'f self, name: &str) -> impl DoubleEndedIterator<Item = &'f [u8]>;
}

impl RequestFields for HeaderMap {
    fn values<'f>(&'f self, name: &str) -> impl DoubleEndedIterator<Item = &'f [u8]> {
        self.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}

impl RequestFields for Plain<'_> {
    fn values<'f>(&'f self, name: &str) -> impl DoubleEndedIterator<Item = &'f [u8]> {
        Plain::values(self, name)
    }
}

/// The value of the header field `name`, if it is there.
pub(crate) fn header<'h>(
    headers: &'h impl RequestFields,
    name: &str,
) -> Result<Option<&'h [u8]>, SourceError> {
    let mut values = headers.values(name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(SourceError::RepeatedHeader(name.to_owned())),
        (value, None) => Ok(value.map(<[u8]>::trim_ascii)),
    }
}

/// The value of the cookie `name`, if it is there. HTTP/2 may send one field for each cookie.
pub(crate) fn cookie<'h>(
    headers: &'h impl RequestFields,
    name: &str,
) -> Result<Option<&'h [u8]>, SourceError> {
    let fields = headers.values(http::header::COOKIE.as_str());
    let pairs = fields.flat_map(|field| field.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let mut values = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(SourceError::RepeatedCookie(name.to_owned())),
        (value, None) => Ok(value),
    }
}

/// An address as an attribute: an IPv6 one as its /64, since that is what one customer has.
pub(crate) fn address_text(address: IpAddr) -> AddressText {
    let mut text = AddressText { bytes: [0; 48], length: 0 };
    // Invariant: none is longer than an IPv6 address, 39 bytes, and its suffix.
    let _fits = match address.to_canonical() {
        IpAddr::V4(address) => write!(text, "{address}"),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
            write!(text, "{network}/64")
        }
    };
    text
}

/// An address as text, without an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressText {
    bytes: [u8; 48],
    length: usize,
}

impl Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl Deref for AddressText {
    type Target = str;

    fn deref(&self) -> &str {
        // Invariant: texts were put here whole.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn fault_59_what_is_there_twice_has_no_value() {
        let fields = headers(&[
            ("x-key", "a"),
            ("x-twice", "a"),
            ("x-twice", "a"),
            ("cookie", "sid=1; theme=dark;other=2"),
            ("cookie", "theme=light; si=3; empty="),
        ]);
        assert_eq!(header(&fields, "x-key"), Ok(Some(&b"a"[..])));
        assert_eq!(header(&fields, "x-none"), Ok(None));
        assert_eq!(header(&fields, "x-twice"), Err(SourceError::RepeatedHeader("x-twice".to_owned())));
        assert_eq!(cookie(&fields, "sid"), Ok(Some(&b"1"[..])));
        assert_eq!(cookie(&fields, "empty"), Ok(Some(&b""[..])));
        assert_eq!(cookie(&fields, "id"), Ok(None));
        assert_eq!(cookie(&fields, "theme"), Err(SourceError::RepeatedCookie("theme".to_owned())));
    }

    #[test]
    fn an_ipv6_address_stands_for_its_network() {
        for (address, text) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("1111:2222:3333:4444:5555:6666:7777:8888", "1111:2222:3333:4444::/64"),
        ] {
            assert_eq!(&*address_text(address.parse().unwrap()), text);
        }
    }
}
