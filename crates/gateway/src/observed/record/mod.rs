//! The record of one request, step by step: the one source of traces, spans and the access log. What it is counted by is apart
//! (`tally.rs`), since every request is counted and few are recorded.
//!
//! ```text
//!   proxy, forward ── each step ──> Record ──┬── `tidegate-trace` fields of the reply, if they were asked for
//!                                            ├── a line of the access log, when the reply has ended
//!                                            ├── spans for a collector, likewise (`spans.rs`)
//!                                            └── a trace for whom it looks at the last ones (`traces.rs`), likewise
//! ```
//!
//! A record is logged when it is dropped, so that a request whose client left has its line like any other. A request
//! without a reader has no record: each step then costs a comparison, and no clock is read.
//!
//! Bounds: [`MAX_STEPS`] of a request, and [`trace::MAX_BYTES`] of their text.

mod body;
mod end;
mod span;
mod tally;
mod trace;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{HOST, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use tidegate_algorithms::breaker::Phase;
use tidegate_algorithms::time::Wall;
use tidegate_net::clock::{monotonic, wall};
use tidegate_net::http::{Body, Peer};
use tidegate_wire::trace_context::{TraceContext, TraceId};

use crate::authentication::identity::Identity;
use crate::forwarding::fields::caller;
use crate::limits::{LimitPermit, PolicyVerdict};
use crate::random::random;
use crate::routes::route::Route;
use crate::servers::upstream::Upstream;

use body::RecordedBody;
pub(crate) use end::{AttemptEnd, End};
pub(crate) use span::{Forestalled, SpanContext};
pub(crate) use tally::{CountsRequests, RequestTally};
pub(crate) use trace::phase_word;

/// What a client asks a trace with, and each line of it.
pub(crate) const TRACE: HeaderName = HeaderName::from_static("tidegate-trace");

/// Most steps that are kept of a request: 32 policies, and 20 attempts with what stands around each.
const MAX_STEPS: usize = 100;

/// The status in the log of a request whose client left before its reply began; nginx writes it, too.
const CLIENT_LEFT: u16 = 499;

/// One thing that was done for a request, and how long it took.
#[derive(Debug)]
pub(crate) struct RecordedStep {
    pub(crate) what: What,
    /// Since the step before; of an attempt, since it began.
    pub(crate) took: Duration,
    /// When it was noted; of an attempt, when it began.
    pub(crate) begun: Instant,
}

/// What was done for a request.
#[derive(Debug)]
pub(crate) enum What {
    /// It was given one form.
    Normalise,
    /// Its route was found.
    Route,
    /// It was refused, for this process has more to do than it can.
    Shed,
    /// It was authenticated.
    Authenticate,
    /// Its route answered before its limits: it is out of service, say.
    Answer,
    /// A policy said this.
    Verdict(PolicyVerdict),
    /// Its limits were asked.
    Limit,
    /// A breaker was asked.
    Breaker {
        /// `route` or `upstream`.
        of: &'static str,
        state: Phase,
    },
    /// A server was chosen.
    Pick,
    /// A server was tried.
    Attempt {
        upstream: Arc<Upstream>,
        server: usize,
        end: AttemptEnd,
        /// The identifier of its span, if it has one.
        span: u64,
    },
    /// The time between two attempts.
    Pause,
    /// It went on to the route's other upstream, or was given its fallback reply.
    Fallback,
    /// The reply's head was there.
    Respond,
}

/// A request's own words, as the access log repeats them.
#[derive(Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    pub(crate) target: Uri,
    pub(crate) version: Version,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) referer: Option<HeaderValue>,
    pub(crate) user_agent: Option<HeaderValue>,
}

/// A reader of records: the access log, traces, spans. They stand above, and a record knows no more of them.
pub(crate) trait ReadsRecords: fmt::Debug + Send + Sync {
    /// Takes note of a request that has ended.
    fn note(&self, record: &RequestRecord);
}

/// Those that read a request's record when it has ended, in their order.
pub(crate) type RecordReaders = [Option<Arc<dyn ReadsRecords>>; 3];

/// The readers of a request's record.
#[derive(Debug)]
pub(crate) struct RequestReaders {
    pub(crate) at_end: RecordReaders,
    /// Where it stands in its trace, if that is recorded.
    pub(crate) span: Option<SpanContext>,
    /// The client, in its reply.
    pub(crate) client: bool,
    /// What it is counted by, if it is counted.
    pub(crate) tally: Option<RequestTally>,
}

