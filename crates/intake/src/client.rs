//! The client that a request is from.
//!
//! The token's name; where no token is needed, the configured header field; and else the address, one of version 6
//! by its network of 64 bits, which one client owns. What a request states is believed only in a field that the
//! configuration names, and never in `Authorization`: secrets do not get into lines.

use std::borrow::Cow;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{HeaderName, header};
use siphasher::sip::SipHasher13;

/// Longest name of a client, in bytes; a longer one is cut.
const MAX_CLIENT_BYTES: usize = 255;

/// Who sent a request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Its name, at most 255 bytes.
    pub(crate) name: Arc<str>,
    /// Where the request came from.
    pub(crate) address: IpAddr,
}

impl Client {
    /// The client that `token` names, or the request.
    pub(crate) fn of(
        token: Option<Arc<str>>,
        field: Option<&HeaderName>,
        head: &Parts,
        address: IpAddr,
    ) -> Self {
        let address = address.to_canonical();
        let stated = || {
            let value = head.headers.get(field?)?;
            let text = String::from_utf8_lossy(value.as_bytes());
            (!text.is_empty()).then(|| cut(&text).into())
        };
        let name = token.or_else(stated).unwrap_or_else(|| network(address).into());
        Self { name, address }
    }

    /// A number that is the same for this client in every process.
    pub(crate) fn key(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(self.name.as_bytes());
        hasher.finish()
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_CLIENT_BYTES)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

fn network(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            format!("{}/64", Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

/// The secret of a request: `Bearer` (RFC 6750), `Token` as InfluxDB's clients send it, or the password of `Basic`
/// (RFC 7617), which is what Prometheus can be given beside a bearer token.
pub(crate) fn secret(head: &Parts) -> Option<Cow<'_, [u8]>> {
    let field = head.headers.get(header::AUTHORIZATION)?.as_bytes();
    let space = field.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&field[..space], field[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token") {
        return Some(Cow::Borrowed(rest));
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = STANDARD.decode(rest).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(Cow::Owned(pair[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(name: &str, value: &str) -> Parts {
        Request::builder().header(name, value).body(()).unwrap().into_parts().0
    }

    fn name(token: Option<&str>, field: Option<&'static str>, head: &Parts, address: &str) -> String {
        let field = field.map(HeaderName::from_static);
        Client::of(token.map(Into::into), field.as_ref(), head, address.parse().unwrap()).name.to_string()
    }

    #[test]
    fn a_client_is_its_token_or_its_field_or_its_address() {
        let head = head("x-client", "web");
        assert_eq!(name(Some("shop"), Some("x-client"), &head, "10.0.0.1"), "shop");
        assert_eq!(name(None, Some("x-client"), &head, "10.0.0.1"), "web");
        assert_eq!(name(None, None, &head, "10.0.0.1"), "10.0.0.1");
        assert_eq!(name(None, Some("other"), &head, "::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(name(None, None, &head, "2001:db8::1:2:3:4"), "2001:db8::/64");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let long = "\u{e9}".repeat(200);
        let name = name(None, Some("x-client"), &head("x-client", &long), "10.0.0.1");
        assert_eq!(name.len(), 254);
    }

    #[test]
    fn fault_52_the_secret_is_found_and_never_the_clients_name() {
        for (field, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Token abc", Some("abc")),
            ("Basic dXNlcjphYmM6ZA==", Some("abc:d")),
            ("Basic ?", None),
            ("Digest abc", None),
            ("abc", None),
        ] {
            let head = head("authorization", field);
            let expected = expected.map(str::as_bytes);
            assert_eq!(secret(&head).as_deref(), expected, "{field}");
            assert_eq!(name(None, Some("x-client"), &head, "10.0.0.1"), "10.0.0.1");
        }
    }
}
