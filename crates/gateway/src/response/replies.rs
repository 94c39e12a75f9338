//! Replies on their way to the client: those of a server, and those that a route gives itself.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use http::header::{ALLOW, CONTENT_LENGTH, HeaderValue, LOCATION, UPGRADE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use tidegate_net::http::Body;
use tidegate_upstream::backend::Place;

use crate::config::{Redirect, RouteConfig, StaticReply};
use crate::forwarding::fields;
use crate::forwarding::offer::Offer;
use crate::response::body::{ReplyBody, ReplySource};
use crate::response::refusal::Refusal;
use crate::routes::route::Route;
use crate::routes::target::locate_outside;
use crate::servers::pool::Return;

/// Why a request is neither charged nor forwarded.
pub(crate) enum Early<'r> {
    /// Its route is out of service.
    Maintenance(&'r StaticReply),
    /// Its head is too large.
    HeadTooLarge(Refusal),
    /// It only asks what a script may do.
    Preflight(Response<Body>),
}

impl Early<'_> {
    /// The word for it in an explanation.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Maintenance(_) => "maintenance",
            Self::HeadTooLarge(refusal) => refusal.word(),
            Self::Preflight(_) => "preflight",
        }
    }

    /// The reply.
    pub(crate) fn reply(self) -> Response<Body> {
        match self {
            Self::Maintenance(reply) => static_reply(reply),
            Self::HeadTooLarge(refusal) => refusal.reply(),
            Self::Preflight(reply) => reply,
        }
    }
}

/// Whether there is a reply to a request before it is charged.
pub(crate) fn early<'r>(route: &'r RouteConfig, request: &Parts, client: IpAddr) -> Option<Early<'r>> {
    if let Some(maintenance) = &route.maintenance
        && !maintenance.allow.iter().any(|network| network.contains(client))
    {
        return Some(Early::Maintenance(&maintenance.reply));
    }
    if let Some(limit) = route.max_header_bytes {
        let fields = request.headers.iter();
        let bytes: usize = fields.map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > limit {
            return Some(Early::HeadTooLarge(Refusal::HeadTooLarge { limit }));
        }
    }
    route.cors.as_ref()?.preflight(request).map(Early::Preflight)
}

/// Whether a request asks about the gateway as a whole, and not about anything behind it (RFC 9110, 9.3.7): it reaches no route
/// and no server, so that nothing is charged for it.
pub(crate) fn is_about_the_gateway<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.uri().path() == "*"
}

/// The answer to that: the methods that routes can have, beside those that others invent.
pub(crate) fn about_the_gateway() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    response.headers_mut().insert(ALLOW, methods);
    response
}

/// Passes a reply on, until `last`. A reply that is there in one piece is sent as one, without a stream.
pub(crate) async fn respond(
    reply: Response<ReplySource>,
    route: &Route,
    mut back: Return,
    place: Place,
    is_head: bool,
    last: Option<Instant>,
) -> Response<Body> {
    let (mut head, mut source) = reply.into_parts();
    // Between the client and here; the server in front knows what the client speaks.
    head.version = Version::HTTP_11;
    if head.status == StatusCode::NO_CONTENT {
        head.headers.remove(CONTENT_LENGTH);
    }
    locate_outside(&mut head.headers, &route.config);
    fields::back(&mut head.headers, &route.config.response_fields);
    // HTTP/2 may say behind the head that no byte follows.
    let has_none = is_head || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if source.is_at_end(&back.sender) || has_none {
        back.at_once();
        return Response::from_parts(head, Body::Empty);
    }
    let first = poll_fn(|cx| Poll::Ready(source.poll_frame(&mut back.sender, cx))).await;
    let body = match first {
        Poll::Ready(Some(Ok(frame))) if source.is_at_end(&back.sender) && frame.is_data() => {
            let bytes = frame.into_data().unwrap_or_default();
            route.flow.reply_bytes(back.core, bytes.len());
            back.reply_bytes(bytes.len());
            back.at_once();
            Body::Full(bytes)
        }
        first => {
            let (back, route) = (back.of_route(&route.flow), Arc::clone(&route.config));
            Body::streamed(ReplyBody::new(source, first, route, last, back, place))
        }
    };
    Response::from_parts(head, body)
}

/// The head of a reply that agrees to an offer to go on in another protocol.
pub(crate) fn switching(
    reply: Response<ReplySource>,
    offer: Option<&Offer>,
    route: &Route,
) -> Response<Body> {
    let (mut head, _) = reply.into_parts();
    let protocol = head.headers.remove(UPGRADE);
    if let Some(offer) = offer {
        offer.tell(&mut head.headers);
    }
    fields::back(&mut head.headers, &route.config.response_fields);
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    head.version = Version::HTTP_11;
    Response::from_parts(head, Body::Empty)
}

/// A reply that sends a client elsewhere: of a request for this host and this target.
pub(crate) fn redirect(redirect: &Redirect, host: &str, target: &Uri) -> Result<Response<Body>, Refusal> {
    let location = redirect.location.for_request(host, target)?;
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = redirect.status;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// A reply that is always the same.
pub(crate) fn static_reply(reply: &StaticReply) -> Response<Body> {
    let mut response = Response::new(Body::Full(reply.body.clone()));
    *response.status_mut() = reply.status;
    for (name, value) in &reply.fields {
        response.headers_mut().append(name, value.clone());
    }
    response
}
