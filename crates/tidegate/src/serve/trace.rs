//! The log's line for a request that somebody wants to follow.
//!
//! A request is logged at level `debug`, and at `warn` when the service failed (5xx), with the
//! trace it belongs to: the caller's (W3C `traceparent`), or one of its own. At the default level
//! a request that went well costs a look at its status.

use std::hash::{BuildHasher, RandomState};

use http::StatusCode;
use tidegate_net::http::Peer;
use tidegate_wire::trace_context::TraceContext;

pub(super) const TRACEPARENT: &str = "traceparent";

/// Logs a request that was answered, if the level asks for it. `parent`: its [`TRACEPARENT`].
pub(super) fn log<'a>(
    method: &str,
    parent: impl FnOnce() -> Option<&'a [u8]>,
    status: StatusCode,
    route: &str,
    peer: &Peer,
) {
    let trace = || context(parent()).trace_id();
    let (status, failed) = (status.as_u16(), status.is_server_error());
    if failed {
        tracing::warn!(trace = %trace(), method, route, status, peer = %peer.address, "request failed");
    } else if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug!(trace = %trace(), method, route, status, peer = %peer.address, "request");
    }
}

fn context(parent: Option<&[u8]>) -> TraceContext {
    let parent = parent.and_then(TraceContext::parse);
    parent.map_or_else(|| TraceContext::root(random().into(), random()), |parent| parent.child(random()))
}

/// A number nobody else is likely to draw: the standard library's keys are random per thread.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
