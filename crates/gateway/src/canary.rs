//! Which requests of a route go to its canary: those with certain fields or cookies, and a share of the others.
//!
//! The share is of what is told apart (clients, values of a field), by a hash that all nodes agree on. So each stays on its
//! side, with no cookie and no table, at every node and over a restart; a larger percentage, of which tenths count, only adds
//! to those that were there. The canary's name is part of the hash: routes to the same canary send it the same clients, and another
//! canary has others.

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
    /// It has the fields and cookies that send it there.
    Fields,
    /// Its place among a thousand is below the share, or not.
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
        let states_some = !self.fields.is_empty() || !self.cookies.is_empty();
        let has_cookies = || self.cookies.iter().all(|cookie| has_cookie(&request.headers, cookie));
        if states_some && self.fields.iter().all(has) && has_cookies() {
            return Side { is_canary: true, why: Why::Fields };
        }
        let stated = match &self.sticky_by {
            StickyBy::Client => None,
            StickyBy::Field(name) => request.headers.get(name).map(|value| value.as_bytes()),
            StickyBy::Cookie(name) => cookie(&request.headers, name),
        };
        let told_apart = stated.unwrap_or(client.as_bytes());
        let hash = hash(&[self.upstream.as_bytes(), &[0], told_apart].concat());
        // By hundreds first: who is told apart stays where whole percents have put it.
        let place = (hash % 100) * 10 + (hash / 100) % 10;
        Side { is_canary: place < self.per_thousand, why: Why::Share { place } }
    }
}

/// Whether a request has a cookie of this name and value.
pub(crate) fn has_cookie(fields: &HeaderMap, (name, value): &(Box<str>, Box<str>)) -> bool {
    cookies(fields, name).any(|given| given == value.as_bytes())
}

/// The value of a cookie, if it is there; of several the first.
fn cookie<'f>(fields: &'f HeaderMap, name: &'f str) -> Option<&'f [u8]> {
    cookies(fields, name).next()
}

/// The values of all cookies of a name.
fn cookies<'f>(fields: &'f HeaderMap, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
    let lines = fields.get_all(COOKIE).iter().map(http::HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    pairs.filter_map(move |pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(upstream: &str, percent: u64, sticky_by: StickyBy) -> CanaryConfig {
        of_a_thousand(upstream, percent * 10, sticky_by)
    }

    fn of_a_thousand(upstream: &str, per_thousand: u64, sticky_by: StickyBy) -> CanaryConfig {
        let (fields, cookies) = (Vec::new(), Vec::new());
        CanaryConfig { upstream: upstream.into(), per_thousand, fields, cookies, sticky_by }
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
    fn tenths_of_a_percent_count_and_whole_ones_are_shares_of_a_hundred() {
        let [few, more, one] = [2, 5, 10].map(|share| taken(&of_a_thousand("v2", share, StickyBy::Client)));
        // Four standard deviations of 10,000 draws.
        assert!(
            (2..=38).contains(&few.len()) && (22..=78).contains(&more.len()),
            "{} {}",
            few.len(),
            more.len()
        );
        assert!(few.iter().all(|client| more.contains(client)));
        assert!(more.iter().all(|client| one.contains(client)));
        // As every node of an earlier version has it.
        let place = |client: u32| hash(["v2\u{0}", "10.0.0.", &client.to_string()].concat().as_bytes()) % 100;
        let of_a_hundred: Vec<u32> = (0..10_000).filter(|client| place(*client) < 1).collect();
        assert_eq!(one, of_a_hundred);
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
    fn cookies_send_a_request_there_beside_the_fields() {
        let cookies = vec![("beta".into(), "on".into())];
        let by_cookie = CanaryConfig { cookies, ..canary("v2", 0, StickyBy::Client) };
        let is_there = |canary: &CanaryConfig, fields: &[(&str, &str)]| {
            canary.side(&request(fields), "10.0.0.1").is_canary
        };
        for there in ["beta=on", "a=b; beta=on", "beta=off; beta=on"] {
            assert!(is_there(&by_cookie, &[("cookie", there)]), "{there}");
        }
        // HTTP/2 may send them apart.
        assert!(is_there(&by_cookie, &[("cookie", "a=b"), ("cookie", "beta=on")]));
        for elsewhere in ["beta=off", "xbeta=on", "beta=one", "beta"] {
            assert!(!is_there(&by_cookie, &[("cookie", elsewhere)]), "{elsewhere}");
        }
        let fields = vec![("x-team".parse().unwrap(), "1".parse().unwrap())];
        let both = CanaryConfig { fields, ..by_cookie };
        assert!(is_there(&both, &[("cookie", "beta=on"), ("x-team", "1")]));
        assert!(!is_there(&both, &[("cookie", "beta=on")]) && !is_there(&both, &[("x-team", "1")]));
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
