//! What a record keeps for the spans that are made of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_wire::trace_context::TraceContext;

use crate::servers::upstream::Upstream;

/// Where a request that is recorded stands in its trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanContext {
    /// With the request's own span.
    pub(crate) trace: TraceContext,
    /// The caller's.
    pub(crate) parent: Option<u64>,
}

impl SpanContext {
    /// What a server is told whose span is a part of `span`.
    pub(crate) fn beneath(self, span: u64) -> TraceContext {
        self.trace.child(span)
    }

    /// What a server is told before an attempt has a span.
    pub(crate) fn trace(self) -> TraceContext {
        self.trace
    }
}

/// A second attempt whose reply came too late.
#[derive(Debug)]
pub(crate) struct Forestalled {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) server: usize,
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    /// Its span's identifier.
    pub(crate) span: u64,
}
