//! `POST /metrics`: a batch in JSON, `{"metrics":[...]}`, and its replies.

use std::sync::Arc;

use http::request::Parts as Head;
use http::{HeaderValue, Response, header};
use serde::Serialize;
use tidegate_net::http::{Body, Peer, RequestBody};
use tidegate_wire::metrics::{BatchLimits, Rejected, read_batch};

use crate::access::Right;
use crate::counters::Protocol;
use crate::intake::{ACK, Intake, Repeated};
use crate::kept::Kept;
use crate::refusal::{Refusal, Senders};

/// Most rejected metrics that a reply names.
const MAX_NAMED: usize = 100;

#[derive(Serialize)]
struct Processed<'a> {
    success: bool,
    metrics_processed: usize,
    #[serde(skip_serializing_if = "is_zero")]
    metrics_rejected: usize,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rejected: &'a [IndexedError],
}

#[derive(Serialize)]
struct IndexedError {
    index: usize,
    error: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Intake {
    /// Keeps the batch of a request.
    pub(crate) async fn take_batch(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        let client = self.admit(head, peer, Right::Ingest)?;
        let wanted = self.wanted(head)?;
        let limits = BatchLimits { metrics: self.parts.settings.batch_metrics, partial: is_partial(head) };
        let (body, batch) = self.body(head, &client, body, Repeated::ByItsKey).await?;
        let mut writer = self.writer(&client);
        writer.reserve(0, body.len());
        let rejected = read_batch(&body, limits, &mut writer)?;
        drop(body);
        let kept = self.keep(Protocol::Json, client, writer.finish(), wanted, batch).await?;
        self.parts.counters.count_rejected(rejected.len());
        Ok(processed(kept, &rejected))
    }
}

fn is_partial(head: &Head) -> bool {
    let query = head.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "partial" && value == "true")
}

fn processed(kept: Kept, rejected: &[Rejected]) -> Response<Body> {
    let named = rejected.iter().take(MAX_NAMED);
    let named: Vec<IndexedError> =
        named.map(|it| IndexedError { index: it.index, error: it.error.to_string() }).collect();
    let processed = Processed {
        success: true,
        metrics_processed: kept.lines,
        metrics_rejected: rejected.len(),
        rejected: &named,
    };
    // Invariant: plain values always serialise.
    let mut response = json(serde_json::to_vec(&processed).unwrap_or_default());
    let word = HeaderValue::from_static(kept.durability.word());
    response.headers_mut().insert(ACK, word);
    response
}

/// A refusal in JSON: `{"error":"..."}`.
pub(crate) fn refused(refusal: &Refusal) -> Response<Body> {
    let error = refusal.to_string();
    let mut response = json(serde_json::to_vec(&serde_json::json!({ "error": error })).unwrap_or_default());
    *response.status_mut() = refusal.status_for(Senders::Json);
    response.headers_mut().extend(refusal.fields());
    response
}

/// A reply of JSON.
pub(crate) fn json(body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
