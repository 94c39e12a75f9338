//! Spans of requests for an OpenTelemetry collector: one of the request, and one of each attempt at a server.
//!
//! ```text
//!   request ── is it recorded? ── no: nothing more
//!                  └── yes: Record ── its end ──> spans as bytes ──> queue, bounded ──> whoever exports takes them
//! ```
//!
//! A caller's `traceparent` decides where there is one (parent-based); of other requests, `ratio` are recorded, by the trace's
//! identifier. A server is told the span of the attempt, so that its own spans are parts of that; a mirror, which is no
//! attempt, that of the request.
//!
//! Attributes are those of OpenTelemetry's conventions for HTTP (1.44), and `tidegate.*` for what these do not know. The
//! query of a target is left out, as in traces: some clients put secrets there.
//!
//! Deliberately absent: spans of what the gateway asks for itself, health checks and `forward_auth`.
//!
//! Bounds: [`MAX_SPANS`] and [`MAX_BYTES`] wait; what finds no room is dropped and counted. Requests never wait.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Uri, Version};
use parking_lot::{Mutex, MutexGuard};
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::Host;
use tidegate_wire::otlp::spans::{SpanHead, SpanKind, SpanWriter};
use tokio::sync::Notify;

use crate::forwarding::fields::{caller, trace};
use crate::observed::access_log::line::{cut, field};
use crate::observed::record::{
    AttemptEnd, End, Forestalled, ReadsRecords, RecordedRequest, RecordedStep, RequestRecord, SpanContext,
    What,
};
use crate::random::random;
use crate::routes::host::bare_host;
use crate::servers::upstream::Upstream;

/// Most spans that wait to be exported.
pub const MAX_SPANS: usize = 8_192;
/// Most bytes of these.
pub const MAX_BYTES: usize = 8 << 20;
/// Spans that are worth a request before its time.
pub const BATCH: usize = 512;
/// Most bytes of a client's text in an attribute.
const MAX_TEXT: usize = 512;

/// The spans that wait to be exported.
#[derive(Debug)]
pub struct Spans {
    /// The part of the traces that begin here which is recorded.
    ratio: f64,
    queue: Mutex<SpanQueue>,
    is_batch_there: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct SpanQueue {
    spans: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Spans {
    /// A queue for the spans of requests of which `ratio`, from 0 to 1, are recorded where no caller decides.
    #[must_use]
    pub fn new(ratio: f64) -> Self {
        let (queue, is_batch_there) = (Mutex::default(), Notify::new());
        Self { ratio, queue, is_batch_there, dropped: AtomicU64::new(0) }
    }

    /// Where a request with these fields stands, if it is recorded.
    pub(crate) fn begin(&self, fields: &HeaderMap) -> Option<SpanContext> {
        match caller(fields) {
            Some(parent) if !parent.is_sampled() => None,
            None if self.ratio <= 0.0 => None,
            Some(parent) => {
                Some(SpanContext { trace: trace(fields, random()), parent: Some(parent.span_id()) })
            }
            None => {
                let trace = trace(fields, random()).with_sampled(true);
                trace.trace_id().is_among(self.ratio).then_some(SpanContext { trace, parent: None })
            }
        }
    }

    fn push(&self, span: Vec<u8>) {
        let mut queue = self.queue();
        if queue.spans.len() >= MAX_SPANS || queue.bytes + span.len() > MAX_BYTES {
            drop(queue);
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        queue.bytes += span.len();
        queue.spans.push_back(span);
        let is_batch = queue.spans.len() == BATCH;
        drop(queue);
        if is_batch {
            self.is_batch_there.notify_one();
        }
    }

    /// The oldest spans, [`BATCH`] at most.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        let mut queue = self.queue();
        let many = queue.spans.len().min(BATCH);
        let taken: Vec<Vec<u8>> = queue.spans.drain(..many).collect();
        queue.bytes -= taken.iter().map(Vec::len).sum::<usize>();
        taken
    }

    /// Waits until a whole batch came together since the last one was taken.
    pub async fn batch(&self) {
        self.is_batch_there.notified().await;
    }

    /// Spans that wait, and how many found no room.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        (self.queue().spans.len(), self.dropped.load(Relaxed))
    }

    fn queue(&self) -> MutexGuard<'_, SpanQueue> {
        // Whole spans and their sum: nothing panics while both are changed.
        self.queue.lock()
    }
}

