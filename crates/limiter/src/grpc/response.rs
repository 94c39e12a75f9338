//! Replies to calls: messages and trailers, or trailers alone.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use tidegate_net::http::Body;
use tidegate_wire::grpc::percent_encoded;

use super::status::Status;

/// The type of a call's body and of its answer's.
const CONTENT_TYPE: &str = "application/grpc";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// An answer with this body, which ends with trailers.
pub(super) fn streamed<B>(body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    answered(Body::streamed(body))
}

/// A message and, after it, the trailers that say that it is all.
pub(super) fn succeeded(message: Vec<u8>) -> Response<Body> {
    answered(Body::Trailed(message.into(), || {
        // As `trailers` has it, without formatting the 0.
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
        trailers
    }))
}

fn answered(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// The form without a body, whose headers are the trailers.
pub(super) fn failed(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.headers_mut() = trailers(status);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// What ends an answer.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert(GRPC_STATUS, HeaderValue::from(status.code.number()));
    if !status.message.is_empty() {
        let message = percent_encoded(status.message.as_bytes());
        let message = HeaderValue::try_from(message).unwrap_or(HeaderValue::from_static(""));
        trailers.insert(GRPC_MESSAGE, message);
    }
    trailers
}
