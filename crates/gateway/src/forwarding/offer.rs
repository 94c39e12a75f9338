//! A client's offer to go on in another protocol, as a server gets it, and whether the server has agreed.
//!
//! A server is made the offer in HTTP/1.1, whatever the client speaks: there it is a field of a request, which a server that
//! knows nothing of it answers as any other, and each server of WebSocket understands it.
//!
//! | client | what is asked | what the client is told | not agreed |
//! |---|---|---|---|
//! | HTTP/1.1 | with the client's own key; the client verifies the answer to it | 101 | the server's reply |
//! | HTTP/2, extended CONNECT (RFC 8441) | with a key of the gateway's, which verifies the answer | 200 | the server's reply; 502 for a success |
//! | the same with a key | with that key; the gateway verifies the answer and passes it on | 200 | the same |
//!
//! A client of HTTP/2 has no key of its own (RFC 8441, 5). A proxy such as Envoy sends its client's along, and leaves the answer to
//! whoever asks the server in HTTP/1.1.
//!
//! Deliberately absent: extended CONNECT towards servers. A server that speaks HTTP/2 alone is offered nothing: 502.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::config::RouteConfig;
use crate::forwarding::fields::{digits, offered_protocol};
use crate::random::random;
use crate::response::refusal::Refusal;
use crate::routes::normal::Normal;

/// What a server of WebSocket adds to a key before it takes its digest (RFC 6455, 1.3).
const WEBSOCKET: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An offer that a route lets pass.
#[derive(Debug)]
pub(crate) struct Offer {
    protocol: HeaderValue,
    /// For a client of HTTP/2 that wants WebSocket.
    key: Option<WebSocketKey>,
}

/// A key of WebSocket whose answer the gateway verifies, and what a server answers to it.
#[derive(Debug)]
struct WebSocketKey {
    key: HeaderValue,
    answer: HeaderValue,
    /// It is the gateway's own, so that its answer is nothing to the client.
    is_own: bool,
}

impl Offer {
    /// The offer of a request with these fields; `None`: it makes none, or its route lets it go on as a plain request. In
    /// the second case a request that asks for nothing but another protocol is refused.
    pub(crate) fn of(
        fields: &HeaderMap,
        route: &RouteConfig,
        normal: &Normal<'_>,
    ) -> Result<Option<Self>, Refusal> {
        let protocol = offered_protocol(fields, &route.upgrades).filter(|_| normal.may_upgrade);
        if protocol.is_none() && normal.must_go_on {
            return Err(Refusal::Unsupported(
                "this route does not allow the protocol that the request asks for",
            ));
        }
        Ok(protocol.map(|protocol| {
            let needs_key = normal.must_go_on && protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
            Self {
                protocol,
                key: needs_key
                    .then(|| WebSocketKey::stated(fields).unwrap_or_else(|| WebSocketKey::new(random()))),
            }
        }))
    }

    /// Makes the offer to a server, in a request of HTTP/1.1.
    pub(crate) fn make(&self, fields: &mut HeaderMap) {
        fields.append(CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(UPGRADE, self.protocol.clone());
        if let Some(WebSocketKey { key, .. }) = &self.key {
            fields.insert(SEC_WEBSOCKET_KEY, key.clone());
        }
    }

    /// Takes off a reply that has agreed what its client did not ask for.
    pub(crate) fn tell(&self, reply: &mut HeaderMap) {
        if self.key.as_ref().is_some_and(|key| key.is_own) {
            reply.remove(SEC_WEBSOCKET_ACCEPT);
        }
    }

    fn is_accepted(&self, reply: &HeaderMap) -> bool {
        let agreed = reply.get(UPGRADE);
        agreed.is_some_and(|agreed| agreed.as_bytes().eq_ignore_ascii_case(self.protocol.as_bytes()))
            && self.key.as_ref().is_none_or(|key| reply.get(SEC_WEBSOCKET_ACCEPT) == Some(&key.answer))
    }
}

impl WebSocketKey {
    /// Sixteen bytes by chance, which are no secret (RFC 6455, 4.1).
    fn new([first, second, _]: [u64; 3]) -> Self {
        let nonce = [first.to_be_bytes(), second.to_be_bytes()].concat();
        let key = STANDARD.encode(nonce);
        let answer = accepts(&key);
        Self { key: digits(key.as_bytes()), answer: digits(answer.as_bytes()), is_own: true }
    }

