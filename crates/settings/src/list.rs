//! Settings that are lists: a list of strings in the file, a text with commas in the environment and flags. Beside
//! them, the names of a region and of a node, which may be left out.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value as Json, json};

use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_algorithms::document::is_name;

use crate::value::{TomlType, Value};

/// Most items of a list.
const MAX_ITEMS: usize = 64;
/// Longest item in bytes.
const MAX_ITEM_BYTES: usize = 256;

/// What a bound of an edge's tiers may be.
const BOUNDS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// What a list may hold.
pub trait Item: Sized + fmt::Display {
    /// One item in words.
    const ACCEPTED: &'static str;
    /// Reads one, which has no comma and no blank; `None` if it is malformed.
    fn parse(text: &str) -> Option<Self>;
}

impl<T: Item> Value for Vec<T> {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::List, TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::new());
        }
        let items = text.split(',').map(str::trim);
        let items: Self = items
            .map(|item| {
                let plain = item.len() <= MAX_ITEM_BYTES && item.bytes().all(|byte| byte.is_ascii_graphic());
                plain.then(|| T::parse(item)).flatten()
            })
            .collect::<Option<_>>()?;
        (items.len() <= MAX_ITEMS).then_some(items)
    }

    fn accepted((): &()) -> String {
        format!("a list of up to {MAX_ITEMS}, with commas between them in a text: {}", T::ACCEPTED)
    }

    fn schema((): &()) -> Json {
        json!({ "oneOf": [
            { "type": "array", "maxItems": MAX_ITEMS, "items": { "type": "string" } },
            { "type": "string" },
        ] })
    }

    fn show(&self) -> String {
        if self.is_empty() {
            return "(none)".to_owned();
        }
        self.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// A host as a request names it: `name` or `name:port`, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Item for Host {
    const ACCEPTED: &'static str = "hosts, as in \"limits.example\" or \"limits.example:8443\"";

    fn parse(text: &str) -> Option<Self> {
        let authority: http::uri::Authority = text.parse().ok()?;
        (!text.contains('@') && !authority.host().is_empty() && !text.ends_with(':'))
            .then(|| Self(text.to_ascii_lowercase()))
    }
}

/// An origin (RFC 6454) as a browser writes it: `scheme://host` or `scheme://host:port`, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl fmt::Display for WebOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Item for WebOrigin {
    const ACCEPTED: &'static str = "origins, as in \"https://console.example\" or \"http://127.0.0.1:3000\"";

    fn parse(text: &str) -> Option<Self> {
        let (scheme, host) = text.split_once("://")?;
        let scheme_is_good = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        (scheme_is_good && Host::parse(host).is_some()).then(|| Self(text.to_ascii_lowercase()))
    }
}

/// An address at which clients reach a machine.
impl Item for IpAddr {
    const ACCEPTED: &'static str = "addresses of one machine, as in \"203.0.113.7\" or \"2001:db8::7\"";

    fn parse(text: &str) -> Option<Self> {
        let address = text.parse::<Self>().ok()?.to_canonical();
        let is_one = match address {
            // 0.0.0.0/8 is the network itself (RFC 1122, 3.2.1.3). A link-local address is good on one cable only.
            Self::V4(ip) => ip.octets()[0] != 0 && !ip.is_broadcast() && !ip.is_link_local(),
            Self::V6(ip) => !ip.is_unspecified() && !ip.is_unicast_link_local(),
        };
        (is_one && !address.is_multicast()).then_some(address)
    }
}

/// A region's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionName(pub String);

