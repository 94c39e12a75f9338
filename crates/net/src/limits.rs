//! The contract between a limiter and a service that serves traffic: whether something passes.
//!
//! ```text
//!   service: policies that are listed, a struct of what is known ──> Limits<A> ──> Ruling: passes, or a Denial
//! ```
//!
//! Each service has a struct of its own, `A`, for what it knows of its traffic, and the binary implements [`Limits`] for each of
//! them by the engine of the decision service. The service words a denial, since the service knows whether a request, a connection
//! or a batch was denied. A service asks nothing where no policies are listed, so that such traffic waits for no answer.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

/// A limiter of traffic of which `A` is known.
pub trait Limits<A>: fmt::Debug + Send + Sync + 'static {
    /// Charges traffic under the `policies` that are listed for it, and under no others. All are charged, or none.
    fn charge<'a>(&'a self, policies: &'a [Arc<str>], asked: &'a A) -> LimitsAnswer<'a, Ruling>;

    /// Hears of traffic for which no policies are listed, and which goes on without being charged.
    fn pass(&self, _asked: &A) {}

    /// What [`Limits::charge`] would say and why, for people. Nothing is charged.
    fn explain<'a>(&'a self, _policies: &'a [Arc<str>], _asked: &'a A) -> LimitsAnswer<'a, Value> {
        Box::pin(async { Value::Null })
    }

    /// Gives back what traffic was charged that could not be served after all.
    fn refund<'a>(&'a self, _policies: &'a [Arc<str>], _asked: &'a A) -> LimitsAnswer<'a, ()> {
        Box::pin(async {})
    }

    /// Charges up to `most` units of bytes before they are read, for traffic whose bytes are limited.
    fn take_units<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _asked: &'a A,
        most: u64,
    ) -> LimitsAnswer<'a, GrantedUnits> {
        Box::pin(async move { GrantedUnits { units: most, after: Duration::ZERO } })
    }

    /// Gives units back that were charged and did not come.
    fn give_units_back<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _asked: &'a A,
        _units: u64,
    ) -> LimitsAnswer<'a, ()> {
        Box::pin(async {})
    }
}

/// No limits at all: for a service for which no policies are listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl<A> Limits<A> for Unlimited {
    fn charge<'a>(&'a self, _policies: &'a [Arc<str>], _asked: &'a A) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async { Ruling::default() })
    }
}

/// What a limiter answers with.
pub type LimitsAnswer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why something does not pass the limits that are listed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A limit is used up.
    Quota {
        /// The policies that denied it.
        policies: Vec<String>,
    },
    /// None of the listed policies applies, and such traffic is denied.
    NoMatch,
    /// It can never pass: it costs more than a limit holds, or states what has no one reading.
    Invalid(String),
    /// A policy that is listed is not in force, so that its verdict is not known.
    NoPolicy {
        /// Its name.
        policy: String,
    },
    /// The limiter gave no answer.
    NoAnswer(String),
}

/// What becomes of traffic for which a policy is listed that is not in force: one rule for all services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingPolicy {
    /// It is not served, since the policy's verdict is not known.
    #[default]
    Deny,
    /// It is served without the policy.
    Allow,
}

impl MissingPolicy {
    /// Why traffic does not pass, where `missing` finds a listed policy that is not in force. It is asked only if that matters.
    pub fn denial<'p>(self, missing: impl FnOnce() -> Option<&'p Arc<str>>) -> Option<Denial> {
        match self {
            Self::Deny => missing().map(|policy| Denial::NoPolicy { policy: policy.to_string() }),
            Self::Allow => None,
        }
    }
}

/// What one policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVerdict {
    /// Its name.
    pub policy: Arc<str>,
    /// Whether it has room.
    pub allowed: bool,
    /// Whether it is only counted, and never denies.
    pub is_shadow: bool,
    /// What is left of it.
    pub remaining: u64,
}

/// What the limits say of one request, connection or batch.
#[derive(Debug, Default)]
pub struct Ruling {
    /// Set if it is denied.
    pub denial: Option<Denial>,
    /// Fields that tell the client where it stands, for the reply of either outcome: `Retry-After` among them if it is denied.
    pub fields: HeaderMap,
    /// What each policy says, if that was asked for.
    pub verdicts: Vec<PolicyVerdict>,
    /// What it holds until it has ended.
    pub held: Option<LimitPermit>,
}

/// Units of bytes that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedUnits {
    /// How many; 0: none yet, ask again.
    pub units: u64,
    /// How long to wait before that.
    pub after: Duration,
}

/// A permit of a concurrency limit. It is given back by being dropped.
pub struct LimitPermit {
    _it: Box<dyn Any + Send + Sync>,
}

impl LimitPermit {
    /// Holds `it`.
    pub fn new(it: impl Any + Send + Sync) -> Self {
        Self { _it: Box::new(it) }
    }
}

impl fmt::Debug for LimitPermit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LimitPermit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_policy_denies_by_its_name_and_is_not_looked_for_where_it_would_not_matter() {
        let few: Arc<str> = "few".into();
        let denial = Denial::NoPolicy { policy: "few".to_owned() };
        assert_eq!(MissingPolicy::default().denial(|| Some(&few)), Some(denial));
        assert_eq!(MissingPolicy::Deny.denial(|| None), None);
        assert_eq!(MissingPolicy::Allow.denial(|| unreachable!("it would not matter")), None);
    }
}
