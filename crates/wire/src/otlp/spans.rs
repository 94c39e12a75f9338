//! Spans: `ExportTraceServiceRequest`.
//!
//! A span is written when it has ended, and kept as bytes; a request is put together of them.

use super::{Resource, number_attribute, request, text_attribute};
use crate::protobuf::Message;

/// Flags of a span (`SpanFlags`): the trace is recorded; whether its parent is remote is known; it is.
const SAMPLED: u32 = 1;
const IS_REMOTE_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// The side that a span is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// It answers.
    Server,
    /// It asks.
    Client,
}

/// A span under way of being written.
#[derive(Debug)]
pub struct SpanWriter(Message);

/// What every span says.
#[derive(Clone, Copy, Debug)]
pub struct SpanHead<'a> {
    /// Its trace.
    pub trace: u128,
    /// Its own identifier.
    pub id: u64,
    /// The span that it is a part of.
    pub parent: Option<u64>,
    /// Whether that is of another process.
    pub is_parent_remote: bool,
    /// Its name.
    pub name: &'a str,
    /// The side that it is on.
    pub kind: SpanKind,
    /// When it began and ended, in nanoseconds since the Unix epoch.
    pub from: u64,
    /// See `from`.
    pub to: u64,
}

impl SpanWriter {
    /// A span without attributes.
    #[must_use]
    pub fn new(head: &SpanHead<'_>) -> Self {
        let mut span = Message::default();
        span.bytes(1, &head.trace.to_be_bytes());
        span.bytes(2, &head.id.to_be_bytes());
        if let Some(parent) = head.parent {
            span.bytes(4, &parent.to_be_bytes());
        }
        span.bytes(5, head.name.as_bytes());
        span.unsigned(6, if head.kind == SpanKind::Server { 2 } else { 3 });
        span.fixed64(7, head.from);
        span.fixed64(8, head.to.max(head.from));
        let remote = if head.is_parent_remote { IS_REMOTE } else { 0 };
        span.fixed32(16, SAMPLED | IS_REMOTE_KNOWN | remote);
        Self(span)
    }

    /// Adds an attribute.
    pub fn text(&mut self, name: &str, value: &str) {
        text_attribute(&mut self.0, 9, name, value);
    }

    /// Adds an attribute that is a number.
    pub fn number(&mut self, name: &str, value: u64) {
        number_attribute(&mut self.0, 9, name, value);
    }

    /// Says that it failed.
    pub fn failed(&mut self) {
        let mut status = Message::default();
        status.unsigned(3, ERROR);
        self.0.bytes(15, &status.0);
    }

    /// Its bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0.0
    }
}

/// The request for some spans.
#[must_use]
pub fn encode(resource: Resource<'_>, spans: &[Vec<u8>]) -> Vec<u8> {
    request(resource, |scoped| spans.iter().for_each(|span| scoped.bytes(2, span)))
}
