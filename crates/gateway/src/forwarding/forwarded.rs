//! `Forwarded` (RFC 7239): what trusted proxies say in it of a request, and what servers are told in it. Both are off unless
//! the configuration asks for them.
//!
//! ```text
//!   a proxy in front ── Forwarded ──> read: the element so many hops from the right ──> X-Forwarded-For, -Proto, -Host
//!   X-Forwarded-Proto, -Host, the client's address, the peer's ── made anew ──> Forwarded ──> a server
//! ```
//!
//! It is never passed on: a client could have written all that stands left of what was counted. Where it is read,
//! `X-Forwarded-` of a request is not believed at all, so that the two cannot say different things. A field that breaks
//! the grammar is refused: two readers would find two clients in it.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use tidegate_wire::forwarded::{Element, read};

use crate::forwarding::fields::FieldEdits;
use crate::forwarding::fields::{FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO};
use crate::response::refusal::Refusal;
use crate::routes::client_address::address;

const MALFORMED: Refusal = Refusal::Malformed("the field forwarded is malformed");

/// Which address the proxy `hops` from the right names as its client; `None`: none, or one that hides it.
pub(crate) fn client_address(fields: &HeaderMap, hops: usize) -> Result<Option<IpAddr>, Refusal> {
    let address = |element: Element<'_>| address(element.node?.as_bytes());
    Ok(believed(fields, hops)?.and_then(address).map(|address| address.to_canonical()))
}

/// Says in `X-Forwarded-` what the proxy `hops` from the right says in `Forwarded`, in place of what stands there.
pub(crate) fn translate(fields: &mut HeaderMap, client: IpAddr, peer: IpAddr, hops: usize) {
    // Invariant: a malformed one was refused before.
    let (proto, host) = match believed(fields, hops) {
        Ok(Some(element)) => (element.proto.and_then(scheme), element.host.and_then(as_value)),
        _ => (None, None),
    };
    let stated: Vec<HeaderName> =
        fields.keys().filter(|name| name.as_str().starts_with("x-forwarded-")).cloned().collect();
    for name in stated {
        fields.remove(name);
    }
    if client != peer {
        fields.insert(FORWARDED_FOR, text(client.to_string()));
    }
    if let Some(proto) = proto {
        fields.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if let Some(host) = host {
        fields.insert(FORWARDED_HOST, host);
    }
}

/// Tells a server what is believed of the request, unless its route has `edits` of the field.
pub(crate) fn tell(fields: &mut HeaderMap, client: IpAddr, peer: IpAddr, edits: &FieldEdits) {
    if fields.contains_key(FORWARDED) || edits.remove.contains(&FORWARDED) {
        return;
    }
    let mut told = format!("for={}", node(client));
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let host = fields.get(FORWARDED_HOST).filter(|host| host.as_bytes().iter().all(is_plain));
    // Invariant: writing to a String cannot fail.
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let _infallible = write!(told, ";host=\"{host}\"");
    }
    let proto = fields.get(FORWARDED_PROTO).and_then(|proto| scheme(proto.to_str().ok()?.into()));
    if let Some(proto) = proto {
        let _infallible = write!(told, ";proto={proto}");
    }
    if client != peer {
        let _infallible = write!(told, ", for={}", node(peer));
    }
    fields.insert(FORWARDED, text(told));
}

/// The element `hops` from the right; the peer has written the first.
fn believed(fields: &HeaderMap, hops: usize) -> Result<Option<Element<'_>>, Refusal> {
    let Some(back) = hops.checked_sub(1) else { return Ok(None) };
    let mut all = Vec::new();
    for line in fields.get_all(FORWARDED) {
        let line = line.to_str().map_err(|_| MALFORMED)?;
        all.extend(read(line).map_err(|_| MALFORMED)?);
    }
    Ok(all.into_iter().rev().nth(back))
}

fn scheme(proto: Cow<'_, str>) -> Option<&'static str> {
    ["http", "https"].into_iter().find(|known| known.eq_ignore_ascii_case(&proto))
}

fn as_value(host: Cow<'_, str>) -> Option<HeaderValue> {
    HeaderValue::from_str(&host).ok().filter(|host| !host.is_empty())
}

/// An address as a node's name.
fn node(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    }
}