impl Value for RegionName {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    fn accepted((): &()) -> String {
        "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "pattern": "^[a-z][a-z0-9._-]{0,63}$" })
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// Longest name of a node, in bytes: that of a host (RFC 1035, 2.3.4).
const MAX_NODE_NAME: usize = 253;

/// A node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName(String);

impl NodeName {
    /// A name that is not empty; `None` if it is malformed.
    #[must_use]
    pub fn checked(text: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let fits = (1..=MAX_NODE_NAME).contains(&text.len());
        (fits && text.bytes().all(is_good)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Value for NodeName {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        Self::checked(text)
    }

    fn accepted((): &()) -> String {
        format!("1 to {MAX_NODE_NAME} of A-Z, a-z, 0-9, '-', '_', '.'")
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{0,{MAX_NODE_NAME}}}$") })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The bounds of an edge's tiers.
impl Value for TierBounds {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::List, TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        let bound = |item: &str| Duration::parse(item.trim(), &BOUNDS);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).ok();
        let bounds: Option<Vec<u64>> = text.split(',').map(|item| bound(item).and_then(nanos)).collect();
        Self::new(bounds?.try_into().ok()?)
    }

    fn accepted((): &()) -> String {
        format!("three of {}, each more than the one before", Duration::accepted(&BOUNDS))
    }

    fn schema((): &()) -> Json {
        json!({ "oneOf": [
            { "type": "array", "minItems": 3, "maxItems": 3, "items": Duration::schema(&BOUNDS) },
            { "type": "string" },
        ] })
    }

    fn show(&self) -> String {
        self.nanos().map(|it| Duration::from_nanos(it).show()).join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_whole_or_not_at_all() {
        for (text, shown) in [
            ("", Some("(none)")),
            ("https://a.example, http://127.0.0.1:3000", Some("https://a.example,http://127.0.0.1:3000")),
            ("HTTPS://A.Example", Some("https://a.example")),
            ("https://a.example,", None),
            ("https://a.example/", None),
            ("a.example", None),
            ("*", None),
            ("null", None),
            ("https://", None),
            ("https://u@a.example", None),
            ("https://a.example:", None),
            ("https://a.example https://b.example", None),
        ] {
            let parsed = <Vec<WebOrigin> as Value>::parse(text, &());
            assert_eq!(parsed.map(|list| list.show()).as_deref(), shown, "{text}");
        }
        let many = vec!["a.example"; MAX_ITEMS + 1].join(",");
        assert!(<Vec<Host> as Value>::parse(&many, &()).is_none());
        assert!(<Vec<Host> as Value>::parse("a.example:80,[::1]", &()).is_some());
        assert!(<Vec<Host> as Value>::parse("http://a.example", &()).is_none());
    }

    #[test]
    fn an_address_is_one_that_a_client_can_connect_to() {
        for (text, shown) in [
            ("203.0.113.7, 2001:db8::7", Some("203.0.113.7,2001:db8::7")),
            ("0.0.0.0", None),
            ("::", None),
            ("224.0.0.1", None),
            ("203.0.113.7:80", None),
            ("203.0.113.0/24", None),
            ("::ffff:203.0.113.7", Some("203.0.113.7")),
            ("::ffff:0.0.0.0", None),
            ("0.1.2.3", None),
            ("255.255.255.255", None),
            ("169.254.1.1", None),
            ("fe80::1", None),
            ("a.example", None),
        ] {
            let parsed = <Vec<IpAddr> as Value>::parse(text, &());
            assert_eq!(parsed.map(|list| list.show()).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn a_nodes_name_is_one_that_a_host_could_have() {
        let longest = "a".repeat(MAX_NODE_NAME);
        for (text, shown) in [
            ("", Some("(none)")),
            ("tidegate-0.Zone_1", Some("tidegate-0.Zone_1")),
            (longest.as_str(), Some(longest.as_str())),
            ("a b", None),
            ("a\n", None),
            ("käse", None),
            (format!("{longest}a").as_str(), None),
        ] {
            let parsed = <Option<NodeName> as Value>::parse(text, &());
            assert_eq!(parsed.map(|name| name.show()).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn bounds_of_tiers_are_three_that_rise_or_none() {
        for (text, shown) in [
            ("", Some("(none)")),
            ("10ms, 40ms,1s", Some("10ms,40ms,1s")),
            ("10ms,40ms", None),
            ("10ms,40ms,100ms,1s", None),
            ("10ms,10ms,40ms", None),
            ("0ms,10ms,40ms", None),
            ("10,40,100", None),
            ("1ms,2ms,11s", None),
        ] {
            let parsed = <Option<TierBounds> as Value>::parse(text, &());
            assert_eq!(parsed.map(|bounds| bounds.show()).as_deref(), shown, "{text}");
        }
    }
}
