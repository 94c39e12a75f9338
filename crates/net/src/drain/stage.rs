//! The stages of a process's life, of which [`super::Drain`] tells the way.

/// Where in its life the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Not all parts are up.
    Starting,
    /// Serving.
    Ready,
    /// Serving, but asking to be left alone.
    Draining,
    /// No new connections.
    Closed,
    /// Idle connections are being closed.
    Sweeping,
    /// Streams in other protocols are being told the end.
    Ending,
    /// Nothing is served any more.
    Stopped,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Ready,
        Self::Draining,
        Self::Closed,
        Self::Sweeping,
        Self::Ending,
        Self::Stopped,
    ];

    /// The stage's name in logs, metrics and readiness answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Closed => "closed",
            Self::Sweeping => "sweeping",
            Self::Ending => "ending",
            Self::Stopped => "stopped",
        }
    }
}
