//! One line for a request that somebody wants to follow.
//!
//! A request is logged at level `debug`, and at `warn` when the service failed (5xx), with the
//! trace it belongs to: the caller's (W3C `traceparent`), or one of its own. At the default level
//! a request that went well costs one look at its headers.

use std::hash::{BuildHasher, RandomState};

use http::{HeaderValue, Method, Request};
use tidegate_net::http::{Peer, Reply, RequestBody};
use tidegate_wire::trace_context::TraceContext;

const TRACEPARENT: &str = "traceparent";

/// What is remembered of a request until its reply is known.
pub(super) struct Trace {
    method: Method,
    parent: Option<HeaderValue>,
}

impl Trace {
    pub(super) fn begin(request: &Request<RequestBody>) -> Self {
        Self { method: request.method().clone(), parent: request.headers().get(TRACEPARENT).cloned() }
    }

    /// Logs the request if the level asks for it.
    pub(super) fn end(&self, reply: &Reply, template: &str, peer: &Peer) {
        let status = reply.response.status();
        if status.is_server_error() {
            let trace = self.context().trace_id();
            tracing::warn!(%trace, method = %self.method, route = template, status = status.as_u16(), peer = %peer.address, "request failed");
        } else if tracing::enabled!(tracing::Level::DEBUG) {
            let trace = self.context().trace_id();
            tracing::debug!(%trace, method = %self.method, route = template, status = status.as_u16(), peer = %peer.address, "request");
        }
    }

    fn context(&self) -> TraceContext {
        let parent = self.parent.as_ref().and_then(|parent| TraceContext::parse(parent.as_bytes()));
        parent.map_or_else(|| TraceContext::root(random().into(), random()), |parent| parent.child(random()))
    }
}

/// A number nobody else is likely to draw: the standard library's keys are random per thread.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
