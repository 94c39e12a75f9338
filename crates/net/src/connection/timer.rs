//! One timer for all the waits of a connection.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

/// A timer that is moved only when it must be: it is armed once and left alone while the deadline only moves
/// away, as it does with every request; when it fires too early it is armed again for the rest. A busy
/// connection therefore touches the timer wheel once per idle timeout, and one that never waits has none.
///
/// Invariant: while armed, it wakes the connection's task no later than the latest deadline asked
/// for. All calls come from that one task, so a waker registered once stays the right one.
#[derive(Default)]
pub struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let deadline = deadline.into();
        let sleep = match &mut self.sleep {
            None => self.sleep.insert(Box::pin(sleep_until(deadline))),
            Some(sleep) if sleep.is_elapsed() || sleep.deadline() > deadline => {
                if sleep.is_elapsed() && sleep.deadline() >= deadline {
                    return Poll::Ready(());
                }
                sleep.as_mut().reset(deadline);
                sleep
            }
            // Armed for no later than the deadline: the task is woken then, and asks again.
            Some(_) => return Poll::Pending,
        };
        // Unconstrained, because being pending must mean that the waker is in the timer wheel,
        // and not that the task has used up its share of this turn.
        pin!(tokio::task::unconstrained(sleep.as_mut())).poll(cx)
    }
}

impl std::fmt::Debug for LazyTimer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LazyTimer").field("armed", &self.sleep.is_some()).finish()
    }
}
