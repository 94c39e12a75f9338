//! The gateway's view of a limiter: a trait that the binary implements.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;
use thiserror::Error;

pub use crate::identity::{Attested, Identity};

/// What is known of a request when its limits are asked for.
#[derive(Clone, Copy, Debug)]
pub struct LimitedRequest<'a> {
    /// The name of its route.
    pub route: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Its host, in lower case, without a port.
    pub host: &'a str,
    /// Its path, in normal form.
    pub path: &'a str,
    /// The same for a server that takes encoded slashes and backslashes for slashes; `None`: it has none.
    pub other_path: Option<&'a str>,
    /// Its query, as it came.
    pub query: &'a str,
    /// The client's address.
    pub client: IpAddr,
    /// Its header fields, as they came.
    pub fields: &'a HeaderMap,
    /// The name in the certificate that its connection showed.
    pub tls_name: Option<&'a str>,
    /// The identity that its client has proved.
    pub identity: Option<&'a Identity>,
    /// Whether it is a preflight that passes without credentials. Policies that need more of a request than where it comes from and
    /// what it asks for say nothing of it.
    pub is_preflight: bool,
    /// Whether somebody wants to know what each policy says.
    pub wants_verdicts: bool,
}

/// What one policy says of a request.
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

/// What the limits of a route say of one request.
#[derive(Debug, Default)]
pub struct Ruling {
    /// Set if the request is denied.
    pub denial: Option<Denial>,
    /// Fields that tell the client where it stands, for the reply of either outcome.
    pub fields: HeaderMap,
    /// What each policy says, if that was asked for.
    pub verdicts: Vec<PolicyVerdict>,
    /// What the request holds until its reply has ended.
    pub held: Option<Held>,
}

/// Something that is given back by being dropped: a permit of a concurrency limit.
pub struct Held {
    _it: Box<dyn Any + Send + Sync>,
}

impl Held {
    /// Holds `it`.
    pub fn new(it: impl Any + Send + Sync) -> Self {
        Self { _it: Box::new(it) }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Held")
    }
}

/// Why a request does not pass its route's limits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// Its limits are used up.
    #[error("the quota of a policy is used up")]
    Quota {
        /// The policies that denied it.
        policies: Vec<String>,
    },
    /// None of the listed policies applies to it, and such requests are denied.
    #[error("none of the route's policies applies to the request, and on_no_match is \"deny\"")]
    NoMatch,
    /// What it states has no one reading.
    #[error("{0}")]
    Invalid(String),
    /// A policy that its route lists is not in force, so that its verdict is not known.
    #[error("policy {policy:?}, which the route lists, is not in force")]
    NoPolicy {
        /// Its name.
        policy: String,
    },
    /// The limiter gave no answer.
    #[error("{0}")]
    NoAnswer(String),
}

/// A limiter.
pub trait Limits: Send + Sync + 'static {
    /// Charges a request under the `policies` that its route lists, and under no others. All are charged,
    /// or none.
    fn charge(
        &self,
        policies: &[Arc<str>],
        request: &LimitedRequest<'_>,
    ) -> impl Future<Output = Ruling> + Send;

    /// Hears of a request whose route lists no policies, which goes on without being charged.
    fn pass(&self) {}

    /// What [`Limits::charge`] would say and why, for people. Nothing is charged.
    fn explain(
        &self,
        policies: &[Arc<str>],
        request: &LimitedRequest<'_>,
    ) -> impl Future<Output = Value> + Send;
}

/// No limits at all: for a gateway whose routes list no policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    async fn charge(&self, _policies: &[Arc<str>], _request: &LimitedRequest<'_>) -> Ruling {
        Ruling::default()
    }

    async fn explain(&self, _policies: &[Arc<str>], _request: &LimitedRequest<'_>) -> Value {
        Value::Null
    }
}
