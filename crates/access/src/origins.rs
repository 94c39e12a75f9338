//! Pages in browsers: which `Host` and `Origin` are accepted (fault 51), and CORS.
//!
//! A browser lets a page of `attacker.example` send requests to its own name, and that name may resolve
//! to 127.0.0.1 the second time it is looked up (DNS rebinding). Such a request comes from loopback and
//! is same-origin to the browser; only its `Host` gives it away. So where no token is demanded, the
//! configuration is for requests that name a loopback host or one of `http.allowed_hosts`, and whose
//! `Origin` is absent, the host's own, or one of `http.cors_origins`. Decisions take any host, since
//! proxies pass their clients' on.
//!
//! CORS (the Fetch standard, 3.2) is off unless origins are configured. A listed origin gets preflights
//! answered and may read replies. Credentials are never allowed: a token is sent on purpose, in
//! `authorization`. The cookie of a session ([`crate::sessions`]) is for pages of this server itself, so a request
//! that has it must come from there ([`TrustedOrigins::expect_own`]).

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{self, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Response, Uri};

use crate::reply;

/// What a page may send beyond the fields that every page may.
const CORS_REQUEST_FIELDS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, if-match, if-none-match, traceparent");
const CORS_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
/// What a page may read beyond the fields that every page may.
const CORS_REPLY_FIELDS: HeaderValue = HeaderValue::from_static(
    "etag, ratelimit, ratelimit-policy, retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
);
/// Seconds for which a browser may remember a preflight's answer.
const CORS_MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// A request that a page of another site may have sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignPage {
    /// The host that it names is not this machine's.
    #[error("the host is {0:?}")]
    Host(String),
    /// The origin that it names is not trusted.
    #[error("the origin is {0:?}")]
    Origin(String),
    /// It is made by a session's cookie, and its origin is not this server.
    #[error("the origin of a session's request is {0:?}")]
    Session(String),
}

/// The hosts and origins that are trusted beside this machine's own. All in lower case.
#[derive(Clone, Debug, Default)]
pub struct TrustedOrigins {
    /// Hosts under which the configuration may be reached without a token: `name` or `name:port`.
    pub hosts: Vec<String>,
    /// Origins whose pages may ask: `scheme://host` or `scheme://host:port`.
    pub cors: Vec<String>,
}

impl TrustedOrigins {
    /// Refuses what a page of another site may have sent.
    ///
    /// # Errors
    /// If its host or its origin is not trusted.
    pub fn expect_local(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignPage> {
        let fields = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        let in_target = uri.authority().map(|authority| authority.as_str().as_bytes());
        let mut named = in_target.into_iter().chain(fields).peekable();
        if named.peek().is_none() {
            return Err(ForeignPage::Host("(none)".to_owned()));
        }
        let hosts: Vec<&[u8]> = named.collect();
        if let Some(foreign) = hosts.iter().find(|host| !self.is_trusted_host(host)) {
            return Err(ForeignPage::Host(foreign.escape_ascii().to_string()));
        }
        let mut origins = headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes);
        match origins.find(|origin| !self.lists(origin) && !hosts.iter().all(|host| is_own(origin, host))) {
            Some(foreign) => Err(ForeignPage::Origin(foreign.escape_ascii().to_string())),
            None => Ok(()),
        }
    }

    /// Refuses a request by cookie that a page of another origin may have sent. A request without an origin passes
    /// unless `must_be_named`.
    ///
    /// # Errors
    /// If its origin is not its host's own.
    pub fn expect_own(uri: &Uri, headers: &HeaderMap, must_be_named: bool) -> Result<(), ForeignPage> {
        let in_target = uri.authority().map(|authority| authority.as_str().as_bytes());
        let hosts = || in_target.into_iter().chain(headers.get_all(HOST).iter().map(HeaderValue::as_bytes));
        let mut origins = headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes).peekable();
        if origins.peek().is_none() && must_be_named {
            return Err(ForeignPage::Session("(none)".to_owned()));
        }
        let has_host = hosts().next().is_some();
        match origins.find(|origin| !has_host || !hosts().all(|host| is_own(origin, host))) {
            Some(foreign) => Err(ForeignPage::Session(foreign.escape_ascii().to_string())),
            None => Ok(()),
        }
    }

    fn is_trusted_host(&self, host: &[u8]) -> bool {
        let Ok(authority) = Authority::try_from(host) else { return false };
        let name = authority.host();
        // A browser never sends a user before the host, or a port that is not a number.
        if authority.as_str() != name && authority.port_u16().is_none() || authority.as_str().contains('@') {
            return false;
        }
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        name.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
            || self
                .hosts
                .iter()
                .any(|it| it.eq_ignore_ascii_case(name) || it.eq_ignore_ascii_case(authority.as_str()))
    }

    fn lists(&self, origin: &[u8]) -> bool {
        self.cors.iter().any(|listed| listed.as_bytes() == origin)
    }

    /// Whether the reply to such a request says which origin may read it, or that it is another one for others.
    #[must_use]
    pub fn concerns(&self, method: &str, origin: Option<&[u8]>) -> bool {
        !self.cors.is_empty() && (origin.is_some() || matches!(method, "GET" | "HEAD"))
    }

    /// The answer to a listed origin's question whether it may send a request; `None`: it is no such
    /// question.
    pub(crate) fn preflight(&self, head: &Parts) -> Option<Response<Bytes>> {
        let asks = head.method == Method::OPTIONS
            && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !asks || !head.headers.get(ORIGIN).is_some_and(|origin| self.lists(origin.as_bytes())) {
            return None;
        }
        let mut reply = reply::no_content();
        let fields = reply.headers_mut();
        fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, CORS_METHODS);
        fields.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, CORS_REQUEST_FIELDS);
        fields.insert(header::ACCESS_CONTROL_MAX_AGE, CORS_MAX_AGE);
        Some(reply)
    }

    /// What the reply to a request needs so that the page that sent it may read it.
    pub(crate) fn permission(&self, head: &Parts) -> Permission {
        if self.cors.is_empty() {
            return Permission::default();
        }
        let origin = head.headers.get(ORIGIN);
        Permission {
            origin: origin.filter(|origin| self.lists(origin.as_bytes())).cloned(),
            varies: self.concerns(head.method.as_str(), origin.map(HeaderValue::as_bytes)),
        }
    }
}

