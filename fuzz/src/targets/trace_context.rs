//! Any bytes give a trace context or none, and one that was read is written as it was understood.

use tidegate_wire::trace_context::TraceContext;

pub(super) fn run(data: &[u8]) {
    if let Some(context) = TraceContext::parse(data) {
        assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
    }
}