/// What is known of a request that somebody wants to know of.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    readers: RecordReaders,
    /// Where it stands in its trace, if that is recorded.
    pub(crate) span: Option<SpanContext>,
    /// Second attempts that the first one forestalled, if it is recorded.
    pub(crate) forestalled: Vec<Forestalled>,
    /// The target as servers get it, if it is recorded.
    pub(crate) sent: Option<Uri>,
    is_traced: bool,
    pub(crate) asked: RecordedRequest,
    pub(crate) came: Wall,
    pub(crate) begun: Instant,
    /// When the last step ended.
    marked: Instant,
    pub(crate) client: IpAddr,
    /// The path that routes and policies went by, if it is not as it came.
    pub(crate) path: Option<String>,
    pub(crate) is_tls: bool,
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) request_id: Option<HeaderValue>,
    /// The trace that its server is told of; of a request that reaches none, the caller's or that of its span.
    pub(crate) trace_id: Option<TraceId>,
    /// Who its client has proved to be.
    pub(crate) identity: Option<Identity>,
    pub(crate) steps: Vec<RecordedStep>,
    /// Steps beyond the bound.
    pub(crate) left_out: usize,
    /// Why the gateway answered itself.
    pub(crate) refusal: Option<&'static str>,
    pub(crate) status: u16,
    /// Of the reply's body, as far as they were handed to the client's connection.
    pub(crate) bytes: u64,
    pub(crate) end: End,
}

impl RequestRecord {
    /// How long it has taken so far.
    pub(crate) fn took(&self) -> Duration {
        monotonic().duration_since(self.begun)
    }

    /// Upstream and server of the last attempt, and how many there were.
    pub(crate) fn attempts(&self) -> (Option<(&Upstream, usize)>, usize) {
        let mut attempts = self.steps.iter().filter_map(|step| match &step.what {
            What::Attempt { upstream, server, .. } => Some((&**upstream, *server)),
            _ => None,
        });
        let count = attempts.clone().count();
        (attempts.next_back(), count)
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let readers = std::mem::take(&mut self.readers);
        readers.into_iter().flatten().for_each(|reader| reader.note(self));
    }
}

/// Takes down what becomes of a request, if anybody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    record: Option<Box<RequestRecord>>,
    tally: Option<RequestTally>,
}

impl Recorder {
    /// For a request that has just come.
    pub(crate) fn new<B>(request: &Request<B>, peer: &Peer, readers: RequestReaders) -> Self {
        let RequestReaders { at_end: readers, span, client: is_traced, tally } = readers;
        if readers.iter().all(Option::is_none) && !is_traced {
            return Self { record: None, tally };
        }
        let field = |name| request.headers().get(name).cloned();
        // HTTP/2 has it in the target, which counts for more than the field (RFC 9113, 8.3.1).
        let authority = request.uri().authority();
        let authority = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        let asked = RecordedRequest {
            method: request.method().clone(),
            target: request.uri().clone(),
            version: request.version(),
            host: authority.or_else(|| field(HOST)),
            referer: field(REFERER),
            user_agent: field(USER_AGENT),
        };
        let trace = span.map(SpanContext::trace).or_else(|| caller(request.headers()));
        let now = monotonic();
        let record = RequestRecord {
            readers,
            span,
            forestalled: Vec::new(),
            sent: None,
            is_traced,
            asked,
            came: wall(),
            begun: now,
            marked: now,
            client: peer.address.ip().to_canonical(),
            path: None,
            is_tls: peer.is_tls,
            route: None,
            request_id: None,
            trace_id: trace.map(TraceContext::trace_id),
            identity: None,
            steps: Vec::with_capacity(8),
            left_out: 0,
            refusal: None,
            status: CLIENT_LEFT,
            bytes: 0,
            end: End::ClientLeft,
        };
        Self { record: Some(Box::new(record)), tally }
    }

    /// Whether anybody wants to know its steps.
    pub(crate) fn is_on(&self) -> bool {
        self.record.is_some()
    }

    /// Adds to what is known, if anybody wants to know.
    pub(crate) fn note(&mut self, add: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = &mut self.record {
            add(record);
        }
    }

    /// Records the path alone: where no route takes the request, its query may hold a secret. So may that of the page it comes from.
    pub(crate) fn leave_query_out(&mut self) {
        self.note(|record| {
            let page = record.asked.referer.as_ref().and_then(|referer| {
                HeaderValue::from_bytes(referer.as_bytes().split(|byte| *byte == b'?').next()?).ok()
            });
            record.asked.referer = page;
            if let Ok(path) = Uri::try_from(record.asked.target.path()) {
                record.asked.target = path;
            }
        });
    }