/// What CORS adds to a reply.
#[derive(Debug, Default)]
pub(crate) struct Permission {
    /// Who may read it.
    origin: Option<HeaderValue>,
    /// Whether a cache may keep it for this origin only.
    varies: bool,
}

impl Permission {
    /// Adds it.
    pub(crate) fn put<B>(self, response: &mut Response<B>) {
        let fields = response.headers_mut();
        if self.varies {
            fields.append(VARY, HeaderValue::from_name(HeaderName::from_static("origin")));
        }
        if let Some(origin) = self.origin {
            fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            fields.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, CORS_REPLY_FIELDS);
        }
    }
}

/// Whether `origin` is that of the pages that `host` itself serves. The scheme is not compared: one
/// listener speaks either.
fn is_own(origin: &[u8], host: &[u8]) -> bool {
    let after = origin.windows(3).position(|window| window == b"://").map(|at| &origin[at + 3..]);
    after.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(hosts: &[&str], cors: &[&str]) -> TrustedOrigins {
        let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        TrustedOrigins { hosts: owned(hosts), cors: owned(cors) }
    }

    fn is_local(trusted: &TrustedOrigins, target: &str, fields: &[(&str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        trusted.expect_local(&target.parse().unwrap(), &headers).is_ok()
    }

    #[test]
    fn fault_51_only_hosts_of_this_machine_or_of_the_list_are_local() {
        let rules = trusted(&["admin.example", "other.example:8443"], &[]);
        for host in [
            "localhost",
            "LocalHost:4000",
            "127.0.0.1:4000",
            "127.9.9.9",
            "[::1]:4000",
            "[::ffff:127.0.0.1]",
            "admin.example",
            "Admin.Example:9",
            "other.example:8443",
        ] {
            assert!(is_local(&rules, "/v1/policies", &[("host", host)]), "{host}");
        }
        for host in [
            "attacker.example",
            "localhost.attacker.example",
            "127.0.0.1.attacker.example",
            "localhost.",
            "other.example",
            "10.0.0.1",
            "[fe80::1]",
            "user@127.0.0.1",
            "127.0.0.1:x",
            "",
            "0.0.0.0",
        ] {
            assert!(!is_local(&rules, "/v1/policies", &[("host", host)]), "{host}");
        }
        assert!(!is_local(&rules, "/v1/policies", &[]), "no host at all");
        let two = [("host", "127.0.0.1"), ("host", "attacker.example")];
        assert!(!is_local(&rules, "/v1/policies", &two), "two hosts");
        let in_target = "http://attacker.example/v1/policies";
        assert!(!is_local(&rules, in_target, &[("host", "127.0.0.1")]), "the target's own host");
    }

    #[test]
    fn fault_51_an_origin_is_absent_the_hosts_own_or_listed() {
        let rules = trusted(&[], &["https://console.example"]);
        let local = |origin| is_local(&rules, "/", &[("host", "127.0.0.1:4000"), ("origin", origin)]);
        assert!(local("http://127.0.0.1:4000"));
        assert!(local("https://console.example"));
        for foreign in [
            "null",
            "http://attacker.example",
            "http://127.0.0.1:4001",
            "http://localhost:4000",
            "https://console.example.attacker.example",
            "127.0.0.1:4000",
            "",
        ] {
            assert!(!local(foreign), "{foreign}");
        }
    }
}
