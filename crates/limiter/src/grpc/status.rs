//! How a call ends without an answer: gRPC's code, words, and the class under which it is counted.

use tidegate_access::tokens::Denial;
use tidegate_net::http::BodyError;
pub(super) use tidegate_wire::grpc::Code;
use tidegate_wire::rls::FrameError;

use crate::error::AskError;

/// Why a call has no answer, as a code of gRPC and words.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The HTTP status that means the same: on the wire each is a 200, which says nothing in metrics.
    pub(super) fn http_status(&self) -> u16 {
        match self.code {
            Code::Ok => 200,
            Code::InvalidArgument => 400,
            Code::NotFound => 404,
            Code::PermissionDenied => 403,
            Code::Unauthenticated => 401,
            Code::DeadlineExceeded => 408,
            Code::ResourceExhausted => 413,
            Code::Unimplemented => 501,
            Code::Unavailable => 503,
            Code::Unknown | Code::Internal => 500,
        }
    }
}

impl From<Denial> for Status {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Unknown => {
                Self::new(Code::Unauthenticated, "a token is needed: metadata authorization: Bearer ...")
            }
            Denial::Scope(_) => Self::new(Code::PermissionDenied, denial.to_string()),
        }
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
            BodyError::NoRoom => Code::Unavailable,
            BodyError::Broken(_) => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AskError> for Status {
    fn from(error: AskError) -> Self {
        let code = match error {
            AskError::Store(_) => Code::Unavailable,
            AskError::CostTooLarge(_) | AskError::PermitTooLong(_) => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}
