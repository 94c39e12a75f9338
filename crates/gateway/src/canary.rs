//! Which requests of a route go to its canary: those with certain fields, and a share of the others.
//!
//! The share is a percentage of the clients, or of the values of a field, by a hash that is the same at all nodes. So a client
//! stays on its side without a cookie or a table, at every node and over a restart; a larger percentage keeps the clients that
//! the canary has, and adds others. The canary's name is part of the hash: routes to the same canary send it the same
//! clients, and another canary has others.

use std::net::IpAddr;

use http::header::{COOKIE, HeaderMap};
use http::request::Parts;
use tidegate_upstream::group::hash;

use crate::client_address::as_attribute;
use crate::config::{CanaryConfig, StickyBy};
use crate::identity::Identity;

/// On which side of a split a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) is_canary: bool,
    pub(crate) why: Why,
}

/// Why it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has the fields that send it there.
    Fields,
    /// Its place among a hundred is below the percentage, or not.
    Share { place: u64 },
}

impl CanaryConfig {
    /// Where a request goes, and why. Its client is who it has proved to be, or its address.
    pub(crate) fn side_of(&self, request: &Parts, identity: Option<&Identity>, client: IpAddr) -> Side {
        match identity.and_then(Identity::client) {
            Some(client) => self.side(request, client),
            None => self.side(request, &as_attribute(client)),
        }
    }

    /// Where the request of this client goes, and why.
    fn side(&self, request: &Parts, client: &str) -> Side {
        let has = |(name, value): &(http::HeaderName, http::HeaderValue)| {
            request.headers.get_all(name).iter().any(|given| given == value)
        };
        if !self.fields.is_empty() && self.fields.iter().all(has) {
            return Side { is_canary: true, why: Why::Fields };
        }
        let stated = match &self.sticky_by {
            StickyBy::Client => None,
            StickyBy::Field(name) => request.headers.get(name).map(|value| value.as_bytes()),
            StickyBy::Cookie(name) => cookie(&request.headers, name),
        };
        let told_apart = stated.unwrap_or(client.as_bytes());
        let place = hash(&[self.upstream.as_bytes(), &[0], told_apart].concat()) % 100;
        Side { is_canary: place < self.percent, why: Why::Share { place } }
    }
}

/// The value of a cookie, if it is there; of several the first.
fn cookie<'f>(fields: &'f HeaderMap, name: &str) -> Option<&'f [u8]> {
    let lines = fields.get_all(COOKIE).iter().map(http::HeaderValue::as_bytes);
    let mut pairs = lines.flat_map(|line| line.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(upstream: &str, percent: u64, sticky_by: StickyBy) -> CanaryConfig {
        CanaryConfig { upstream: upstream.into(), percent, fields: Vec::new(), sticky_by }
    }

    fn request(fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn taken(canary: &CanaryConfig) -> Vec<u32> {
        (0..10_000)
            .filter(|client| canary.side(&request(&[]), &format!("10.0.0.{client}")).is_canary)
            .collect()
    }

    #[test]
    fn a_share_of_the_clients_goes_and_a_larger_one_has_them_all() {
        let [none, few, more, all] =
            [0, 5, 50, 100].map(|percent| taken(&canary("v2", percent, StickyBy::Client)));
        assert_eq!((none.len(), all.len()), (0, 10_000));
        // Four standard deviations of 10,000 draws.
        assert!((413..=587).contains(&few.len()), "{}", few.len());
        assert!((4_800..=5_200).contains(&more.len()), "{}", more.len());
        assert!(few.iter().all(|client| more.contains(client)));
        let other = taken(&canary("v3", 5, StickyBy::Client));
        let both = few.iter().filter(|client| other.contains(client)).count();
        assert!(both < 100, "{both} clients are in both canaries of 5 %");
    }

    #[test]
    fn a_field_or_a_cookie_stays_on_its_side_whoever_sends_it() {
        let by_field = canary("v2", 50, StickyBy::Field("x-tenant".parse().unwrap()));
        let by_cookie = canary("v2", 50, StickyBy::Cookie("sid".into()));
        for value in ["a", "b", "c", "d", "e", "f"] {
            let side = by_field.side(&request(&[("x-tenant", value)]), "10.0.0.1");
            let cookie = format!("sidx=1; sid={value}");
            for client in ["10.0.0.2", "10.0.0.3", "10.0.0.4"] {
                assert_eq!(by_field.side(&request(&[("x-tenant", value)]), client), side);
                assert_eq!(by_cookie.side(&request(&[("cookie", &cookie)]), client), side);
            }
        }
    }

    #[test]
    fn all_of_the_fields_send_a_request_there() {
        let fields = ["x-canary", "x-team"].map(|name| (name.parse().unwrap(), "1".parse().unwrap()));
        let canary = CanaryConfig { fields: fields.to_vec(), ..canary("v2", 0, StickyBy::Client) };
        let both = canary.side(&request(&[("x-canary", "1"), ("x-team", "1")]), "10.0.0.1");
        assert_eq!(both, Side { is_canary: true, why: Why::Fields });
        for fields in [&[][..], &[("x-canary", "1")], &[("x-canary", "1"), ("x-team", "2")]] {
            assert!(!canary.side(&request(fields), "10.0.0.1").is_canary);
        }
    }
}
