//! Metrics of authentication: API keys, JWTs, other services. A key is never a label, since the number of keys has no bound.

use std::fmt;
use std::sync::Arc;

use tidegate_access::keys::ApiKeys;
use tidegate_admin::{Families, Family};
use tidegate_gateway::service::{Gateway, MAX_KNOWN};

/// How many keys are in force, and what became of requests that needed one.
pub(super) struct KeyMetrics(pub(super) Arc<ApiKeys>);

impl Family for KeyMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let stats = self.0.stats();
        families.gauge("tidegate_api_keys", "API keys in force", stats.keys as u64)?;
        let help = "Requests on routes that need an API key, by the result of the check; route and scope: the key is good, and does not open the route";
        families.counters("tidegate_api_key_requests", help, |series| {
            series(&[("result", "accepted")], stats.accepted)?;
            series(&[("result", "missing")], stats.missing)?;
            series(&[("result", "unknown")], stats.unknown)?;
            series(&[("result", "expired")], stats.expired)?;
            series(&[("result", "stale")], stats.stale)?;
            series(&[("result", "route")], stats.route)?;
            series(&[("result", "scope")], stats.scope)
        })
    }
}

/// What became of requests that needed a JWT or another service's word, and how the keys of issuers fare. Issuers stand in the configuration, which
/// bounds them.
pub(super) struct IdentityMetrics(pub(super) Arc<Gateway>);

impl Family for IdentityMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let (stats, evicted) = self.0.jwt();
        let help = "Requests on routes that need a JWT, by the result of the check";
        families.counters("tidegate_jwt_requests", help, |series| {
            series(&[("result", "accepted")], stats.accepted)?;
            series(&[("result", "missing")], stats.missing)?;
            series(&[("result", "refused")], stats.refused)?;
            series(&[("result", "no_keys")], stats.no_keys)
        })?;
        let help = "JWTs that were verified, since they had not been verified within the last minute";
        families.counter("tidegate_jwt_verifications", help, stats.verified)?;
        let keys = self.0.jwt_keys();
        families.gauges("tidegate_jwt_keys", "Keys of an issuer that are in force", |series| {
            keys.iter().try_for_each(|it| series(&[("url", &*it.url)], it.keys as u64))
        })?;
        let help = "Times that an issuer's keys were fetched";
        families.counters("tidegate_jwt_key_fetches", help, |series| {
            keys.iter().try_for_each(|it| {
                series(&[("url", &*it.url), ("result", "ok")], it.fetched)?;
                series(&[("url", &*it.url), ("result", "failed")], it.failed)
            })
        })?;
        let asked = self.0.forward_auth();
        let help = "Requests that another service was to admit, by the result";
        families.counters("tidegate_forward_auth_requests", help, |series| {
            series(&[("result", "allowed")], asked.allowed)?;
            series(&[("result", "known")], asked.known)?;
            series(&[("result", "refused")], asked.refused)?;
            series(&[("result", "failed")], asked.failed)
        })?;
        let help = "Identities that were forgotten before their time, for want of room";
        families.counter("tidegate_known_identities_evicted", help, evicted)?;
        families.gauge(
            "tidegate_known_identities_max",
            "Most identities that are remembered",
            MAX_KNOWN as u64,
        )
    }
}
