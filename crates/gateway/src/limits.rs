//! What the gateway asks of a limiter, which it does not know.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;
use thiserror::Error;

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
    /// Its query, as it came.
    pub query: &'a str,
    /// Whose request it is.
    pub client: IpAddr,
    /// Its header fields, as they came.
    pub fields: &'a HeaderMap,
}

/// What the limits of a route say of one request.
#[derive(Clone, Debug, Default)]
pub struct Ruling {
    /// Set if the request is denied.
    pub denial: Option<Denial>,
    /// Fields that tell the client where it stands, for the reply of either outcome.
    pub fields: HeaderMap,
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
