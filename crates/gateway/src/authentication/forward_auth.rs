//! Authentication by another service: the gateway asks it before the request goes on, with the fields that the route
//! names, and obeys its answer.
//!
//! | the service's answer | what becomes of the request |
//! |---|---|
//! | 200 to 299 | it goes on; fields of the answer, by name, become fields for its server and attributes for limits; its cookies go to the client |
//! | 300 to 499 | it is refused by this answer: status, body up to [`MAX_BODY_BYTES`], fields by name |
//! | none in time, 5xx, or one that cannot be used | 503; or, with `on_error = "allow"`, it goes on as nobody's |
//!
//! The service is an upstream as any other: its servers, breaker, retries and bounds are those. What it admits is known for
//! a stated time by what the route names, and by nothing else: who names too little lets one client pass as another. Cookies of
//! an answer are not remembered: they are for the one client that it was about.
//!
//! It hears scheme, host and path as the server will, byte for byte: the path before the route's own changes
//! ([`crate::routes::target`]), the other two out of the very fields that the server gets. So it never decides about another request than
//! the one that is made.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use tidegate_access::jwt::MAX_CLAIM_BYTES;
use tidegate_net::clock::monotonic;
use tokio::time::timeout_at;

use crate::authentication::authority::{AdmittedRequest, Authority};
use crate::authentication::identity::{Attested, Identity};
use crate::config::ForwardAuth;
use crate::forwarding::fields::{FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO};
use crate::forwarding::forward::onward;
use crate::forwarding::message::Message;
use crate::forwarding::payload::RequestPayload;
use crate::response::body::ReplySource;
use crate::response::refusal::Refusal;
use crate::routes::normal::Normal;
use crate::routes::route::Route;
use crate::servers::connection::Sender;
use crate::service::Gateway;

/// Most bytes of a refusal's body; a larger one is left out.
pub const MAX_BODY_BYTES: usize = 64 << 10;

const FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

impl Gateway {
    /// Asks the route's authenticating service for the request's identity. `beside`: what tells the credentials apart that the route
    /// demands, too, if it does; they are no longer on the request.
    pub(crate) async fn ask_authority(
        &self,
        auth: &ForwardAuth,
        route: &Route,
        normal: &Normal<'_>,
        request: &Parts,
        beside: Option<[u8; 32]>,
    ) -> Result<AdmittedRequest, Refusal> {
        // Invariant: a route that asks a service was made with it.
        let authority = route.authority.as_ref().ok_or(Refusal::NoAuthority)?;
        let counts = self.forward_auth_counts();
        let digest = (auth.cache > 0).then(|| authority.digest(auth, normal, request, beside));
        let known = digest.and_then(|digest| self.known().get(&digest, self.tick()));
        if known.is_some() {
            counts.known.fetch_add(1, Relaxed);
            return Ok(known.into());
        }
        match self.ask(auth, authority, route, normal, request).await {
            Some(Ok((attested, cookies))) => {
                counts.allowed.fetch_add(1, Relaxed);
                let identity = Identity::Attested(Arc::new(attested));
                if let Some(digest) = digest {
                    let now = self.tick();
                    self.known().put(digest, identity.clone(), now.plus(auth.cache), now);
                }
                Ok(AdmittedRequest { identity: Some(identity), cookies })
            }
            Some(Err(refused)) => {
                counts.refused.fetch_add(1, Relaxed);
                Err(Refusal::ByAuthority(Box::new(refused)))
            }
            None => {
                counts.failed.fetch_add(1, Relaxed);
                if auth.allows_on_error { Ok(None.into()) } else { Err(Refusal::NoAuthority) }
            }
        }
    }

