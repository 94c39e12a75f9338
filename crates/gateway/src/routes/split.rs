//! Which requests of a route go to which upstream of its split, and to its canary: those with certain fields or cookies, and a
//! share of the others.
//!
//! ```text
//!   place:  0 ........ 299 | 300 ..... 799 | 800 ........ 999
//!           first share    | second share  | what they leave: the action's upstream
//! ```
//!
//! The shares are of what is told apart (clients, values of a field), by a hash that all nodes agree on. So each stays on its
//! side, with no cookie and no table, at every node and over a restart. A percent (tenths count) that goes from one share to
//! another moves the ends of all shares between the two: who is between an old end and its new one goes to the neighbour, and nobody
//! else moves. A larger first share, so that of a canary, only adds to those that were there.
//!
//! The first share's name is part of the hash: routes to the same canary send it the same clients, and another canary has others. A
//! canary that becomes the first of a split keeps its clients.

use std::net::IpAddr;

use http::header::{COOKIE, HeaderMap};
use http::request::Parts;
use tidegate_upstream::group::hash;

use crate::authentication::identity::Identity;
use crate::config::{SplitConfig, StickyBy};
use crate::routes::client_address::as_attribute;

/// On which side of a split a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitSide {
    /// The position of its share; `None`: it gets what the shares leave.
    pub(crate) share: Option<usize>,
    pub(crate) why: Why,
}

/// Why it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has the fields and cookies that send it there.
    Fields,
    /// Its place among a thousand is in the share.
    Share { place: u64 },
}

impl SplitConfig {
    /// Where a request goes, and why. Its client is who it has proved to be, or its address.
    pub(crate) fn side_of(&self, request: &Parts, identity: Option<&Identity>, client: IpAddr) -> SplitSide {
        match identity.and_then(Identity::client) {
            Some(client) => self.side(request, client),
            None => self.side(request, &as_attribute(client)),
        }
    }

    /// Where the request of this client goes, and why.
    fn side(&self, request: &Parts, client: &str) -> SplitSide {
        let has = |(name, value): &(http::HeaderName, http::HeaderValue)| {
            request.headers.get_all(name).iter().any(|given| given == value)
        };
        let states_some = !self.fields.is_empty() || !self.cookies.is_empty();
        let has_cookies =
            || self.cookies.iter().all(|(name, value)| has_cookie(&request.headers, name, value));
        if states_some && self.fields.iter().all(has) && has_cookies() {
            return SplitSide { share: Some(0), why: Why::Fields };
        }
        let stated = match &self.sticky_by {
            StickyBy::Client => None,
            StickyBy::Field(name) => request.headers.get(name).map(|value| value.as_bytes()),
            StickyBy::Cookie(name) => cookie(&request.headers, name),
        };
        let told_apart = stated.unwrap_or(client.as_bytes());
        let first = self.shares.first().map_or("", |share| &*share.upstream);
        let hash = hash(&[first.as_bytes(), &[0], told_apart].concat());
        // By hundreds first: who is told apart stays where whole percents have put it.
        let place = (hash % 100) * 10 + (hash / 100) % 10;
        SplitSide { share: self.share_at(place), why: Why::Share { place } }
    }
}

/// Whether a request has a cookie of this name and value.
pub(crate) fn has_cookie(fields: &HeaderMap, name: &str, value: &str) -> bool {
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
    use crate::config::SplitShare;

    fn canary(upstream: &str, percent: u64, sticky_by: StickyBy) -> SplitConfig {
        of_a_thousand(upstream, percent * 10, sticky_by)
    }

    fn of_a_thousand(upstream: &str, per_thousand: u64, sticky_by: StickyBy) -> SplitConfig {
        let (fields, cookies) = (Vec::new(), Vec::new());
        let shares = vec![SplitShare { upstream: upstream.into(), per_thousand }];
        SplitConfig { shares, fields, cookies, sticky_by, is_canary: true }
    }

    /// Which share each of 10,000 clients gets, of these shares of a thousand; what they leave goes to a third upstream.
    fn placed(shares: [u64; 2]) -> Vec<Option<usize>> {
        let mut split = of_a_thousand("a", shares[0], StickyBy::Client);
        split.shares.push(SplitShare { upstream: "b".into(), per_thousand: shares[1] });
        (0..10_000).map(|client| split.side(&request(&[]), &format!("10.0.0.{client}")).share).collect()
    }

    fn request(fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn taken(canary: &SplitConfig) -> Vec<u32> {
        (0..10_000)
            .filter(|client| canary.side(&request(&[]), &format!("10.0.0.{client}")).share.is_some())
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
    fn a_percentage_moves_who_is_between_the_old_end_and_the_new_one_and_nobody_else() {
        let (before, after) = (placed([300, 500]), placed([400, 400]));
        let moved: Vec<_> = before.iter().zip(&after).filter(|(old, new)| old != new).collect();
        // Four standard deviations of 10,000 draws.
        assert!((880..=1_120).contains(&moved.len()), "{}", moved.len());
        assert!(
            moved.iter().all(|sides| *sides == (&Some(1), &Some(0))),
            "from the second share to the first"
        );
        for (sides, [first, second]) in [(before, [300, 500]), (after, [400, 400])] {
            let counted = |side: Option<usize>| sides.iter().filter(|it| **it == side).count();
            for (side, expected) in [(Some(0), first), (Some(1), second), (None, 1_000 - first - second)] {
                let (found, expected) = (counted(side), expected * 10);
                assert!(found.abs_diff(expected) < 200, "{side:?}: {found} of {expected}");
            }
        }
        assert_eq!(placed([0, 1_000]), vec![Some(1); 10_000]);
        assert_eq!(placed([0, 0]), vec![None; 10_000]);
    }

    #[test]
    fn the_places_of_a_split_follow_one_another_and_are_all_places() {
        let mut split = of_a_thousand("a", 301, StickyBy::Client);
        split.shares.push(SplitShare { upstream: "b".into(), per_thousand: 499 });
        let rest = "c".into();
        let places: Vec<_> = split.places(&rest).map(|(upstream, places)| (&**upstream, places)).collect();
        assert_eq!(places, [("a", 0..301), ("b", 301..800), ("c", 800..1_000)]);
        let shares = [0, 300, 301, 799, 800, 999].map(|place| split.share_at(place));
        assert_eq!(shares, [Some(0), Some(0), Some(1), Some(1), None, None]);
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
        let by_cookie = SplitConfig { cookies, ..canary("v2", 0, StickyBy::Client) };
        let is_there = |canary: &SplitConfig, fields: &[(&str, &str)]| {
            canary.side(&request(fields), "10.0.0.1").share.is_some()
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
        let both = SplitConfig { fields, ..by_cookie };
        assert!(is_there(&both, &[("cookie", "beta=on"), ("x-team", "1")]));
        assert!(!is_there(&both, &[("cookie", "beta=on")]) && !is_there(&both, &[("x-team", "1")]));
    }

    #[test]
    fn all_of_the_fields_send_a_request_there() {
        let fields = ["x-canary", "x-team"].map(|name| (name.parse().unwrap(), "1".parse().unwrap()));
        let canary = SplitConfig { fields: fields.to_vec(), ..canary("v2", 0, StickyBy::Client) };
        let both = canary.side(&request(&[("x-canary", "1"), ("x-team", "1")]), "10.0.0.1");
        assert_eq!(both, SplitSide { share: Some(0), why: Why::Fields });
        for fields in [&[][..], &[("x-canary", "1")], &[("x-canary", "1"), ("x-team", "2")]] {
            assert!(canary.side(&request(fields), "10.0.0.1").share.is_none());
        }
    }
}
