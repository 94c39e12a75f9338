//! A record's steps as text: one member of a list (RFC 9651) for each, with the microseconds that it took.
//!
//! ```text
//!   normalise;us=4
//!   route;name="app";us=2
//!   verdict;policy="per-client";says=allowed;remaining=39
//!   limit;us=31
//!   breaker;of=upstream;state=closed
//!   pick;us=1
//!   attempt;upstream="app";server="127.0.0.1:3000";end=unreachable;us=210
//!   pick;us=1
//!   attempt;upstream="app";server="127.0.0.1:3001";end=200;connection=kept;us=830
//!   respond;status=200;us=6
//! ```
//!
//! `record`, the last phase, writes these lines, and has no line itself.
//!
//! In a reply each member is a field line of its own, which is the same list; in the access log they are one text.

use std::fmt::{self, Write};
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use tidegate_algorithms::breaker::Phase;

use super::{AttemptEnd, RecordedStep, RequestRecord, TRACE, What};

/// Most bytes of the members of one record; what is beyond is counted in a last one.
pub(super) const MAX_BYTES: usize = 4_096;

/// The word for what a breaker admits.
pub(crate) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Closed => "closed",
        Phase::Open => "open",
        Phase::HalfOpen => "half_open",
    }
}

/// Adds the members to a reply's fields.
pub(super) fn tell(record: &RequestRecord, fields: &mut HeaderMap) {
    members(record, |member| {
        // A name or an address that is no field value cannot be configured.
        if let Ok(line) = HeaderValue::from_str(member) {
            fields.append(TRACE, line);
        }
    });
}

/// The members as one text.
impl RequestRecord {
    pub(crate) fn trace(&self, text: &mut String) {
        members(self, |member| {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(member);
        });
    }

    /// The members, each for itself.
    pub(crate) fn steps_in_words(&self) -> Vec<String> {
        let mut all = Vec::with_capacity(self.steps.len());
        members(self, |member| all.push(member.to_owned()));
        all
    }
}

fn members(record: &RequestRecord, mut each: impl FnMut(&str)) {
    let mut member = String::with_capacity(128);
    let mut bytes = 0;
    for (index, step) in record.steps.iter().enumerate() {
        member.clear();
        // Invariant: writing to a String cannot fail.
        let _infallible = write_member(&mut member, record, step);
        bytes += member.len();
        if bytes > MAX_BYTES {
            return each(&format!("more;steps={}", record.steps.len() - index + record.left_out));
        }
        each(&member);
    }
    if record.left_out > 0 {
        each(&format!("more;steps={}", record.left_out));
    }
}

fn write_member(out: &mut String, record: &RequestRecord, step: &RecordedStep) -> fmt::Result {
    match &step.what {
        What::Normalise => out.push_str("normalise"),
        What::Route => {
            let route = record.route.as_ref().map(|route| &*route.config.name);
            write!(out, "route;name=\"{}\"", route.unwrap_or_default())?;
        }
        What::Shed => out.push_str("shed"),
        What::Authenticate => out.push_str("authenticate"),
        What::Answer => out.push_str("answer"),
        What::Verdict(verdict) => {
            let says = match (verdict.allowed, verdict.is_shadow) {
                (true, _) => "allowed",
                (false, true) => "shadow_denied",
                (false, false) => "denied",
            };
            let (policy, remaining) = (&verdict.policy, verdict.remaining);
            return write!(out, "verdict;policy=\"{policy}\";says={says};remaining={remaining}");
        }
        What::Limit => out.push_str("limit"),
        What::Breaker { of, state } => {
            return write!(out, "breaker;of={of};state={}", phase_word(*state));
        }
        What::Pick => out.push_str("pick"),
        What::Attempt { upstream, server, end, .. } => {
            let target = upstream.config.servers.get(*server).map(|server| &server.backend.target);
            write!(out, "attempt;upstream=\"{}\";server=\"", upstream.config.name)?;
            if let Some(target) = target {
                write!(out, "{target}")?;
            }
            out.push('"');
            match end {
                AttemptEnd::UnderWay => out.push_str(";end=client_left"),
                AttemptEnd::Reply { status, was_kept } => {
                    let connection = if *was_kept { "kept" } else { "new" };
                    write!(out, ";end={};connection={connection}", status.as_u16())?;
                }
                AttemptEnd::Failure(word) => write!(out, ";end={word}")?,
            }
        }
        What::Pause => out.push_str("pause"),
        What::Fallback => out.push_str("fallback"),
        What::Respond => {
            write!(out, "respond;status={}", record.status)?;
            if let Some(word) = record.refusal {
                write!(out, ";because={word}")?;
            }
        }
    }
    write!(out, ";us={}", micros(step.took))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
