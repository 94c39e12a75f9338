//! The sweep of a drain, as a connection sees it.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use crate::drain::{Drain, Stage};

/// Tells a connection when the drain closes idle ones.
pub struct Sweep {
    drain: Drain,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    swept: bool,
}

impl Sweep {
    /// For a connection under `drain`.
    #[must_use]
    pub fn new(drain: Drain) -> Self {
        Self { drain, waiting: None, swept: false }
    }

    /// Whether that time has come. The drain's future is polled once, which leaves the task's waker
    /// there, and again when it has.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let watching = self.waiting.is_some();
        if !self.swept && (!watching || self.drain.stage() >= Stage::Sweeping) {
            let drain = &self.drain;
            let waiting = self.waiting.get_or_insert_with(|| {
                let drain = drain.clone();
                Box::pin(async move { drain.sweeping().await })
            });
            self.swept = waiting.as_mut().poll(cx).is_ready();
        }
        self.swept
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sweep").field("swept", &self.swept).finish_non_exhaustive()
    }
}
