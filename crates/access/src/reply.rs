//! Replies and bodies of JSON.

use axum::extract::FromRequest;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;

use crate::refusal::Refusal;

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

/// Refuses a body that the headers do not announce as plain JSON.
///
/// # Errors
/// If they do not.
pub fn expect_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let field = |name| headers.get(name).map(HeaderValue::as_bytes);
    if is_json(field(CONTENT_TYPE), field(CONTENT_ENCODING)) { Ok(()) } else { Err(Refusal::not_json()) }
}

/// Whether these fields announce a plain JSON body. Asking for the exact media type is also what
/// keeps other origins' pages out: a browser sends it cross-origin only after a preflight.
#[must_use]
pub fn is_json(content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> bool {
    let media_type = content_type.unwrap_or_default();
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let plain = content_encoding.is_none_or(|encoding| encoding == b"identity");
    essence.eq_ignore_ascii_case(b"application/json") && plain
}

/// The bytes of a JSON body, for handlers behind the router.
#[derive(Debug)]
pub struct JsonBytes(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBytes {
    type Rejection = Refusal;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Refusal> {
        expect_json(request.headers())?;
        // Invariant: the body was read, and bounded, before the route was found.
        Bytes::from_request(request, state).await.map(Self).map_err(|_| Refusal::not_json())
    }
}
