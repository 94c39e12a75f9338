//! The timer of a connection to a server: until when the head of a reply is waited for.
//!
//! It stays with the connection, armed for the time of an earlier request, and is moved when it fires: a busy connection touches the
//! timer wheel once in a patience, and not twice a request. The tasks of clients take turns at a connection, so that each of them has
//! to be known to the timer ([`tidegate_net::connection::LazyTimer`] serves one task). The last of them may be woken once for
//! nothing, and its memory is held until then.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep_until};

/// The timer of a connection.
#[derive(Debug, Default)]
pub(crate) struct PatienceTimer(Option<Pin<Box<Sleep>>>);

impl PatienceTimer {
    /// Ready when `until` has passed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let until = tokio::time::Instant::from_std(until);
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            // Unconstrained: pending must mean that the timer wakes this task.
            ready!(pin!(unconstrained(sleep.as_mut())).poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            // It was armed for an earlier request.
            sleep.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tidegate_net::clock::monotonic;

    use super::*;

    #[test]
    fn a_timer_that_fired_for_one_request_is_not_over_for_the_next() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut timer = PatienceTimer::default();
            let first = monotonic();
            poll_fn(|cx| timer.poll(cx, first)).await;
            let later = first + Duration::from_secs(3_600);
            assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx, later))).await.is_pending());
            // One that ends sooner than what it is armed for.
            let soon = monotonic() + Duration::from_millis(1);
            poll_fn(|cx| timer.poll(cx, soon)).await;
            assert!(soon <= monotonic());
        });
    }
}
