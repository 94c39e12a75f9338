//! Why a request got no reply, as far as that says whether it may be sent again.

use std::error::Error;
use std::io;

use tidegate_net::http::BoxError;
use tidegate_upstream::failure::in_words;

use crate::forwarding::direct::Broken;

/// A request without a reply.
pub(crate) struct Unanswered {
    pub(crate) how: How,
    pub(crate) why: BoxError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Nothing was written.
    Unsent,
    /// The connection was closed.
    Closed,
    /// A server of HTTP/2 says that it has not looked at it (RFC 9113, 8.7).
    Refused,
    Broken,
}

impl Unanswered {
    /// What hyper's error says; `is_unsent` if it gave the request back.
    pub(crate) fn of_hyper(error: hyper::Error, is_unsent: bool) -> Self {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
        // Of the requests on a connection, only those get the error of a GOAWAY that came after the last that it names.
        let is_refused = cause.is_some_and(|cause| {
            cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
        });
        let how = match () {
            () if is_unsent => How::Unsent,
            () if error.is_incomplete_message() || error.is_closed() => How::Closed,
            () if is_refused => How::Refused,
            () => How::Broken,
        };
        Self { how, why: said_of(error) }
    }
}

/// What hyper says, with the code of HTTP/2 or the connection's error, which it keeps to itself. What else a server says of its reasons
/// is left out.
fn said_of(error: hyper::Error) -> BoxError {
    let cause = error.source();
    let code = cause.and_then(|cause| cause.downcast_ref::<h2::Error>()).and_then(h2::Error::reason);
    let of_connection = cause.and_then(|cause| cause.downcast_ref::<io::Error>()).map(in_words);
    match code.map(|code| code.to_string()).or(of_connection) {
        Some(reason) => format!("{error}: {reason}").into(),
        None => error.into(),
    }
}

impl From<Broken> for Unanswered {
    fn from(error: Broken) -> Self {
        let how = match error {
            Broken::Unwritten(_) => How::Unsent,
            Broken::Closed => How::Closed,
            _ => How::Broken,
        };
        Self { how, why: error.into() }
    }
}
