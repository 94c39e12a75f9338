//! A stub's own counts: the truth that a measurement is compared with.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use tidegate_judge::measurement::{Latency, latency};

/// A stub's account since it began or since it was last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests read to their end.
    pub requests: u64,
    /// Requests turned away by admission.
    pub refused: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open.
    pub connections: u64,
    /// Most connections open at a time.
    pub connections_max: u64,
    /// Requests without a reply yet.
    pub in_flight: u64,
    /// Most of them at a time.
    pub in_flight_max: u64,
    /// Times that accepting failed for want of descriptors.
    pub accept_failures: u64,
    /// From the end of the request to the end of the reply, in microseconds: mean.
    pub service_mean_us: f64,
    /// Median.
    pub service_p50_us: u64,
    /// 90th percentile.
    pub service_p90_us: u64,
    /// 99th percentile.
    pub service_p99_us: u64,
    /// Largest.
    pub service_max_us: u64,
}

/// Counters that all threads add to.
#[derive(Debug)]
pub(super) struct StubCounters {
    pub(super) requests: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) accept_failures: AtomicU64,
    connections: Gauge,
    in_flight: Gauge,
    service: Mutex<Latency>,
}

#[derive(Debug, Default)]
struct Gauge {
    now: AtomicU64,
    max: AtomicU64,
}

impl Gauge {
    fn up(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn down(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StubCounters {
    pub(super) fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            accept_failures: AtomicU64::new(0),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            service: Mutex::new(latency()),
        }
    }

    pub(super) fn opened(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.up();
    }

    pub(super) fn closed(&self) {
        self.connections.down();
    }

    pub(super) fn arrived(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.up();
    }

    /// A request left; `took` nanoseconds if it was answered.
    pub(super) fn left(&self, took: Option<u64>) {
        self.in_flight.down();
        if let Some(nanos) = took {
            self.service().saturating_record((nanos / 1_000).max(1));
        }
    }

    pub(super) fn reset(&self) {
        for counter in [&self.requests, &self.refused, &self.accepted, &self.accept_failures] {
            counter.store(0, Ordering::Relaxed);
        }
        for gauge in [&self.connections, &self.in_flight] {
            gauge.max.store(gauge.now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.service().reset();
    }

    pub(super) fn stats(&self) -> Stats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let service = self.service();
        Stats {
            requests: load(&self.requests),
            refused: load(&self.refused),
            accepted: load(&self.accepted),
            connections: load(&self.connections.now),
            connections_max: load(&self.connections.max),
            in_flight: load(&self.in_flight.now),
            in_flight_max: load(&self.in_flight.max),
            accept_failures: load(&self.accept_failures),
            service_mean_us: service.mean(),
            service_p50_us: service.value_at_quantile(0.5),
            service_p90_us: service.value_at_quantile(0.9),
            service_p99_us: service.value_at_quantile(0.99),
            service_max_us: service.max(),
        }
    }

    fn service(&self) -> MutexGuard<'_, Latency> {
        self.service.lock()
    }
}
