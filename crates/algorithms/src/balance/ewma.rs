//! Peak EWMA: a latency that rises at once and falls slowly.
//!
//! A reply that took longer than the average sets it; a faster one moves it by the share of
//! `e^(-gap / decay)` that has passed. So one stall sends traffic elsewhere at once, and trust comes
//! back within a few `decay`s. As Finagle and linkerd have it.
//!
//! The state is two words, so that a backend can keep it behind a lock that is held for nanoseconds.

use crate::time::{SECOND, Tick};

/// How quickly a peak is forgotten unless stated otherwise: after 10 s, 37 % of it is left.
pub const DECAY: u64 = 10 * SECOND;

/// The average latency of a backend, weighted towards its peaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeakEwma {
    nanos: f64,
    at: Tick,
}

impl PeakEwma {
    /// A backend of which nothing is known costs `nanos` at first.
    #[must_use]
    pub fn new(nanos: u64, now: Tick) -> Self {
        Self { nanos: nanos as f64, at: now }
    }

    /// Takes the latency of a reply, in nanoseconds.
    pub fn observe(&mut self, latency: u64, now: Tick, decay: u64) {
        let (latency, gap) = (latency as f64, now.since(self.at) as f64);
        self.nanos = if latency >= self.nanos {
            latency
        } else {
            let kept = (-gap / decay.max(1) as f64).exp();
            latency + (self.nanos - latency) * kept
        };
        self.at = self.at.max(now);
    }

    /// The latency to expect at `now`, in nanoseconds: it falls while nothing is heard, so that a backend
    /// that was slow once is tried again.
    #[must_use]
    pub fn nanos(&self, now: Tick, decay: u64) -> f64 {
        self.nanos * (-(now.since(self.at) as f64) / decay.max(1) as f64).exp()
    }

    /// What a request there costs: the expected latency times it and the `load` before it, in requests of a backend of average
    /// weight.
    #[must_use]
    pub fn cost(&self, load: f64, now: Tick, decay: u64) -> f64 {
        // A nanosecond at least: among backends of which nothing is known, the number in flight decides.
        self.nanos(now, decay).max(1.0) * (load + 1.0)
    }
}
