//! Envoy's rate-limit requests: from their descriptors to a question for the engine, and from its decision to the answer.
//!
//! A descriptor's entries are attributes, a repeated key's second one as `key#2`; the policies that match
//! them apply. Two more stand before them: `domain`, and `descriptor_keys`, which is the entries' keys in
//! their order with a `/` between them: by it a policy is about descriptors of this shape and no other,
//! as a rule of the reference service is. A descriptor to which no policy applies is within its limits and shows no
//! limit. If no policy applies to any descriptor of a request, `on_no_match` decides.
//!
//! Envoy lets a request through when it gets an error, unless it is told otherwise (`failure_mode_deny`). So nothing that a
//! client wrote makes one, whatever its bytes, length or encoding; errors are about what the operator's configuration sends.
//! A path has the readings that servers may make of it (fault 54), and more units than a limit can have are the most.
//!
//! An attribute with a source in `[attributes.grpc]` is the caller's, for every descriptor; an entry of the
//! same key is then not looked at.
//!
//! | in the request | meaning |
//! |---|---|
//! | `hits_addend` 0 or absent | 1 unit of each descriptor |
//! | a descriptor's `hits_addend` | its own units instead; 0 reads |
//! | a descriptor's `is_negative_hits` | its units are given back, if the request is allowed |
//! | a descriptor's `limit` | that instead of every policy, counted by the domain and all entries |
//!
//! The override is counted in fixed windows, months in calendar months of UTC: it states a number per
//! unit and nothing about bursts, and callers compare it with the reference service, whose windows begin
//! with the unit. A year is longer than any window here and is refused.
//!
//! An answer that was given without the store has the dynamic metadata `degraded`: `local`, `open` or
//! `closed`; one that `on_no_match` gave has `no_match`: `allowed` or `denied`.
//!
//! Envoy makes its headers from a status: the limit, what is left, and the seconds until it resets;
//! for a descriptor over its limit those are the seconds after which asking again pays.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use tidegate_algorithms::limit::{Calendar, FixedWindow, Limit, calendar::Period};
use tidegate_algorithms::policy::{Attributes, MAX_UNITS, Source, Sources};
use tidegate_algorithms::time::SECOND;
use tidegate_wire::path::readings;
use tidegate_wire::rls::{self, CurrentLimit, Descriptor, Duration, Override, Request, Response, Unit};

use super::{Code, Status};
use crate::ad_hoc::AdHoc;
use crate::decision::{Decision, Part};
use crate::engine::{Demand, Engine, OwnLimit};
use crate::sources::{self, SourceError};

/// Most descriptors of one request, and most entries of a descriptor. A request with more is denied.
const MAX_DESCRIPTORS: usize = 256;
const MAX_ENTRIES: usize = 256;
/// Seconds of a month, where a length is needed: of the longest.
const MONTH_SECONDS: u64 = 31 * 86_400;

/// The rate-limit service.
#[derive(Debug)]
pub(super) struct RateLimits {
    engine: Arc<Engine>,
    overrides: AdHoc,
}

impl RateLimits {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { overrides: AdHoc::new(engine.clone(), "RLS"), engine }
    }

    /// Decides all descriptors as one.
    pub(super) async fn decide(&self, request: &Request, caller: Caller<'_>) -> Result<Response, Status> {
        check(request)?;
        if is_too_large(request) {
            return Ok(Response::over_limit());
        }
        let set = self.engine.in_force();
        let sources = &set.sources().grpc;
        let of_caller = caller.attributes(sources, |name| set.uses(name))?;
        let of_caller = || of_caller.iter().map(|(name, value)| (*name, &**value));
        let values: Vec<Vec<DescriptorValue<'_>>> = request.descriptors.iter().map(values).collect();
        let pairs: Vec<Vec<(&str, &[u8])>> = values
            .iter()
            .map(|values| {
                let values = values.iter().map(|(name, value)| (&**name, &**value));
                let stated = std::iter::once(("domain", request.domain.as_bytes())).chain(values);
                of_caller().chain(stated.filter(|(name, _)| sources.of(name).is_none())).collect()
            })
            .collect();
        let mut demands = Vec::with_capacity(request.descriptors.len());
        for (descriptor, pairs) in request.descriptors.iter().zip(&pairs) {
            let units =
                descriptor.hits_addend.map_or(u64::from(request.hits_addend.max(1)), |hits| hits.value);
            let units = units.min(MAX_UNITS);
            let (cost, given_back) = if descriptor.is_negative_hits { (0, units) } else { (units, 0) };
            let own = descriptor.limit.map(|limit| self.own(limit)).transpose()?;
            demands.push(Demand { attributes: Attributes::new(pairs), cost, given_back, own });
        }
        let decisions = self.engine.decide_together(&demands).await?;
        Ok(Response {
            overall_code: code(decisions.iter().all(|decision| decision.allowed)),
            statuses: decisions.iter().map(status).collect(),
            dynamic_metadata: mark(&decisions),
        })
    }

    fn own(&self, limit: Override) -> Result<OwnLimit<'_>, Status> {
        let quota = u64::from(limit.requests_per_unit);
        if quota > MAX_UNITS {
            return Err(invalid(format!("requests_per_unit is {quota}, of at most {MAX_UNITS}")));
        }
        let (limit, window_seconds) = match (limit.unit(), limit.unit().seconds()) {
            (_, Some(seconds)) => {
                (Limit::FixedWindow(FixedWindow { limit: quota, seconds }), u64::from(seconds))
            }
            (Unit::Month, None) => {
                let zone = jiff::tz::TimeZone::UTC;
                (Limit::Calendar(Calendar { limit: quota, period: Period::Month, zone }), MONTH_SECONDS)
            }
            _ => return Err(invalid("unit must be SECOND, MINUTE, HOUR, DAY, WEEK or MONTH")),
        };
        Ok(OwnLimit { counters: &self.overrides, limit, quota, window_seconds })
    }
}