    /// What the service says; `None` if that is nothing.
    async fn ask(
        &self,
        auth: &ForwardAuth,
        authority: &Authority,
        route: &Route,
        normal: &Normal<'_>,
        request: &Parts,
    ) -> Option<Result<(Attested, Vec<HeaderValue>), Response<Bytes>>> {
        let deadline = monotonic() + auth.timeout;
        let mut told = request.headers.clone();
        onward(&mut told, request.version, route, normal, self.settings(), None);
        let mut message = question(auth, normal, request, &told)?;
        let answered = self.ask_server(route, &authority.upstream, normal, &mut message, deadline);
        // In its own time also if the route's fallback or its servers' patience is longer.
        let (answer, mut back, _place) = timeout_at(deadline.into(), answered).await.ok()?.ok()?;
        let (head, body) = answer.into_parts();
        if head.status.is_server_error() || head.status.is_informational() {
            return None;
        }
        let body = timeout_at(deadline.into(), whole(body, &mut back.sender)).await.ok().flatten();
        if body.is_some() {
            // Its end has come, so that the connection is free.
            back.now();
        }
        if head.status.is_success() {
            let attested = attested(auth, &head.headers)?;
            return Some(Ok((attested, cookies(auth, &head.headers))));
        }
        Some(Err(refused(auth, head.status, &head.headers, body.unwrap_or_default())))
    }
}

/// What the service is asked: with the request's own words, what the gateway knows of it, and scheme and host as its server is
/// `told` them.
fn question(auth: &ForwardAuth, normal: &Normal<'_>, request: &Parts, told: &HeaderMap) -> Option<Message> {
    let mut asked = Request::new(());
    *asked.uri_mut() = Uri::from(auth.path.clone());
    let fields = asked.headers_mut();
    for name in &auth.send {
        for value in request.headers.get_all(name) {
            fields.append(name, value.clone());
        }
    }
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let address = normal.client.to_canonical().to_string();
    for (name, text) in
        [(FORWARDED_METHOD, request.method.as_str()), (FORWARDED_URI, target), (FORWARDED_FOR, &address)]
    {
        fields.insert(name, HeaderValue::from_str(text).ok()?);
    }
    for name in [FORWARDED_PROTO, FORWARDED_HOST] {
        fields.remove(&name);
        for value in told.get_all(&name) {
            fields.append(&name, value.clone());
        }
    }
    let (parts, ()) = asked.into_parts();
    Some(Message::new(Box::new(parts), RequestPayload::Whole(Bytes::new()), None))
}

/// What an answer that admits says of the client; `None` if that cannot be used.
fn attested(auth: &ForwardAuth, answer: &HeaderMap) -> Option<Attested> {
    let mut said = Attested::default();
    for (name, field) in &auth.attributes {
        let value = match joined(answer, field) {
            None => None,
            Some(value) => {
                let text = value.to_str().ok().filter(|text| text.len() <= MAX_CLAIM_BYTES)?;
                Some(Box::from(text))
            }
        };
        said.attributes.push((Arc::clone(name), value));
    }
    for name in &auth.fields {
        said.fields.extend(joined(answer, name).map(|value| (name.clone(), value)));
    }
    Some(said)
}

/// What the client of a request that is admitted is to keep, unless the route passes no cookies back.
fn cookies(auth: &ForwardAuth, answer: &HeaderMap) -> Vec<HeaderValue> {
    let all = || answer.get_all(SET_COOKIE).iter().cloned().collect();
    if auth.pass_back.contains(&SET_COOKIE) { all() } else { Vec::new() }
}

/// The value of a field; of several lines one (RFC 9110, 5.3).
fn joined(fields: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let lines: Vec<&[u8]> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() { None } else { HeaderValue::from_bytes(&lines.join(&b", "[..])).ok() }
}

/// What the client is told by the service.
fn refused(auth: &ForwardAuth, status: StatusCode, answer: &HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    for name in &auth.pass_back {
        for value in answer.get_all(name) {
            reply.headers_mut().append(name, value.clone());
        }
    }
    reply
}

/// A body, if it is small and ends.
async fn whole(mut body: ReplySource, sender: &mut Sender) -> Option<Bytes> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| body.poll_frame(sender, cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MAX_BODY_BYTES {
            return None;
        }
    }
    Some(bytes.into())
}