    /// The key that a request states, if it states one.
    fn stated(fields: &HeaderMap) -> Option<Self> {
        let mut lines = fields.get_all(SEC_WEBSOCKET_KEY).iter();
        let key = lines.next().filter(|_| lines.next().is_none())?;
        let answer = accepts(key.to_str().ok()?);
        Some(Self { key: key.clone(), answer: digits(answer.as_bytes()), is_own: false })
    }
}

/// Whether a reply that goes on in another protocol is what was asked for, if it is one.
pub(crate) fn is_agreed<B>(reply: &Response<B>, offer: Option<&Offer>) -> bool {
    reply.status() != StatusCode::SWITCHING_PROTOCOLS
        || offer.is_some_and(|offer| offer.is_accepted(reply.headers()))
}

/// What a server of WebSocket answers to a key (RFC 6455, 4.2.2).
fn accepts(key: &str) -> String {
    // Its strength is not needed: it shows that the other side knows WebSocket.
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{WEBSOCKET}").as_bytes());
    STANDARD.encode(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(key: Option<WebSocketKey>) -> Offer {
        Offer { protocol: HeaderValue::from_static("websocket"), key }
    }

    fn switched(fields: &[(&str, &str)]) -> Response<()> {
        let reply = Response::builder().status(101);
        let reply = fields.iter().fold(reply, |reply, (name, value)| reply.header(*name, *value));
        reply.body(()).expect("a reply")
    }

    #[test]
    fn the_answer_to_a_key_is_the_one_of_the_standard() {
        assert_eq!(accepts("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_client_of_http2_is_told_the_answer_to_a_key_that_it_has_stated() {
        let mut stated = HeaderMap::new();
        assert!(WebSocketKey::stated(&stated).is_none());
        stated.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        let answer = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        for (key, told) in
            [(WebSocketKey::stated(&stated), Some(answer)), (Some(WebSocketKey::new([1, 2, 3])), None)]
        {
            let offer = offer(key);
            let mut fields = HeaderMap::new();
            offer.make(&mut fields);
            assert_eq!(fields.get(SEC_WEBSOCKET_KEY) == stated.get(SEC_WEBSOCKET_KEY), told.is_some());
            let mut reply = switched(&[("upgrade", "websocket"), ("sec-websocket-accept", answer)]);
            assert_eq!(is_agreed(&reply, Some(&offer)), told.is_some());
            offer.tell(reply.headers_mut());
            let accept = reply.headers().get(SEC_WEBSOCKET_ACCEPT).and_then(|accept| accept.to_str().ok());
            assert_eq!(accept, told);
        }
        stated.append(SEC_WEBSOCKET_KEY, HeaderValue::from_static("other"));
        assert!(WebSocketKey::stated(&stated).is_none(), "which of them is asked");
    }

    #[test]
    fn a_server_has_agreed_only_if_it_names_the_protocol_and_knows_the_answer() {
        let own = offer(Some(WebSocketKey::new([1, 2, 3])));
        let mut fields = HeaderMap::new();
        own.make(&mut fields);
        let key = fields.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).expect("a key");
        assert_eq!(key, "AAAAAAAAAAEAAAAAAAAAAg==");
        let (right, wrong) = (accepts(key), accepts("other"));
        let name = ("upgrade", "WebSocket");
        assert!(is_agreed(&switched(&[name, ("sec-websocket-accept", &right)]), Some(&own)));
        for reply in [
            switched(&[name]),
            switched(&[name, ("sec-websocket-accept", &wrong)]),
            switched(&[("sec-websocket-accept", &right)]),
            switched(&[("upgrade", "other"), ("sec-websocket-accept", &right)]),
        ] {
            assert!(!is_agreed(&reply, Some(&own)), "{reply:?}");
        }
        // A client of HTTP/1.1 verifies the answer to its own key.
        assert!(is_agreed(&switched(&[name]), Some(&offer(None))));
        assert!(!is_agreed(&switched(&[name]), None), "nobody has asked");
        assert!(is_agreed(&Response::new(()), Some(&own)), "any other reply is passed on");
    }
}
