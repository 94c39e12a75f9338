//! A request as servers are sent it: at hand and as often as one likes, or once, while its body comes.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HeaderValue, TE};
use http::request::Parts;
use http::{Method, Request, Response};
use tidegate_wire::trace_context::TraceContext;

use crate::config::ServerConfig;
use crate::forwarding::direct::request_bytes;
use crate::forwarding::doubt::Doubt;
use crate::forwarding::expectation::Expectation;
use crate::forwarding::fields;
use crate::forwarding::offer::{Offer, is_agreed};
use crate::forwarding::payload::RequestPayload;
use crate::forwarding::progress::BodyProgress;
use crate::observed::flow::Flow;
use crate::servers::connection;

/// A request that can be sent, perhaps several times.
#[derive(Debug)]
pub(crate) struct Message {
    parts: Box<Parts>,
    payload: Payload,
    /// How far its body has come, if it is still coming.
    pub(crate) progress: Option<Arc<BodyProgress>>,
    /// The protocol in which client and server would go on, if the server agrees.
    pub(crate) upgrade: Option<Offer>,
    /// Its client waits until it is asked for the body.
    pub(crate) expectation: Option<Arc<Expectation>>,
}

#[derive(Debug)]
enum Payload {
    /// It can be sent as often as one likes.
    Whole(Bytes),
    /// It can be sent once; `None`: it was.
    Once(Option<RequestPayload>),
}

impl Message {
    pub(crate) fn new(mut parts: Box<Parts>, mut payload: RequestPayload, upgrade: Option<Offer>) -> Self {
        let expectation = Expectation::take(&mut parts, &mut payload);
        let progress = payload.progress();
        let payload = match payload {
            RequestPayload::Whole(bytes) => Payload::Whole(bytes),
            streaming => Payload::Once(Some(streaming)),
        };
        Self { parts, payload, progress, upgrade, expectation }
    }

    /// Nanoseconds in which no server could have answered, since the client had not sent its body.
    pub(crate) fn awaited(&self) -> u64 {
        self.progress.as_ref().map_or(0, |progress| progress.awaited())
    }

    /// Whether a server may be sent the request although another one may have obeyed it already: its
    /// method says that twice is as once (RFC 9110, 9.2.2), and its body is still at hand.
    pub(crate) fn is_repeatable(&self) -> bool {
        let is_idempotent = matches!(
            self.parts.method,
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
        );
        is_idempotent && matches!(self.payload, Payload::Whole(_))
    }

    /// The same once more, if it only asks (RFC 9110, 9.2.1), is at hand, and would not go on in another protocol.
    pub(crate) fn copy_to_ask(&self) -> Option<Self> {
        let asks = matches!(self.parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        match &self.payload {
            Payload::Whole(bytes) if asks && self.upgrade.is_none() => {
                Some(Self::new(self.parts.clone(), RequestPayload::Whole(bytes.clone()), None))
            }
            _ => None,
        }
    }

    /// The server is told this place in the trace, unless its route takes the field off.
    pub(crate) fn tell_trace(&mut self, trace: TraceContext) {
        if let Some(told) = self.parts.headers.get_mut(fields::TRACEPARENT) {
            *told = fields::digits(&trace.field());
        }
    }

    pub(crate) fn is_to_head(&self) -> bool {
        self.parts.method == Method::HEAD
    }

    /// Whether a server may take its connection for the client's own from now on.
    pub(crate) fn binds_connection(&self) -> bool {
        self.parts.headers.get_all(AUTHORIZATION).iter().any(fields::is_proof_of_connection)
    }

    /// Whether all of it can be sent now, again where it was sent before.
    pub(crate) fn is_at_hand(&self) -> bool {
        !matches!(self.payload, Payload::Once(None))
    }

    /// Whether its body is still coming, so that it can be sent once and takes its time.
    pub(crate) fn is_streaming(&self) -> bool {
        matches!(self.payload, Payload::Once(_))
    }

    /// What is sent to `server`, which is its host where the client named none; `None`: only hyper can send it.
    pub(crate) fn bytes(&self, server: &ServerConfig) -> Option<Vec<u8>> {
        match &self.payload {
            Payload::Whole(body) if self.upgrade.is_none() => {
                Some(request_bytes(&self.parts, body, || server.backend.target.to_string()))
            }
            _ => None,
        }
    }

    /// The same for hyper.
    pub(crate) fn take(&mut self, server: &ServerConfig, is_http2: bool) -> Option<Request<RequestPayload>> {
        let payload = match &mut self.payload {
            Payload::Whole(bytes) => RequestPayload::Whole(bytes.clone()),
            Payload::Once(payload) => payload.take()?,
        };
        let mut request = Request::new(payload);
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        let fields = request.headers_mut();
        // It speaks of this connection, and says so where connections have options (RFC 9110, 10.1.4).
        if !is_http2 && fields.contains_key(TE) {
            fields.append(CONNECTION, HeaderValue::from_static("te"));
        }
        if let Some(offer) = &self.upgrade {
            offer.make(fields);
        }
        if let Some(expectation) = &self.expectation {
            expectation.pass_on(&mut request, is_http2);
        }
        connection::addressed(request, server, is_http2)
    }

    /// Counts at a server what it is sent of the body: now what is at hand, as it passes what is still coming.
    pub(crate) fn goes_to(&mut self, server: &Arc<Flow>, core: usize) {
        match &mut self.payload {
            Payload::Whole(bytes) => server.request_bytes(core, bytes.len()),
            Payload::Once(Some(RequestPayload::Streaming(streaming))) => streaming.passing.goes_to(server),
            Payload::Once(_) => {}
        }
    }

    /// What is in doubt of a reply that goes on in another protocol, if that is not the one that was asked for.
    pub(crate) fn doubt<B>(&self, reply: &Response<B>) -> Option<Doubt> {
        (!is_agreed(reply, self.upgrade.as_ref())).then_some(Doubt::Upgrade)
    }

    pub(crate) fn give_back(&mut self, request: Request<RequestPayload>) {
        if let Payload::Once(payload) = &mut self.payload {
            *payload = Some(request.into_body());
        }
    }
}