/// A text that this program wrote.
fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (FORWARDED, line.parse().expect("a value"))).collect()
    }

    #[test]
    fn fault_48_only_what_trusted_proxies_added_is_believed() {
        for (lines, hops, expected) in [
            (&["for=6.6.6.6"][..], 0, None),
            (&["for=6.6.6.6, for=192.0.2.7"], 1, Some("192.0.2.7")),
            (&["for=6.6.6.6, for=192.0.2.7;proto=https, for=10.0.0.2"], 2, Some("192.0.2.7")),
            (&["for=6.6.6.6", "for=192.0.2.7,for=10.0.0.2"], 2, Some("192.0.2.7")),
            (&["for=6.6.6.6", ", ,for=192.0.2.7, "], 1, Some("192.0.2.7")),
            (&["For=\"[2001:db8::1]:4711\" ; Proto=http"], 1, Some("2001:db8::1")),
            (&["for=\"192.0.2.7:80\""], 1, Some("192.0.2.7")),
            (&["for=\"1\\92.0.2.7\""], 1, Some("192.0.2.7")),
            (&["for=\"::ffff:192.0.2.7\""], 1, Some("192.0.2.7")),
            (&["for=\"a, for=6.6.6.6\", for=192.0.2.7"], 1, Some("192.0.2.7")),
            // No client, or a client that hides.
            (&["for=192.0.2.7"], 2, None),
            (&[], 1, None),
            (&["for=unknown"], 1, None),
            (&["for=_hidden, proto=http"], 1, None),
            (&["for=\"_gazonk\""], 1, None),
        ] {
            let found = client_address(&fields(lines), hops).expect("it follows the grammar");
            assert_eq!(found, expected.map(|text| text.parse().expect("an address")), "{lines:?} {hops}");
        }
    }

    #[test]
    fn what_breaks_the_grammar_is_refused_where_it_is_read() {
        let broken = fields(&["for=192.0.2.7", "for=\"a"]);
        assert!(client_address(&broken, 1).is_err());
        assert!(client_address(&broken, 0).is_ok(), "nobody reads it");
    }

    #[test]
    fn what_is_believed_stands_in_place_of_all_else_that_says_it() {
        let [client, peer] = ["192.0.2.7", "10.0.0.1"].map(|text| text.parse().expect("an address"));
        let mut sent =
            fields(&["for=6.6.6.6;host=evil, for=192.0.2.7;host=\"shop.example:8443\";proto=HTTPS"]);
        for name in ["x-forwarded-for", "x-forwarded-port"] {
            sent.insert(name, HeaderValue::from_static("6.6.6.6"));
        }
        translate(&mut sent, client, peer, 1);
        let said = |name: &str| sent.get(name).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(said("x-forwarded-for").as_deref(), Some("192.0.2.7"));
        assert_eq!(said("x-forwarded-proto").as_deref(), Some("https"));
        assert_eq!(said("x-forwarded-host").as_deref(), Some("shop.example:8443"));
        assert_eq!(said("x-forwarded-port"), None);
    }

    #[test]
    fn a_server_is_told_what_is_believed_and_nothing_that_could_be_read_in_two_ways() {
        let [v4, v6] = ["192.0.2.7", "2001:db8::1"].map(|text| text.parse().expect("an address"));
        let told = |host: &'static str, proto: &'static str, client, peer| {
            let mut fields = HeaderMap::new();
            fields.insert(FORWARDED_HOST, HeaderValue::from_static(host));
            fields.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
            tell(&mut fields, client, peer, &FieldEdits::default());
            let line = fields[FORWARDED].to_str().expect("text").to_owned();
            assert!(client_address(&fields, 1).is_ok(), "{line}");
            line
        };
        assert_eq!(told("a:80", "http", v4, v4), "for=192.0.2.7;host=\"a:80\";proto=http");
        assert_eq!(told("a", "https", v6, v4), "for=\"[2001:db8::1]\";host=\"a\";proto=https, for=192.0.2.7");
        assert_eq!(told("a\";for=6.6.6.6", "https,http", v4, v4), "for=192.0.2.7");
        let mut set = fields(&["proto=https"]);
        tell(&mut set, v4, v4, &FieldEdits::default());
        assert_eq!(set[FORWARDED], "proto=https", "the route has set it");
        let edits = FieldEdits { remove: vec![FORWARDED], ..FieldEdits::default() };
        let mut none = HeaderMap::new();
        tell(&mut none, v4, v4, &edits);
        assert!(none.is_empty(), "the route has taken it off");
    }
}
