//! The two commands that decide, each as the program it comes from answers.
//!
//! | | `CL.THROTTLE key max_burst count period [quantity]` | `THROTTLE key max_burst count period [quantity]` |
//! |---|---|---|
//! | from | redis-cell, a module of Redis | throttlecrab, a server |
//! | units at once | `max_burst + 1` | `max_burst` |
//! | reply | limited, limit, remaining, retry, reset | allowed, limit, remaining, reset, retry |
//! | retry if allowed | -1 | 0 |
//! | retry if never | -1 | the period |
//!
//! Times are seconds. redis-cell drops what is below a millisecond and rounds the rest up; that is
//! kept, but for the retry of a denial, which is at least 1: redis-cell tells a client that has to wait for
//! half a millisecond to wait for 0 s, and it asks again at once. throttlecrab rounds down, so that a client that
//! waits as it was told is denied again; here they are rounded up.
//!
//! What differs from redis-cell on purpose: a key whose numbers change keeps its used units and not
//! its debt in time (the house's rule for every limit); the emission interval is rounded up by less
//! than a nanosecond, not down; a negative quantity is an error and not a refund.

use thiserror::Error;
use tidegate_algorithms::limit::{Limit, Verdict, Wait};
use tidegate_algorithms::time::SECOND;
use tidegate_store::StoreError;
use tidegate_wire::resp::{Command, Encoder};

use crate::ad_hoc::{BadBucket, bucket};
use crate::error::AskError;

/// Whose words to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `CL.THROTTLE`
    Cell,
    /// `THROTTLE`
    Crab,
}

/// Why a throttle command is answered with an error.
#[derive(Debug, Error)]
pub(super) enum ThrottleError {
    #[error("Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")]
    CellUsage,
    #[error("ERR wrong number of arguments for 'throttle' command")]
    CrabUsage,
    #[error("Cell error: Couldn't parse as integer: {}", .0.escape_ascii())]
    CellNumber(Box<[u8]>),
    #[error("ERR invalid {0}")]
    CrabNumber(&'static str),
    #[error("Cell error: Zero rates are not supported")]
    ZeroRate,
    #[error("ERR {0} is negative")]
    Negative(&'static str),
    #[error("ERR {0}")]
    Bucket(#[from] BadBucket),
    #[error("ERR {0}")]
    Ask(#[from] AskError),
    #[error("ERR {0}")]
    Store(#[from] StoreError),
}

/// A throttle command's arguments, checked.
#[derive(Debug)]
pub(super) struct ThrottleRequest<'a> {
    pub(super) key: &'a [u8],
    pub(super) limit: Limit,
    pub(super) period: u64,
    pub(super) quantity: u64,
}

impl Dialect {
    /// Answers with a verdict on a request whose period this is.
    pub(super) fn reply(self, verdict: &Verdict, period: u64, out: &mut Encoder<'_>) {
        match self {
            Self::Cell => cell_reply(verdict, out),
            Self::Crab => crab_reply(verdict, period, out),
        }
    }

    /// A command's arguments.
    pub(super) fn request(self, command: Command<'_>) -> Result<ThrottleRequest<'_>, ThrottleError> {
        let (5 | 6, Some(key)) = (command.arguments(), command.argument(1)) else { return Err(self.usage()) };
        let burst = self.number(command, 2, "max_burst")?;
        let count = self.number(command, 3, "count_per_period")?;
        let period = self.number(command, 4, "period")?;
        let quantity = if command.arguments() == 6 { self.number(command, 5, "quantity")? } else { 1 };
        let burst = match self {
            Self::Cell if count == 0 || period == 0 => return Err(ThrottleError::ZeroRate),
            Self::Cell => burst.saturating_add(1),
            Self::Crab => burst,
        };
        Ok(ThrottleRequest { key, limit: bucket(burst, count, period)?, period, quantity })
    }

    fn usage(self) -> ThrottleError {
        match self {
            Self::Cell => ThrottleError::CellUsage,
            Self::Crab => ThrottleError::CrabUsage,
        }
    }

    fn number(self, command: Command<'_>, index: usize, name: &'static str) -> Result<u64, ThrottleError> {
        let text = command.argument(index).unwrap_or_default();
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
        match (number, self) {
            (Some(number), _) => u64::try_from(number).map_err(|_| ThrottleError::Negative(name)),
            (None, Self::Cell) => {
                Err(ThrottleError::CellNumber(text.iter().copied().take(MAX_SHOWN).collect()))
            }
            (None, Self::Crab) => Err(ThrottleError::CrabNumber(name)),
        }
    }
}

/// How many bytes of a wrong argument an error repeats.
const MAX_SHOWN: usize = 80;

/// Milliseconds, the rest of them dropped, in whole seconds rounded up: redis-cell's way.
fn cell_seconds(nanos: u64) -> u64 {
    (nanos / (SECOND / 1_000)).div_ceil(1_000)
}

fn cell_reply(verdict: &Verdict, out: &mut Encoder<'_>) {
    let retry = match verdict.wait {
        Wait::For(nanos) => integer(cell_seconds(nanos).max(1)),
        Wait::None | Wait::Never => -1,
    };
    let reset = integer(cell_seconds(verdict.reset));
    let limited = i64::from(!verdict.allowed);
    integers([limited, integer(verdict.limit), integer(verdict.remaining), retry, reset], out);
}

fn crab_reply(verdict: &Verdict, period: u64, out: &mut Encoder<'_>) {
    let retry = match verdict.wait {
        Wait::None => 0,
        Wait::For(nanos) => integer(nanos.div_ceil(SECOND)),
        Wait::Never => integer(period),
    };
    let reset = integer(verdict.reset.div_ceil(SECOND));
    let allowed = i64::from(verdict.allowed);
    integers([allowed, integer(verdict.limit), integer(verdict.remaining), reset, retry], out);
}

fn integers(numbers: [i64; 5], out: &mut Encoder<'_>) {
    out.array(numbers.len());
    for number in numbers {
        out.integer(number);
    }
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use tidegate_wire::resp::Protocol;

    use super::*;

    #[test]
    fn a_denial_never_says_to_retry_at_once() {
        let wait = Wait::For(500_000);
        let denied =
            Verdict { allowed: false, limit: 1, remaining: 0, wait, reset: 500_000, delay: 0, next: 0 };
        for (dialect, said) in [
            (Dialect::Cell, "*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n:0\r\n"),
            (Dialect::Crab, "*5\r\n:0\r\n:1\r\n:0\r\n:1\r\n:1\r\n"),
        ] {
            let mut out = Vec::new();
            dialect.reply(&denied, 1, &mut Encoder::new(&mut out, Protocol::Resp2));
            assert_eq!(String::from_utf8(out).unwrap(), said, "{dialect:?}");
        }
    }

    #[test]
    fn seconds_are_rounded_as_redis_cell_has_them() {
        for (nanos, seconds) in [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (2 * SECOND, 2),
            (2 * SECOND + 999_999, 2),
            (2 * SECOND + 1_000_000, 3),
        ] {
            assert_eq!(cell_seconds(nanos), seconds, "{nanos}");
        }
    }
}