/// The caller, which is a proxy and not its client.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    /// The metadata of the call.
    pub(super) metadata: &'a HeaderMap,
    /// Where it came from.
    pub(super) address: IpAddr,
    /// The name in its certificate.
    pub(super) tls_name: Option<&'a str>,
}

impl Caller<'_> {
    fn attributes<'s>(
        &self,
        sources: &'s Sources,
        is_needed: impl Fn(&str) -> bool,
    ) -> Result<Vec<(&'s str, Vec<u8>)>, Status> {
        let found = sources.read(is_needed, |source| match source {
            Source::Header(name) => Ok(sources::header(self.metadata, name)?.map(<[u8]>::to_vec)),
            Source::Address => Ok(Some(sources::address_text(self.address).as_bytes().to_vec())),
            Source::TlsName => Ok(self.tls_name.map(|name| name.as_bytes().to_vec())),
            // The configuration accepts none of these for gRPC.
            Source::Cookie(_) | Source::Query(_) | Source::PathPart(_) => Ok(None),
        });
        found.map_err(|error: SourceError| invalid(error.to_string()))
    }
}

fn invalid(message: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, message)
}

fn check(request: &Request) -> Result<(), Status> {
    if request.domain.is_empty() {
        return Err(invalid("the domain is empty"));
    }
    if request.descriptors.is_empty() {
        return Err(invalid("there is no descriptor"));
    }
    if request.descriptors.iter().any(|descriptor| descriptor.entries.is_empty()) {
        return Err(invalid("a descriptor has no entry"));
    }
    Ok(())
}

fn is_too_large(request: &Request) -> bool {
    let has_many = |descriptor: &Descriptor| descriptor.entries.len() > MAX_ENTRIES;
    request.descriptors.len() > MAX_DESCRIPTORS || request.descriptors.iter().any(has_many)
}

/// The name of the attribute that says which keys a descriptor has, in which order.
const KEYS: &str = "descriptor_keys";

/// An attribute's name and value.
type DescriptorValue<'a> = (Cow<'a, str>, Cow<'a, [u8]>);

/// A descriptor's keys and entries; the one called `path` in every reading.
fn values(descriptor: &Descriptor) -> Vec<DescriptorValue<'_>> {
    let mut values: Vec<DescriptorValue<'_>> = Vec::with_capacity(1 + descriptor.entries.len());
    values.extend(keys(descriptor).map(|keys| (KEYS.into(), keys)));
    for (index, entry) in descriptor.entries.iter().enumerate() {
        let before = descriptor.entries[..index].iter().filter(|other| other.key == entry.key).count();
        let name = match before {
            0 => Cow::Borrowed(entry.key.as_str()),
            _ => Cow::Owned(format!("{}#{}", entry.key, before + 1)),
        };
        if entry.key == "path" {
            values.extend(readings(&entry.value).all().map(|reading| (name.clone(), reading)));
        } else {
            values.push((name, Cow::Borrowed(&entry.value)));
        }
    }
    values
}

fn keys(descriptor: &Descriptor) -> Option<Cow<'_, [u8]>> {
    let (first, rest) = descriptor.entries.split_first()?;
    if rest.is_empty() {
        return Some(Cow::Borrowed(first.key.as_bytes()));
    }
    let keys: Vec<&str> = descriptor.entries.iter().map(|entry| entry.key.as_str()).collect();
    Some(Cow::Owned(keys.join("/").into_bytes()))
}

/// What marks an answer that was given without the store, or without a policy.
fn mark(decisions: &[Decision]) -> Option<rls::Metadata> {
    if decisions.iter().all(Decision::no_match) {
        let answer = if decisions.iter().all(|decision| decision.allowed) { "allowed" } else { "denied" };
        return Some(rls::Metadata::of("no_match", answer));
    }
    let degraded = decisions.iter().find_map(|decision| decision.degraded)?;
    Some(rls::Metadata::of("degraded", degraded.word()))
}

fn code(allowed: bool) -> i32 {
    if allowed { rls::RateLimitCode::Ok.into() } else { rls::RateLimitCode::OverLimit.into() }
}

fn status(decision: &Decision) -> rls::DescriptorStatus {
    let deciding = decision.deciding();
    rls::DescriptorStatus {
        code: code(decision.allowed),
        current_limit: deciding.map(current_limit),
        limit_remaining: deciding.map_or(0, |part| narrow(part.verdict.remaining)),
        duration_until_reset: deciding.map(|part| duration(part.wait().unwrap_or(part.verdict.reset))),
    }
}

fn current_limit(part: &Part) -> CurrentLimit {
    let unit = match part.window_seconds {
        MONTH_SECONDS => Unit::Month,
        seconds => Unit::of_seconds(seconds),
    };
    CurrentLimit { requests_per_unit: narrow(part.quota), unit: unit.into(), name: part.policy.to_string() }
}

fn duration(nanos: u64) -> Duration {
    let seconds = i64::try_from(nanos / SECOND).unwrap_or(i64::MAX);
    Duration { seconds, nanos: i32::try_from(nanos % SECOND).unwrap_or(0) }
}

fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
