//! What becomes of a request that a route takes.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use super::redirect::Redirect;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes to an upstream.
    Forward {
        /// The upstream's name.
        upstream: Arc<str>,
    },
    /// Its client is sent elsewhere.
    Redirect(Redirect),
    /// It is answered here.
    Reply(StaticReply),
}

/// A reply that is always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticReply {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// Its body.
    pub body: Bytes,
}