    /// A step has ended.
    pub(crate) fn step(&mut self, what: impl FnOnce() -> What) {
        let Some(record) = &mut self.record else { return };
        let now = monotonic();
        let took = now.duration_since(record.marked);
        record.marked = now;
        if record.steps.len() < MAX_STEPS {
            record.steps.push(RecordedStep { what: what(), took, begun: now });
        } else {
            record.left_out += 1;
        }
    }

    /// Where the request stands in its trace, if that is recorded.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        Some(self.record.as_ref()?.span?.trace())
    }

    /// The span of an attempt to come, and what its server is to be told, if the request is recorded.
    pub(crate) fn next_span(&self) -> Option<(u64, TraceContext)> {
        let context = self.record.as_ref()?.span?;
        let span = random()[0].max(1);
        Some((span, context.beneath(span)))
    }

    /// An attempt begins. What its server is to be told of the trace, if that is recorded.
    pub(crate) fn attempt(&mut self, upstream: &Arc<Upstream>, server: usize) -> Option<TraceContext> {
        self.tried(upstream, server);
        let next = self.next_span();
        let (span, end) = (next.map_or(0, |(span, _)| span), AttemptEnd::UnderWay);
        self.step(|| What::Attempt { upstream: Arc::clone(upstream), server, end, span });
        next.map(|(_, trace)| trace)
    }

    /// A second attempt, which began then and has this span, has forestalled the one that began last.
    pub(crate) fn overtaken(&mut self, upstream: &Arc<Upstream>, server: usize, begun: Instant, own: u64) {
        self.attempt_ended(|| AttemptEnd::Failure("overtaken"));
        self.attempt(upstream, server);
        self.note(|record| {
            record.marked = begun;
            if let Some(RecordedStep { what: What::Attempt { span, .. }, begun: at, .. }) =
                record.steps.last_mut()
            {
                (*span, *at) = (own, begun);
            }
        });
    }

    /// The attempt that began last has ended.
    pub(crate) fn attempt_ended(&mut self, ended: impl FnOnce() -> AttemptEnd) {
        let Some(record) = &mut self.record else { return };
        let now = monotonic();
        let lasted = now.duration_since(record.marked);
        record.marked = now;
        let last = record.steps.iter_mut().rev().find(|step| matches!(step.what, What::Attempt { .. }));
        if let Some(RecordedStep { what: What::Attempt { end, .. }, took, .. }) = last
            && *end == AttemptEnd::UnderWay
        {
            *end = ended();
            *took = lasted;
        }
    }

    /// The reply's head is there: what is traced is told, what is logged or kept is followed to its end, and so is what is
    /// `held` until then. `status`: what it counts as, which is not on the wire where the reply is in gRPC.
    pub(crate) fn replied(
        mut self,
        reply: Response<Body>,
        status: StatusCode,
        held: Option<LimitPermit>,
    ) -> Response<Body> {
        self.step(|| What::Respond);
        let (mut head, body) = reply.into_parts();
        let mut is_followed = self.tally.is_some();
        self.tallied(|tally| tally.status = status.as_u16());
        self.note(|record| {
            record.status = status.as_u16();
            if record.is_traced {
                trace::tell(record, &mut head.headers);
            }
            is_followed |= record.readers.iter().any(Option::is_some);
        });
        let body = match body {
            Body::Streamed(inner) if is_followed || held.is_some() => {
                Body::streamed(RecordedBody::new(inner, self, held))
            }
            whole => {
                let bytes = match &whole {
                    Body::Full(bytes) | Body::Trailed(bytes, _) => bytes.len() as u64,
                    Body::Empty | Body::Streamed(_) => 0,
                };
                self.ended(bytes, End::Complete);
                whole
            }
        };
        Response::from_parts(head, body)
    }

    /// As [`Recorder::replied`], of a reply behind which the connection goes on in another protocol.
    pub(crate) fn switched(&mut self, reply: &mut Response<Body>) {
        self.step(|| What::Respond);
        self.tallied(|tally| tally.status = reply.status().as_u16());
        let Some(record) = &mut self.record else { return };
        record.status = reply.status().as_u16();
        if record.is_traced {
            trace::tell(record, reply.headers_mut());
        }
    }
}
