//! Bodies of JSON that requests bring.

use axum::extract::FromRequest;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};

use crate::refusal::Refusal;

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
