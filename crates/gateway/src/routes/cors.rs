//! CORS: which scripts in browsers may read a route's replies (as the Fetch standard has it). The gateway answers, so that
//! servers need not know.
//!
//! A preflight is answered by the route itself and reaches no server: 204 with what is allowed, or 403. Any other
//! request is forwarded as it is, and its reply, one of the gateway's own too, says whether the script may read it, and
//! which fields; what the server says about that is removed.
//!
//! A route without such rules leaves all of this to its servers, and may let preflights pass to them without credentials
//! (`skip_auth_preflight`): [`is_preflight`] says what is one.

use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tidegate_net::http::Body;

/// Fields of the gateway's own by which a client knows what to do next: where it stands, when it may come again, what it must prove.
/// A script is told what the client of another kind is.
const OWN: [&str; 9] = [
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "retry-after",
    "www-authenticate",
    "tidegate-degraded",
    "tidegate-no-match",
];

/// Whether a request only asks what a script may do: `OPTIONS` with one `Origin`, and one `Access-Control-Request-Method` that
/// names a method (the Fetch standard, 4.8). Servers do not agree on an empty or a second one, so such a request is not a
/// preflight.
pub(crate) fn is_preflight(request: &Parts) -> bool {
    let only = |name: HeaderName| {
        let mut lines = request.headers.get_all(name).iter();
        let (only, None) = (lines.next()?, lines.next()) else { return None };
        Some(only)
    };
    request.method == Method::OPTIONS
        && only(ORIGIN).is_some_and(|origin| !origin.is_empty())
        && only(ACCESS_CONTROL_REQUEST_METHOD).is_some_and(|name| Method::from_bytes(name.as_bytes()).is_ok())
}

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

    /// The answer to a preflight, if the request is one, before it is [marked](Self::mark).
    pub(crate) fn preflight(&self, request: &Parts) -> Option<Response<Body>> {
        if !is_preflight(request) {
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
        if let Some(exposed) = self.exposed(fields) {
            fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }

    /// What of a reply with these fields a script may read: what the route says, and what the gateway tells a client of itself.
    fn exposed(&self, fields: &HeaderMap) -> Option<HeaderValue> {
        let mut own = OWN.into_iter().filter(|name| fields.contains_key(*name)).peekable();
        if own.peek().is_none() {
            return self.expose.clone();
        }
        // Invariant: the configuration takes names only.
        let stated = self.expose.iter().filter_map(|names| names.to_str().ok());
        let names: Vec<&str> = stated.chain(own).collect();
        HeaderValue::try_from(names.join(", ")).ok()
    }
}

/// Lets the script that may read a reply to its call of gRPC-Web read how that ended, where the head says it.
pub(crate) fn expose_grpc_status(fields: &mut HeaderMap) {
    if fields.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        let names = HeaderValue::from_static("grpc-status, grpc-message");
        fields.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_preflight_is_beyond_doubt_or_none() {
        let is_one = |method: &str, fields: &[(&str, &str)]| {
            let mut request = Request::builder().method(method);
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            is_preflight(&request.body(()).unwrap().into_parts().0)
        };
        let (origin, asked) = (("origin", "https://a"), ("access-control-request-method", "PUT"));
        assert!(is_one("OPTIONS", &[origin, asked]));
        assert!(is_one("OPTIONS", &[("origin", "null"), ("access-control-request-method", "X-MINE")]));
        for (method, fields) in [
            ("GET", &[origin, asked][..]),
            ("options", &[origin, asked]),
            ("OPTIONS", &[]),
            ("OPTIONS", &[origin]),
            ("OPTIONS", &[asked]),
            ("OPTIONS", &[("origin", ""), asked]),
            ("OPTIONS", &[origin, origin, asked]),
            ("OPTIONS", &[origin, asked, asked]),
            ("OPTIONS", &[origin, ("access-control-request-method", "")]),
            ("OPTIONS", &[origin, ("access-control-request-method", "PUT, GET")]),
        ] {
            assert!(!is_one(method, fields), "{method} {fields:?}");
        }
    }
}
