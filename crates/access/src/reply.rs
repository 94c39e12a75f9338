//! Replies of JSON.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

/// A reply whose body is whole.
pub type Reply = Response<Bytes>;

/// The media type of replies that are not problems.
pub const JSON: &str = "application/json";

/// A JSON reply from bytes.
#[must_use]
pub fn bytes(status: u16, body: Bytes) -> Reply {
    let mut reply = Response::new(body);
    // Invariant: statuses here are constants between 200 and 599.
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    reply
}

/// A 200 with a JSON document.
#[must_use]
pub fn json(value: &impl Serialize) -> Reply {
    // Invariant: reply types are plain structs with string keys, which always serialise.
    bytes(200, Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

/// A 204.
#[must_use]
pub fn no_content() -> Reply {
    let mut reply = Response::new(Bytes::new());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}
