//! How attempts and replies end.

use http::StatusCode;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// It has not, when the client left.
    UnderWay,
    /// With a reply, on a connection that was kept or a new one.
    Reply { status: StatusCode, was_kept: bool },
    /// Without one: the word for why.
    Failure(&'static str),
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it was handed to the client's connection.
    Complete,
    /// The client's connection ended before.
    ClientLeft,
    /// The server broke it off.
    BrokenOff,
    /// The server said nothing more in time.
    Silent,
    /// The time for the whole reply was over.
    TooLong,
    /// Both sides of an upgraded connection were silent for too long.
    Idle,
}

impl End {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientLeft => "client_left",
            Self::BrokenOff => "broken_off",
            Self::Silent => "silent",
            Self::TooLong => "too_long",
            Self::Idle => "idle",
        }
    }
}
