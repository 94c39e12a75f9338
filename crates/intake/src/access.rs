//! The intake's view of a list of tokens: a trait that the binary implements.

use std::sync::Arc;

use thiserror::Error;

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Send metrics.
    Ingest,
    /// Read them.
    Read,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccessError {
    /// No token came, or one that is not known.
    #[error("a token is needed: authorization: Bearer ...")]
    Unknown,
    /// The token is known and has not this right.
    #[error("the token does not have the scope {:?}", word(.0))]
    Missing(Right),
}

const fn word(right: &Right) -> &'static str {
    match right {
        Right::Ingest => "ingest",
        Right::Read => "read",
    }
}

/// A list of tokens.
pub trait Access: Send + Sync + 'static {
    /// The name of the token that lets a request do `right`; `None`: it needs none.
    ///
    /// # Errors
    /// When a token is needed, and `secret` is not the secret of one with the right.
    fn admit(&self, right: Right, secret: Option<&[u8]>) -> Result<Option<Arc<str>>, AccessError>;
}

/// No tokens: everybody may do everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Access for Open {
    fn admit(&self, _right: Right, _secret: Option<&[u8]>) -> Result<Option<Arc<str>>, AccessError> {
        Ok(None)
    }
}
