//! Replies that are always the same: fixed replies, and what stands in for an upstream.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use tidegate_algorithms::document::DocumentReader;

use super::action::{Action, StaticReply};
use super::part::status_code;
use super::split::{SplitConfig, beside_action};

pub(super) const RESPOND_KEYS: [&str; 3] = ["status", "body", "content_type"];
pub(super) const FALLBACK_KEYS: [&str; 4] = ["upstream", "status", "body", "content_type"];

const MAX_REPLY: usize = 1 << 20;

pub(super) fn static_reply(reader: &mut DocumentReader<'_>, status: u64) -> StaticReply {
    let status = reader.number("status", 200, 599).unwrap_or(status);
    let body = reader.text("body", 0, MAX_REPLY).unwrap_or_default();
    let kind = reader.text("content_type", 1, 256).unwrap_or("text/plain; charset=utf-8");
    let kind = HeaderValue::from_str(kind).unwrap_or_else(|_| {
        reader.mistake("content_type", format!("is {kind:?}"), "a media type");
        HeaderValue::from_static("text/plain")
    });
    StaticReply {
        status: status_code(status),
        fields: vec![(http::header::CONTENT_TYPE, kind)],
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

/// Where requests go that the route's upstream gives no reply to, and what they are answered if that gives none.
pub(super) fn fallback(
    reader: &mut DocumentReader<'_>,
    action: &Option<Action>,
    split: &Option<SplitConfig>,
) -> (Option<Arc<str>>, Option<StaticReply>) {
    let upstream = reader.text("upstream", 1, 64).map(Arc::from);
    if let Some(name) = &upstream {
        beside_action(reader, name, action, split);
    }
    let is_stated = ["status", "body", "content_type"].iter().any(|key| reader.field(key).is_some());
    let reply = (is_stated || upstream.is_none()).then(|| static_reply(reader, 503));
    (upstream, reply)
}
