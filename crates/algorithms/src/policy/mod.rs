//! Policies: which requests a limit applies to, on what it is keyed, and what a denial means.
//!
//! ```text
//!   document (JSON or TOML)  --parse-->  Policy  --applies_to(attributes)-->  yes | no
//!     unknown keys refused                 |
//!     every mistake reported               `--key(attributes)-->  bytes that name one counter
//! ```
//!
//! A policy is matched on attributes (`client_id`, `resource`, `method`, `path`, `ip`, any other
//! name) and keyed on a chosen set of them. A request that lacks an attribute which the policy is
//! keyed on is not that policy's business: there is nothing to count it under. `explain` says so.
//!
//! Loading a policy is where every number is bounded (fault 14), so that the arithmetic in
//! [`crate::limit`] cannot overflow; the bounds are the constants below, in the docs by name.

mod attributes;
mod index;
mod parse;
mod sources;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::document::{MAX_MISTAKES, MAX_NAME_BYTES, Mistake};
use crate::limit::calendar::Period;
use crate::limit::{Bucket, Calendar, FixedWindow, Limit, SlidingCounter, SlidingLog, Slots};
pub use crate::nearest::{nearest, unknown_key};
use crate::time::SECOND;
pub use attributes::{Attributes, Pattern, counted, first_value, key_of};
pub use index::{MAX_UNINDEXED, MatchIndex};
pub use parse::{parse, parse_own_limit, parse_quota, parse_sources};
pub use sources::{Source, SourceForm, Sources};

/// Largest limit, burst and cost: a billion units.
pub const MAX_UNITS: u64 = 1_000_000_000;
/// Fastest bucket, in units per second: its emission interval is then 100 ns, rounded up by at most
/// 1 ns, so that a bucket is at most 1 % slower than it says.
pub const MAX_UNITS_PER_SECOND: u64 = 10_000_000;
/// Longest window: 90 days.
pub const MAX_WINDOW_SECONDS: u64 = 90 * 86_400;
/// Longest time that a full burst may take to come back, in nanoseconds: what a Redis script can
/// hold exactly in a double.
pub const MAX_SPAN: u64 = 1 << 53;
/// Longest permit lease: a day.
pub const MAX_LEASE_SECONDS: u64 = 86_400;
/// Most attributes that one policy matches or is keyed on.
pub const MAX_ATTRIBUTES: usize = 16;
/// Most tiers that one policy has numbers for.
pub const MAX_TIERS: usize = 64;
/// The attribute that says which tier a request belongs to.
pub const TIER: &str = "tier";
/// Most policies that one policy replaces.
pub const MAX_REPLACED: usize = 16;
/// Longest value of an attribute that is counted as it is, in bytes (fault 12); see [`counted`].
pub const MAX_VALUE_BYTES: usize = 512;

/// A checked policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name: lower-case letters, digits, `-`, `_` and `.`; it appears in headers and metrics.
    pub name: Arc<str>,
    /// What a request must look like for the policy to apply; all of them must hold.
    pub matches: Vec<(String, Pattern)>,
    /// The attributes whose values name a counter. Empty: one counter for everyone.
    pub key: Vec<String>,
    /// The numbers, before and after checking.
    pub quota: Quota,
    /// The numbers of requests whose attribute [`TIER`] has this value, under the same counters and the same
    /// algorithm: who changes tier keeps what is used.
    pub tiers: Vec<(Box<str>, Quota)>,
    /// Whether a denial is enforced.
    pub mode: Mode,
    /// What to answer when the store cannot.
    pub on_store_failure: OnStoreFailure,
    /// Names of policies that are left out of a request to which this one applies.
    pub replaces: Vec<String>,
}

/// The numbers of a policy, or of a client's override of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The numbers as they were written, defaults filled in.
    pub spec: QuotaSpec,
    /// The arithmetic made from them.
    pub limit: Limit,
}

/// The numbers of a quota as they are written in a document, defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSpec {
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// Units per window or period, or permits held at once. 0 denies everything.
    pub limit: u64,
    /// Length of the window in seconds; absent for concurrency and calendar quotas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
    /// Units at once, buckets only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Lease of a permit in seconds, concurrency only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    /// Day or month, calendar quotas only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// IANA name of the time zone, calendar quotas only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// The algorithms by the names that documents use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// See [`crate::limit::bucket`].
    TokenBucket,
    /// See [`crate::limit::bucket`].
    LeakyBucket,
    /// See [`crate::limit::fixed_window`].
    FixedWindow,
    /// See [`crate::limit::sliding_log`].
    SlidingLog,
    /// See [`crate::limit::sliding_counter`].
    SlidingCounter,
    /// See [`crate::limit::concurrency`].
    Concurrency,
    /// See [`crate::limit::calendar`].
    Calendar,
}