impl ReadsRecords for Spans {
    /// Keeps the spans of a request that has ended.
    fn note(&self, record: &RequestRecord) {
        let Some(context) = record.span else { return };
        let attempts = record.steps.iter().filter_map(|step| Try::of(record, step));
        let lost = record.forestalled.iter().map(Try::of_lost);
        for (before, attempt) in attempts.chain(lost).enumerate() {
            self.push(of_attempt(record, &attempt, before, context));
        }
        self.push(of_request(record, context));
    }
}

/// The span of a request, from its head to the end of its reply.
fn of_request(record: &RequestRecord, context: SpanContext) -> Vec<u8> {
    let asked = &record.asked;
    let pattern = record.route.as_ref().map(|route| route.config.path.to_string());
    let (named, method) = method(&asked.method);
    let name = pattern.as_ref().map(|pattern| format!("{named} {pattern}"));
    let from = record.came.0;
    let mut span = SpanWriter::new(&SpanHead {
        trace: context.trace.trace_id().number(),
        id: context.trace.span_id(),
        parent: context.parent,
        is_parent_remote: context.parent.is_some(),
        name: name.as_deref().unwrap_or(named),
        kind: SpanKind::Server,
        from,
        to: from.saturating_add(nanos(record.took())),
    });
    span.text("http.request.method", method);
    if method == OTHER {
        span.text("http.request.method_original", cut(asked.method.as_str(), MAX_TEXT));
    }
    span.text("url.scheme", if record.is_tls { "https" } else { "http" });
    span.text("url.path", cut(asked.target.path(), MAX_TEXT));
    if let Some(pattern) = &pattern {
        span.text("http.route", pattern);
    }
    if let Some(route) = &record.route {
        span.text("tidegate.route", &route.config.name);
    }
    host_of(asked, &mut span);
    span.text("client.address", &record.client.to_string());
    span.text("network.protocol.version", version(asked.version));
    if asked.user_agent.is_some() {
        span.text("user_agent.original", cut(&field(&asked.user_agent), MAX_TEXT));
    }
    if let Some(word) = record.refusal {
        span.text("tidegate.because", word);
    }
    ended(record, &mut span);
    span.finish()
}

/// The host that a request names, and its port.
fn host_of(asked: &RecordedRequest, span: &mut SpanWriter) {
    let named = match asked.target.authority() {
        Some(authority) => authority.as_str().to_owned(),
        None => field(&asked.host),
    };
    let host = bare_host(&named);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if !host.is_empty() {
        span.text("server.address", cut(host, MAX_TEXT));
    }
    if let Some(port) = named.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()) {
        span.number("server.port", port.into());
    }
}

/// The status of a request, and whether it was a failure of this side. A client's mistake is not, and neither is its
/// leaving.
fn ended(record: &RequestRecord, span: &mut SpanWriter) {
    let has_reply = record.steps.iter().any(|step| matches!(step.what, What::Respond));
    if has_reply {
        span.number("http.response.status_code", record.status.into());
        span.number("http.response.body.size", record.bytes);
    }
    if record.status >= 500 {
        span.text("error.type", record.refusal.unwrap_or(&record.status.to_string()));
        span.failed();
    } else if record.end != End::Complete {
        span.text("error.type", record.end.word());
        if record.end != End::ClientLeft {
            span.failed();
        }
    }
}

/// An attempt at a server.
struct Try<'a> {
    upstream: &'a Upstream,
    server: usize,
    end: AttemptEnd,
    begun: Instant,
    took: Duration,
    span: u64,
}

impl<'a> Try<'a> {
    fn of(record: &'a RequestRecord, step: &'a RecordedStep) -> Option<Self> {
        let What::Attempt { upstream, server, end, span } = &step.what else { return None };
        // What has no end yet ends with the request.
        let is_under_way = *end == AttemptEnd::UnderWay;
        let took = if is_under_way { monotonic().duration_since(step.begun) } else { step.took };
        let begun = step.begun.max(record.begun);
        Some(Self { upstream, server: *server, end: *end, begun, took, span: *span })
    }

    fn of_lost(lost: &'a Forestalled) -> Self {
        let Forestalled { upstream, server, begun, took, span } = lost;
        let (server, begun, took, span) = (*server, *begun, *took, *span);
        Self { upstream, server, end: AttemptEnd::Failure(OVERTAKEN), begun, took, span }
    }
}

