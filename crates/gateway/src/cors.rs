//! Which scripts in browsers may read a route's replies (CORS, as the Fetch standard has it), answered here so that
//! servers need not know.
//!
//! A preflight is answered by the route itself and reaches no server: 204 with what is allowed, or 403. Any other
//! request is forwarded as it is, and its reply, one of the gateway's own too, says whether the script may read it;
//! what the server says about that is removed.

use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tidegate_net::http::Body;

/// What scripts of other origins may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Whose scripts; `None`: anybody's.
    pub origins: Option<Vec<HeaderValue>>,
    /// With which methods, as one field's value.
    pub methods: HeaderValue,
    /// With which request fields; `None`: those that need no leave.
    pub headers: Option<HeaderValue>,
    /// Which fields of the reply they may read beside those that need no leave.
    pub expose: Option<HeaderValue>,
    /// Whether they may act for the browser's user. Never for anybody's scripts.
    pub credentials: bool,
    /// How long a browser may remember the answer to a preflight.
    pub max_age: Duration,
}

impl Cors {
    /// What a request's origin is answered, if it has one that is allowed.
    pub(crate) fn allowed(&self, fields: &HeaderMap) -> Option<HeaderValue> {
        let origin = fields.get(ORIGIN)?;
        match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }

    /// The answer to a preflight, if the request is one, before it is marked.
    pub(crate) fn preflight(&self, request: &Parts) -> Option<Response<Body>> {
        let is_preflight = request.method == Method::OPTIONS
            && request.headers.contains_key(ORIGIN)
            && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight {
            return None;
        }
        let is_allowed = self.allowed(&request.headers).is_some();
        let mut reply = Response::new(Body::Empty);
        *reply.status_mut() = if is_allowed { StatusCode::NO_CONTENT } else { StatusCode::FORBIDDEN };
        let fields = reply.headers_mut();
        if is_allowed {
            fields.insert(ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
            fields.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age.as_secs()));
            if let Some(headers) = &self.headers {
                fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
            }
        }
        Some(reply)
    }

    /// Says in a reply's fields whether the script of the `allowed` origin may read it.
    pub(crate) fn mark(&self, fields: &mut HeaderMap, allowed: Option<HeaderValue>) {
        for name in
            [ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_EXPOSE_HEADERS]
        {
            fields.remove(name);
        }
        if self.origins.is_some() {
            // A cache must not answer one origin with what was said to another.
            fields.append(VARY, HeaderValue::from_static("origin"));
        }
        let Some(origin) = allowed else { return };
        fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            fields.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        if let Some(expose) = &self.expose {
            fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, expose.clone());
        }
    }
}

/// Lets the script that may read a reply to its call of gRPC-Web read how that ended, where the head says it.
pub(crate) fn expose_grpc_status(fields: &mut HeaderMap) {
    if fields.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        let names = HeaderValue::from_static("grpc-status, grpc-message");
        fields.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
}
