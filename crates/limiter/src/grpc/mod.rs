//! The decision service for Envoy: `envoy.service.ratelimit.v3.RateLimitService` over gRPC, and gRPC's
//! health service for whoever balances between instances.
//!
//! ```text
//!   net::http (HTTP/2) -> frame, message -> rate_limit: descriptors to demands -> engine
//!                                           decisions to statuses, in the same order
//! ```
//!
//! A unary call is a POST whose body is one length-prefixed message, answered by another and by
//! trailers. That is little enough to be written on the server that HTTP already has, with its permits,
//! deadlines and drain; see `docs/decisions/0030-grpc-by-hand.md`.
//!
//! Deliberately absent: compression (refused with UNIMPLEMENTED, as the protocol has it), streaming
//! (Health/Watch included: its clients fall back to Check), and `grpc-timeout`: Envoy's 20 ms are
//! enforced by Envoy, and the store has a deadline of its own.

mod rate_limit;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use prost::Message;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{Body, BodyError, Handle, Peer, Reply, RequestBody};
use tidegate_net::stats::Route;
use tidegate_wire::rls::{self, FrameError, MAX_MESSAGE_BYTES};

use crate::engine::Engine;
use crate::error::AskError;
use rate_limit::RateLimits;

/// The name under which health is asked for.
const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// Every route's template: the label values that metrics may use.
pub const TEMPLATES: &[&str] = &["other", RATE_LIMIT, HEALTH];

/// Answers gRPC calls.
#[derive(Debug)]
pub struct Service {
    limits: RateLimits,
    drain: Drain,
}

/// Why a call has no answer, as a code of gRPC and words.
#[derive(Debug)]
struct Status {
    code: Code,
    message: String,
}

/// The codes of gRPC that are used here.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
}

impl Service {
    /// A service for `engine` that reports healthy until `drain` begins.
    #[must_use]
    pub fn new(engine: Arc<Engine>, drain: Drain) -> Self {
        Self { limits: RateLimits::new(engine), drain }
    }

    async fn answer(&self, path: &str, body: RequestBody) -> Result<Vec<u8>, Status> {
        let body = body.bytes(MAX_MESSAGE_BYTES).await?;
        match path {
            RATE_LIMIT => Ok(rls::encode(&self.limits.decide(&rls::decode(&body)?).await?)),
            HEALTH => Ok(rls::encode(&self.health(&rls::decode(&body)?)?)),
            _ => Err(Status::new(Code::Unimplemented, "no such method")),
        }
    }

    fn health(&self, request: &HealthRequest) -> Result<HealthResponse, Status> {
        if !["", SERVICE].contains(&request.service.as_str()) {
            return Err(Status::new(Code::NotFound, "no such service"));
        }
        let serving = self.drain.stage() == Stage::Ready;
        Ok(HealthResponse { status: if serving { SERVING } else { NOT_SERVING } })
    }
}

impl Handle for Service {
    async fn handle(&self, request: Request<RequestBody>, _peer: &Peer) -> Reply {
        let (head, body) = request.into_parts();
        let content_type = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if head.method != Method::POST || !content_type.is_some_and(|it| it.starts_with(GRPC.as_bytes())) {
            return Reply::refusal(http::StatusCode::UNSUPPORTED_MEDIA_TYPE, "this listener speaks gRPC\n");
        }
        let path = head.uri.path();
        let route = TEMPLATES.iter().position(|known| *known == path).unwrap_or(0);
        let response = match self.answer(path, body).await {
            Ok(message) => succeeded(message),
            Err(status) => failed(&status),
        };
        Reply::new(Route::new(u8::try_from(route).unwrap_or(0)), response)
    }
}

/// `grpc.health.v1.HealthCheckRequest`
#[derive(Clone, PartialEq, Eq, Message)]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

const GRPC: &str = "application/grpc";
const GRPC_STATUS: &str = "grpc-status";

impl Status {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<FrameError> for Status {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::Compressed => Code::Unimplemented,
            FrameError::Frame | FrameError::Message(_) => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BodyError> for Status {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TooLarge { .. } => Code::ResourceExhausted,
            BodyError::TooSlow => Code::DeadlineExceeded,
            BodyError::Broken(_) => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AskError> for Status {
    fn from(error: AskError) -> Self {
        let code = match error {
            AskError::Store(_) => Code::Unavailable,
            AskError::ValueTooLong { .. } | AskError::CostTooLarge(_) | AskError::AmbiguousPath(_) => {
                Code::InvalidArgument
            }
        };
        Self::new(code, error.to_string())
    }
}

/// A message and, after it, the trailers that say that it is all.
fn succeeded(message: Vec<u8>) -> Response<Body> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    let body = Unary { message: Some(message.into()), trailers: Some(trailers) };
    let mut response = Response::new(Body::streamed(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

/// The form without a body, whose headers are the trailers.
fn failed(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(GRPC_STATUS, HeaderValue::from(status.code as u16));
    let message = percent_encoded(&status.message);
    headers.insert("grpc-message", HeaderValue::try_from(message).unwrap_or(HeaderValue::from_static("")));
    response
}

/// Status messages are printable ASCII, everything else and `%` percent-encoded.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// One message, then trailers.
struct Unary {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Unary {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let message = self.message.take().map(http_body::Frame::data);
        let frame = message.or_else(|| self.trailers.take().map(http_body::Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_messages_are_encoded_as_grpc_has_them() {
        assert_eq!(percent_encoded("50 % of \u{e9}\r\n"), "50 %25 of %C3%A9%0D%0A");
    }
}
