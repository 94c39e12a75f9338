//! Plain HTTP on a listener with HTTPS: clients are redirected to `https://`, or browsers are told to use nothing else.

use http::header::{HOST, HeaderMap, HeaderValue, LOCATION, STRICT_TRANSPORT_SECURITY};
use http::{Request, Response, StatusCode};
use tidegate_net::http::Body;

use crate::response::refusal::Refusal;
use crate::routes::host::bare_host;

/// What a listener does about plain HTTP; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpsRules {
    /// The port of `https://` that every request is sent to.
    redirect_to: Option<u16>,
    /// `Strict-Transport-Security` (RFC 6797).
    hsts: Option<HeaderValue>,
}

impl HttpsRules {
    /// Every request is sent to the same host by TLS, on this port.
    #[must_use]
    pub fn redirecting_to(port: u16) -> Self {
        Self { redirect_to: Some(port), hsts: None }
    }

    /// Browsers are told to use TLS alone for so long.
    #[must_use]
    pub fn with_hsts(self, seconds: u64, subdomains: bool) -> Self {
        let names = if subdomains { "; includeSubDomains" } else { "" };
        Self { hsts: HeaderValue::try_from(format!("max-age={seconds}{names}")).ok(), ..self }
    }

    /// The redirect of a request, if it gets one: 308, so that it keeps its method and its body.
    pub(super) fn redirect<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let port = self.redirect_to?;
        let uri = request.uri();
        let host = match uri.authority() {
            Some(authority) => authority.as_str().as_bytes(),
            None => request.headers().get(HOST).map(HeaderValue::as_bytes).unwrap_or_default(),
        };
        let host = bare_host(&String::from_utf8_lossy(host));
        if host.is_empty() {
            return Some(Refusal::Malformed("the request names no host").reply());
        }
        let target = uri.path_and_query().map(|target| target.as_str()).filter(|path| path.starts_with('/'));
        let Some(target) = target else {
            return Some(Refusal::Unsupported("the target is no path").reply());
        };
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let Ok(location) = HeaderValue::try_from(format!("https://{host}{port}{target}")) else {
            return Some(Refusal::Unsupported("the host is no name").reply());
        };
        let mut reply = Response::new(Body::Empty);
        *reply.status_mut() = StatusCode::PERMANENT_REDIRECT;
        reply.headers_mut().insert(LOCATION, location);
        Some(reply)
    }

    /// Writes the field into a reply, in place of the server's.
    pub(super) fn mark(&self, reply: &mut HeaderMap) {
        if let Some(hsts) = &self.hsts {
            reply.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_to_the_same_place_by_tls() {
        let sent = |port: u16, target: &str, host: &str| {
            let mut request = Request::builder().uri(target);
            if !host.is_empty() {
                request = request.header(HOST, host);
            }
            let reply = HttpsRules::redirecting_to(port).redirect(&request.body(()).unwrap()).unwrap();
            let location = reply.headers().get(LOCATION).map(|value| value.to_str().unwrap().to_owned());
            (reply.status().as_u16(), location)
        };
        let to = |location: &str| (308, Some(location.to_owned()));
        assert_eq!(sent(443, "/a//b?c=%20", "Shop.Example:80"), to("https://shop.example/a//b?c=%20"));
        assert_eq!(sent(8443, "/", "[::1]:80"), to("https://[::1]:8443/"));
        assert_eq!(sent(443, "http://a.example:80/x", "b.example"), to("https://a.example/x"));
        assert_eq!(sent(443, "/", ""), (400, None));
        assert_eq!(sent(443, "*", "a"), (501, None));
        assert!(HttpsRules::default().redirect(&Request::new(())).is_none());
    }
}