/// Whether a policy's denial is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A denial denies the request.
    #[default]
    Enforce,
    /// A denial is counted and shown, and the request goes through.
    Shadow,
}

/// What a policy answers while its store cannot (FAULTS, common rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// Count in this node's memory, against this node's share of the limit.
    #[default]
    Local,
    /// Allow.
    Open,
    /// Deny.
    Closed,
}

impl QuotaSpec {
    /// The arithmetic for these numbers, which [`parse()`] has checked. `zone` is the one that
    /// `time_zone` names.
    fn limit(&self, zone: jiff::tz::TimeZone) -> Limit {
        let seconds = self.window_seconds.unwrap_or(1);
        let window = seconds.saturating_mul(SECOND);
        let narrow = u32::try_from(seconds).unwrap_or(u32::MAX);
        let limit = self.limit;
        let bucket = || Bucket::new(limit, self.burst.unwrap_or(limit), window);
        match self.algorithm {
            Algorithm::TokenBucket => Limit::TokenBucket(bucket()),
            Algorithm::LeakyBucket => Limit::LeakyBucket(bucket()),
            Algorithm::FixedWindow => Limit::FixedWindow(FixedWindow { limit, seconds: narrow }),
            Algorithm::SlidingLog => Limit::SlidingLog(SlidingLog { limit, window }),
            Algorithm::SlidingCounter => Limit::SlidingCounter(SlidingCounter { limit, seconds: narrow }),
            Algorithm::Concurrency => {
                let lease = self.lease_seconds.unwrap_or(1).saturating_mul(SECOND);
                Limit::Concurrency(Slots { limit, lease })
            }
            Algorithm::Calendar => {
                Limit::Calendar(Calendar { limit, period: self.period.unwrap_or(Period::Day), zone })
            }
        }
    }

    /// The window that `RateLimit-Policy` states, in seconds: a day or 31 days for calendar quotas,
    /// the lease for permits.
    #[must_use]
    pub fn stated_window_seconds(&self) -> u64 {
        match (self.algorithm, self.period) {
            (Algorithm::Calendar, Some(Period::Month)) => 31 * 86_400,
            (Algorithm::Calendar, _) => 86_400,
            (Algorithm::Concurrency, _) => self.lease_seconds.unwrap_or(1),
            _ => self.window_seconds.unwrap_or(1),
        }
    }
}

impl Policy {
    /// The policy that a service starts with: 100 per 60 s per client, exactly.
    #[must_use]
    pub fn default_per_client() -> Self {
        let spec = QuotaSpec {
            algorithm: Algorithm::SlidingLog,
            limit: 100,
            window_seconds: Some(60),
            burst: None,
            lease_seconds: None,
            period: None,
            time_zone: None,
        };
        Self {
            name: Arc::from("default"),
            matches: Vec::new(),
            key: vec!["client_id".to_owned()],
            quota: Quota { limit: spec.limit(jiff::tz::TimeZone::UTC), spec },
            tiers: Vec::new(),
            mode: Mode::Enforce,
            on_store_failure: OnStoreFailure::Local,
            replaces: Vec::new(),
        }
    }

    /// The numbers that hold for these attributes: those of their tier, or the general ones.
    #[must_use]
    pub fn quota_of(&self, attributes: &Attributes<'_>) -> &Quota {
        let tier = if self.tiers.is_empty() { None } else { attributes.value(TIER) };
        let own = tier.and_then(|tier| self.tiers.iter().find(|(name, _)| name.as_bytes() == tier));
        own.map_or(&self.quota, |(_, quota)| quota)
    }

    /// Whether the policy applies: every pattern matches and every keyed attribute is present.
    #[must_use]
    pub fn applies_to(&self, attributes: &Attributes<'_>) -> bool {
        self.first_mismatch(attributes).is_none()
    }

    /// The attribute because of which the policy does not apply, if any.
    #[must_use]
    pub fn first_mismatch(&self, attributes: &Attributes<'_>) -> Option<&str> {
        let unmatched = self
            .matches
            .iter()
            .find(|(name, pattern)| !attributes.values(name).any(|value| pattern.matches(value)));
        let absent = || self.key.iter().find(|name| attributes.value(name).is_none());
        unmatched.map(|(name, _)| name.as_str()).or_else(|| absent().map(String::as_str))
    }

    /// The attributes that it looks at: those it matches, those it is keyed on, and the one that its tiers go by.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        let tier = (!self.tiers.is_empty()).then_some(TIER);
        self.matches.iter().map(|(name, _)| name).chain(&self.key).map(String::as_str).chain(tier)
    }

    /// The document that [`parse()`] would turn into this policy.
    #[must_use]
    pub fn document(&self) -> serde_json::Value {
        parse::document(self)
    }
}