/// The word for an attempt whose reply came too late to be used.
const OVERTAKEN: &str = "overtaken";

/// The span of an attempt, from its begin to the head of the reply. There were others `before`.
fn of_attempt(record: &RequestRecord, attempt: &Try<'_>, before: usize, context: SpanContext) -> Vec<u8> {
    let from = record.came.0.saturating_add(nanos(attempt.begun.saturating_duration_since(record.begun)));
    let (named, method) = method(&record.asked.method);
    let mut span = SpanWriter::new(&SpanHead {
        trace: context.trace.trace_id().number(),
        id: attempt.span,
        parent: Some(context.trace.span_id()),
        is_parent_remote: false,
        name: named,
        kind: SpanKind::Client,
        from,
        to: from.saturating_add(nanos(attempt.took)),
    });
    span.text("http.request.method", method);
    span.text("tidegate.upstream", &attempt.upstream.config.name);
    if let Some(server) = attempt.upstream.config.servers.get(attempt.server) {
        let target = &server.backend.target;
        let path = record.sent.as_ref().map_or("/", Uri::path);
        let scheme = if server.is_tls { "https" } else { "http" };
        match &target.host {
            Host::Address(address) => span.text("server.address", &address.to_string()),
            Host::Name(name) => span.text("server.address", name),
        }
        span.number("server.port", target.port.into());
        span.text("url.full", &format!("{scheme}://{target}{}", cut(path, MAX_TEXT)));
    }
    if before > 0 {
        span.number("http.request.resend_count", before as u64);
    }
    match attempt.end {
        AttemptEnd::Reply { status, .. } => {
            span.number("http.response.status_code", status.as_u16().into());
            if status.is_client_error() || status.is_server_error() {
                span.text("error.type", status.as_str());
                span.failed();
            }
        }
        AttemptEnd::Failure(OVERTAKEN) => span.text("error.type", OVERTAKEN),
        AttemptEnd::Failure(word) => {
            span.text("error.type", word);
            span.failed();
        }
        AttemptEnd::UnderWay => span.text("error.type", "client_left"),
    }
    span.finish()
}

/// The conventions' word for a method that they do not list.
const OTHER: &str = "_OTHER";

/// The method in a span's name, and as an attribute.
fn method(method: &Method) -> (&str, &str) {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    if KNOWN.contains(&method.as_str()) { (method.as_str(), method.as_str()) } else { ("HTTP", OTHER) }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::forwarding::fields::TRACEPARENT;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_waits_has_a_bound_in_number_and_in_bytes() {
        let spans = Spans::new(1.0);
        for _ in 0..MAX_SPANS + 10 {
            spans.push(vec![0; 10]);
        }
        assert_eq!(spans.counts(), (MAX_SPANS, 10));
        assert_eq!(spans.take().len(), BATCH);
        spans.push(vec![1; 10]);
        assert_eq!(spans.counts(), (MAX_SPANS - BATCH + 1, 10));
        while !spans.take().is_empty() {}
        spans.push(vec![0; MAX_BYTES]);
        spans.push(vec![0]);
        assert_eq!(spans.counts(), (1, 11));
    }

    #[test]
    fn who_sends_a_trace_decides_and_the_ratio_only_where_nobody_does() {
        let fields =
            |value: &str| HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(value).unwrap())]);
        let not = SAMPLED.replace("-01", "-00");
        for ratio in [0.0, 1.0] {
            let spans = Spans::new(ratio);
            let begun = spans.begin(&fields(SAMPLED)).unwrap();
            assert_eq!(begun.parent, Some(0xb7ad_6b71_6920_3331));
            assert!(begun.trace().is_sampled() && begun.trace().span_id() != 0xb7ad_6b71_6920_3331);
            assert!(spans.begin(&fields(&not)).is_none());
            let is_root = |begun: SpanContext| begun.parent.is_none() && begun.trace().is_sampled();
            let mut two = fields(&not);
            two.append(TRACEPARENT, HeaderValue::from_static(SAMPLED));
            for none in [HeaderMap::new(), fields("nonsense"), two] {
                assert_eq!(spans.begin(&none).map(is_root), (ratio > 0.0).then_some(true));
            }
        }
    }
}
