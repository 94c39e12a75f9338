//! The gateway's view of a limiter: a trait that the binary implements.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;
pub use tidegate_net::limits::{Denial, LimitPermit, LimitsAnswer, PolicyVerdict, Ruling};

pub use crate::authentication::identity::{Attested, Identity};

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

/// A limiter.
pub trait Limits: fmt::Debug + Send + Sync + 'static {
    /// Charges a request under the `policies` that its route lists, and under no others. All are charged,
    /// or none.
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'a>,
    ) -> LimitsAnswer<'a, Ruling>;

    /// Hears of a request whose route lists no policies, which goes on without being charged.
    fn pass(&self, _request: &LimitedRequest<'_>) {}

    /// What [`Limits::charge`] would say and why, for people. Nothing is charged.
    fn explain<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'a>,
    ) -> LimitsAnswer<'a, Value>;
}

/// No limits at all: for a gateway whose routes list no policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    fn charge<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _request: &'a LimitedRequest<'a>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async { Ruling::default() })
    }

    fn explain<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _request: &'a LimitedRequest<'a>,
    ) -> LimitsAnswer<'a, Value> {
        Box::pin(async { Value::Null })
    }
}
