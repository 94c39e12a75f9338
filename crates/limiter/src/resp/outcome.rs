//! How commands ended, for the counters of the listener.

use tidegate_net::stats::Route;
use tidegate_wire::resp::Encoder;

use super::throttle::ThrottleError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// Answered.
    Done,
    /// Answered with an error that is the client's.
    Refused,
    /// Answered with an error that is the store's.
    Failed,
    /// Answered for the last time: the connection ends.
    Over,
}

impl CommandOutcome {
    /// The class under which it is counted, as an HTTP status.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Done | Self::Over => 200,
            Self::Refused => 400,
            Self::Failed => 503,
        }
    }
}

/// The commands of a pipeline that were answered, in runs of the same.
#[derive(Debug, Default)]
pub(super) struct Answered {
    runs: Vec<(Route, CommandOutcome, u64)>,
}

impl Answered {
    /// One more.
    pub(super) fn push(&mut self, route: Route, outcome: CommandOutcome) {
        match self.runs.last_mut() {
            Some((last, how, count)) if (*last, *how) == (route, outcome) => *count += 1,
            _ => self.runs.push((route, outcome, 1)),
        }
    }

    /// All of them: what, how, and how many.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Route, CommandOutcome, u64)> {
        self.runs.drain(..)
    }
}

impl ThrottleError {
    /// Answers with the error.
    pub(super) fn answer(&self, out: &mut Encoder<'_>) -> CommandOutcome {
        out.error(self);
        if matches!(self, Self::Store(_)) { CommandOutcome::Failed } else { CommandOutcome::Refused }
    }
}
