//! `/v1/check`: for nginx `auth_request`, Traefik `forwardAuth` and Caddy `forward_auth`.
//!
//! 204 lets the request through, 429 does not, and the rate-limit headers are there to be copied.
//!
//! A proxy forwards its client's headers along with its own, so only what the proxy itself sets is
//! believed: the query string of the check's URL (any attribute), `X-Original-URI` and
//! `X-Original-Method` (nginx), `X-Forwarded-Uri` and `X-Forwarded-Method` (Traefik, Caddy). The
//! client's address is the N-th entry of `X-Forwarded-For` from the right, N being the configured
//! number of trusted hops; with 0 it is the peer (fault 48). Without a `client_id` in the query the
//! client is known by its address, an IPv6 one by its /64.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use http::request::Parts;
use tidegate_algorithms::policy::Attributes;
use tidegate_wire::bodies::MAX_REQUEST_ATTRIBUTES;
use tidegate_wire::path::normal_form;
use tidegate_wire::problem::{self, Problem};

use super::Shared;
use super::reply::{self, Refusal, Reply, describe, refuse};
use crate::decision::Decision;
use crate::engine::Ask;
use crate::error::AskError;
use crate::policy_set::CLIENT_ID;

/// Any method on `/v1/check`
#[utoipa::path(
    get, path = "/v1/check", tag = "decisions",
    params(("client_id" = Option<String>, Query, max_length = 512, description = "who asks; any other parameter is an attribute too")),
    responses(
        (status = 204, description = "let it through"),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
        (status = "5XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn check(shared: &Shared, head: &Parts, peer: SocketAddr) -> Reply {
    match decide(shared, head, peer).await {
        Ok(decision) => reply_to(shared, &decision),
        Err(refusal) => refuse(refusal),
    }
}

async fn decide(shared: &Shared, head: &Parts, peer: SocketAddr) -> Result<Decision, Refusal> {
    let mut attributes: Vec<(Cow<'_, str>, Cow<'_, [u8]>)> = Vec::new();
    for (name, value) in form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()) {
        attributes.push((name, Cow::Owned(value.into_owned().into_bytes())));
    }
    if attributes.len() > MAX_REQUEST_ATTRIBUTES {
        return Err(Refusal::Field {
            place: "/query".to_owned(),
            problem: format!("has {} parameters", attributes.len()),
            accepted: "up to 32",
        });
    }
    let target = first(&head.headers, ["x-original-uri", "x-forwarded-uri"]);
    let path = target.map(normal_form).transpose().map_err(AskError::from)?;
    let address = client_address(&head.headers, peer.ip(), shared.settings.trusted_hops);
    let from_headers = [
        ("method", first(&head.headers, ["x-original-method", "x-forwarded-method"])),
        ("path", path.as_deref()),
        ("ip", Some(address.as_bytes())),
        (CLIENT_ID, Some(address.as_bytes())),
    ];
    for (name, value) in from_headers {
        // The first of a name counts, so the query wins.
        if let Some(value) = value {
            attributes.push((Cow::Borrowed(name), Cow::Borrowed(value)));
        }
    }
    let pairs: Vec<(&str, &[u8])> = attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
    let attributes = Attributes::new(&pairs);
    Ok(shared.engine.decide(&Ask { attributes, cost: 1, peek: false, can_release: false }).await?)
}

fn reply_to(shared: &Shared, decision: &Decision) -> Reply {
    let mut reply = if decision.allowed {
        reply::no_content()
    } else {
        let denied = decision.parts.iter().filter(|part| !part.verdict.allowed);
        let policies: Vec<String> = denied.map(|part| part.policy.to_string()).collect();
        reply::problem(&Problem {
            kind: problem::Type::QuotaExceeded,
            violated_policies: policies,
            ..Problem::new(429, "Quota Exceeded", "the quota of a policy is used up")
        })
    };
    describe(shared, decision, reply.headers_mut());
    reply
}

fn first<'a>(headers: &'a HeaderMap, names: [&str; 2]) -> Option<&'a [u8]> {
    names.iter().find_map(|name| headers.get(*name)).map(http::HeaderValue::as_bytes)
}

/// The client's address, as the attribute `ip` has it.
fn client_address(headers: &HeaderMap, peer: IpAddr, trusted_hops: usize) -> String {
    let forwarded = || {
        let hops = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let addresses: Vec<&str> = hops.flat_map(|value| value.split(',')).map(str::trim).collect();
        addresses.iter().rev().nth(trusted_hops.checked_sub(1)?)?.parse::<IpAddr>().ok()
    };
    match forwarded().unwrap_or(peer).to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
            format!("{network}/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(forwarded: &[&str], peer: &str, trusted_hops: usize) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        client_address(&headers, peer.parse().unwrap(), trusted_hops)
    }

    #[test]
    fn fault_48_forwarded_for_is_believed_only_as_far_as_hops_are_trusted() {
        let spoofed = ["6.6.6.6, 7.7.7.7", "8.8.8.8"];
        assert_eq!(address(&spoofed, "10.0.0.1", 0), "10.0.0.1");
        assert_eq!(address(&spoofed, "10.0.0.1", 1), "8.8.8.8");
        assert_eq!(address(&spoofed, "10.0.0.1", 2), "7.7.7.7");
        assert_eq!(address(&spoofed, "10.0.0.1", 9), "10.0.0.1");
        assert_eq!(address(&["nonsense"], "10.0.0.1", 1), "10.0.0.1");
        assert_eq!(address(&[], "2001:db8:1:2:3:4:5:6", 0), "2001:db8:1:2::/64");
        assert_eq!(address(&[], "::ffff:10.0.0.1", 0), "10.0.0.1");
    }
}
