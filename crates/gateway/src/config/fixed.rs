//! Replies that are always the same: fixed replies, and what stands in for an upstream.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use super::action::{Action, StaticReply};
use super::part::{KeyReader, status_code};
use super::split::{SplitConfig, beside_action};

pub(super) fn static_reply(reader: &mut KeyReader<'_>, status: u64) -> StaticReply {
    let status = reader.number("status").unwrap_or(status);
    let body = reader.text("body").unwrap_or_default();
    let kind = reader.text("content_type").unwrap_or("text/plain; charset=utf-8");
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
    reader: &mut KeyReader<'_>,
    action: &Option<Action>,
    split: &Option<SplitConfig>,
) -> (Option<Arc<str>>, Option<StaticReply>) {
    let upstream = reader.text("upstream").map(Arc::from);
    if let Some(name) = &upstream {
        beside_action(reader, name, action, split);
    }
    let is_stated = ["status", "body", "content_type"].iter().any(|key| reader.field(key).is_some());
    let reply = (is_stated || upstream.is_none()).then(|| static_reply(reader, 503));
    (upstream, reply)
}
