//! The sweep of a drain, as a connection sees it.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use crate::drain::{Drain, Stage};

/// Tells a connection when the drain closes idle ones, or a stream in another protocol when it is told the end.
pub struct Sweep {
    drain: Drain,
    /// What is waited for: [`Stage::Sweeping`], or [`Stage::Ending`] for a stream.
    stage: Stage,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    swept: bool,
}

impl Sweep {
    /// For a connection under `drain`.
    #[must_use]
    pub fn new(drain: Drain) -> Self {
        Self { drain, stage: Stage::Sweeping, waiting: None, swept: false }
    }

    /// For a connection, or a stream of one, that goes on in another protocol under `drain`: it has until shortly before
    /// the deadline.
    #[must_use]
    pub(crate) fn of_stream(drain: Drain) -> Self {
        Self { drain, stage: Stage::Ending, waiting: None, swept: false }
    }

    /// Whether that time has come. The drain's future is polled once, which leaves the task's waker
    /// there, and again when it has.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let watching = self.waiting.is_some();
        if !self.swept && (!watching || self.drain.stage() >= self.stage) {
            let (drain, stage) = (&self.drain, self.stage);
            let waiting = self.waiting.get_or_insert_with(|| {
                let drain = drain.clone();
                Box::pin(async move {
                    if stage == Stage::Ending {
                        drain.ending().await;
                    } else {
                        drain.sweeping().await;
                    }
                })
            });
            self.swept = waiting.as_mut().poll(cx).is_ready();
        }
        self.swept
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Sweep")
            .field("stage", &self.stage)
            .field("swept", &self.swept)
            .finish_non_exhaustive()
    }
}
