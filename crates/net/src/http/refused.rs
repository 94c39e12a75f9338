//! Why a request of HTTP is refused before a service sees it. Which ones are is in [`super::framing`].

use http::StatusCode;

/// A request that is refused before a service sees it. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
}

impl Refused {
    pub(super) const MALFORMED: Self = Self::bad("the request's head is malformed");
    pub(super) const TOO_LARGE: Self =
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large");
    pub(super) const TARGET_TOO_LONG: Self =
        Self::new(StatusCode::URI_TOO_LONG, "the request's target is too long");
    pub(super) const BEHIND_UPGRADE: Self =
        Self::bad("bytes follow a request for an upgrade that was not answered yet");
    pub(super) const BARE_LF: Self = Self::bad("a line of the request's head does not end in CR LF");
    pub(super) const HOST: Self = Self::bad("a request has one Host field, and that names a host");
    pub(super) const LENGTH: Self =
        Self::bad("a request has at most one Content-Length field, of digits only");
    pub(super) const CODING: Self =
        Self::bad("Transfer-Encoding is chunked, once, without Content-Length, and not in an older version");
    pub(super) const TARGET: Self = Self::bad("the request's target is in no form that is served");
    pub(super) const CHUNKS: Self = Self::bad("the chunks of the body are malformed");
    pub(super) const OTHER_HOST: Self = Self::bad("the request's target and its Host field differ");
    pub(super) const TUNNEL: Self = Self::new(StatusCode::NOT_IMPLEMENTED, "there are no tunnels here");

    const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }

    const fn bad(reason: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    /// What a head that the parser refuses is answered.
    pub(super) fn unparsed(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TOO_LARGE,
            _ => Self::MALFORMED,
        }
    }
}
