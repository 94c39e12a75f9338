//! What the gateway tells a limiter of a request.

use std::net::IpAddr;

use http::HeaderMap;
pub use tidegate_net::limits::{Denial, LimitPermit, Limits, LimitsAnswer, PolicyVerdict, Ruling, Unlimited};

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

/// A limiter of requests.
pub type RequestLimiter = dyn for<'r> Limits<LimitedRequest<'r>>;
