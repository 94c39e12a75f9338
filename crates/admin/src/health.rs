//! `/livez`, `/readyz` and `/metrics`.
//!
//! Liveness says that the process answers, and nothing else: a store that is down must not have
//! the whole fleet restarted. Readiness says whether to send requests here: it falls first in a
//! drain, and when a requirement that the binary stated does not hold. Stores are no such requirement, because each policy
//! says what happens without its store (fault 1). Troubles of a process that is ready all the same are listed as `degraded`.
//! `/readyz?verbose` has the reasons, with addresses and with errors in a server's own words. Only clients that may read the
//! configuration get them ([`Operator::with_readers`]); others get the list alone, since a load balancer asks without a
//! token.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use serde::Serialize;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::Body;

use crate::Metrics;
use crate::exposition::Exposition;

/// The paths answered here, which are their own route templates.
pub const TEMPLATES: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// Whether to send requests to this process.
pub struct Readiness {
    drain: Drain,
    requirements: Vec<ReadyCondition>,
    degradations: Vec<ReadyCondition>,
}

/// A condition of readiness, with its words.
struct ReadyCondition {
    reason: &'static str,
    /// Details while the condition holds; `None` while it does not.
    detail: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Readiness").field("verdict", &self.verdict(true)).finish_non_exhaustive()
    }
}

/// The answer of `/readyz`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Verdict {
    ready: bool,
    stage: &'static str,
    reasons: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Detail>,
}

/// Why a reason holds.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Detail {
    reason: &'static str,
    detail: String,
}

impl Readiness {
    /// Ready while `drain` is.
    #[must_use]
    pub fn new(drain: Drain) -> Self {
        Self { drain, requirements: Vec::new(), degradations: Vec::new() }
    }

    /// Not ready, for `reason`, while `holds` is false. It is called on each probe and must not block.
    #[must_use]
    pub fn require(mut self, reason: &'static str, holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let detail = Box::new(move || (!holds()).then(String::new));
        self.requirements.push(ReadyCondition { reason, detail });
        self
    }

    /// Ready all the same, but degraded for `reason`, while `holds` is true. It is called on each
    /// probe and must not block.
    #[must_use]
    pub fn degraded(self, reason: &'static str, holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.degraded_because(reason, move || holds().then(String::new))
    }

    /// The same, while `detail` says why.
    #[must_use]
    pub fn degraded_because(
        mut self,
        reason: &'static str,
        detail: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.degradations.push(ReadyCondition { reason, detail: Box::new(detail) });
        self
    }

    fn verdict(&self, verbose: bool) -> Verdict {
        let stage = self.drain.stage();
        let lifecycle = match stage {
            Stage::Ready => None,
            Stage::Starting => Some("the process is starting"),
            _ => Some("the process is draining"),
        };
        let mut details = Vec::new();
        let mut reasons_of = |conditions: &[ReadyCondition]| -> Vec<&'static str> {
            let look = |condition: &ReadyCondition| {
                let (reason, detail) = (condition.reason, (condition.detail)()?);
                if verbose && !detail.is_empty() {
                    details.push(Detail { reason, detail });
                }
                Some(reason)
            };
            conditions.iter().filter_map(look).collect()
        };
        let (unmet, degraded) = (reasons_of(&self.requirements), reasons_of(&self.degradations));
        let reasons: Vec<_> = lifecycle.into_iter().chain(unmet).collect();
        Verdict { ready: reasons.is_empty(), stage: stage.name(), reasons, degraded, details }
    }
}

/// The fields of a request that the page may depend on.
struct PageRequest<'a> {
    uri: &'a Uri,
    headers: &'a HeaderMap,
}

/// What makes a page.
type PageReply = fn(&Operator, &PageRequest<'_>) -> Response<Body>;

/// Whether a request with these fields may read the configuration.
type IsReader = dyn Fn(&Uri, &HeaderMap) -> bool + Send + Sync;

/// Answers an operator's requests.
pub struct Operator {
    readiness: Readiness,
    /// The clients that are told details; `None`: all.
    is_reader: Option<Box<IsReader>>,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Operator").field("readiness", &self.readiness).finish_non_exhaustive()
    }
}

impl Operator {
    /// From its parts. All clients are told details, until [`Operator::with_readers`] says otherwise.
    #[must_use]
    pub fn new(readiness: Readiness, metrics: Metrics) -> Self {
        Self { readiness, is_reader: None, metrics: Arc::new(metrics) }
    }

    /// The same, which tells details only to clients that `is_reader` accepts.
    #[must_use]
    pub fn with_readers(self, is_reader: impl Fn(&Uri, &HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        Self { is_reader: Some(Box::new(is_reader)), ..self }
    }

    /// The metrics page, for a caller that sends it on.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The reply and the index of its template in [`TEMPLATES`], if the path is one of them.
    #[must_use]
    pub fn answer<B>(&self, request: &Request<B>) -> Option<(u8, Response<Body>)> {
        let path = request.uri().path();
        let (index, page): (u8, PageReply) = match path {
            "/livez" => (0, |_, _| page(StatusCode::OK, "text/plain; charset=utf-8", "alive\n")),
            "/readyz" => (1, Self::ready),
            "/metrics" => (2, |operator, head| {
                let exposition = Exposition::negotiated(head.headers);
                page(StatusCode::OK, exposition.content_type(), operator.metrics.page(exposition))
            }),
            _ => return None,
        };
        if request.method() == Method::GET || request.method() == Method::HEAD {
            let head = PageRequest { uri: request.uri(), headers: request.headers() };
            return Some((index, page(self, &head)));
        }
        let mut refusal = Response::new(Body::Empty);
        *refusal.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        Some((index, refusal))
    }

    fn ready(&self, asked: &PageRequest<'_>) -> Response<Body> {
        let mut parameters = asked.uri.query().unwrap_or_default().split('&');
        let verbose = parameters.any(|it| it == "verbose" || it.starts_with("verbose="));
        let may_read = || self.is_reader.as_ref().is_none_or(|is_reader| is_reader(asked.uri, asked.headers));
        let verdict = self.readiness.verdict(verbose && may_read());
        let status = if verdict.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        // Invariant: a verdict is a struct of plain values, which always serialises.
        let body = serde_json::to_vec(&verdict).unwrap_or_default();
        page(status, "application/json", body)
    }
}

fn page(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn get(operator: &Operator, path: &str) -> (u16, String) {
        let request = Request::get(path).body(()).unwrap();
        let (index, response) = operator.answer(&request).unwrap();
        assert_eq!(Some(TEMPLATES[usize::from(index)]), path.split('?').next());
        let status = response.status().as_u16();
        let Body::Full(bytes) = response.into_body() else { panic!("a page is whole") };
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn readiness_falls_first_and_liveness_stays() {
        let drain = Drain::new();
        let operator = Operator::new(Readiness::new(drain.clone()), Metrics::new());
        assert_eq!(get(&operator, "/readyz").0, 503);
        drain.advance(Stage::Ready);
        let ready = r#"{"ready":true,"stage":"ready","reasons":[]}"#;
        assert_eq!(get(&operator, "/readyz"), (200, ready.to_owned()));
        drain.advance(Stage::Draining);
        let (status, body) = get(&operator, "/readyz");
        assert_eq!((status, body.contains("draining")), (503, true), "{body}");
        assert_eq!(get(&operator, "/livez").0, 200);
    }

    #[test]
    fn an_unmet_requirement_is_named() {
        let drain = Drain::new();
        drain.advance(Stage::Ready);
        let loaded = Arc::new(AtomicBool::new(false));
        let holds = Arc::clone(&loaded);
        let readiness = Readiness::new(drain).require("no snapshot yet", move || holds.load(Relaxed));
        let operator = Operator::new(readiness, Metrics::new());
        let (status, body) = get(&operator, "/readyz");
        assert_eq!((status, body.contains("no snapshot yet")), (503, true), "{body}");
        loaded.store(true, Relaxed);
        assert_eq!(get(&operator, "/readyz").0, 200);
    }

    #[test]
    fn a_degraded_process_is_ready_and_says_so() {
        let drain = Drain::new();
        drain.advance(Stage::Ready);
        let away = Arc::new(AtomicBool::new(true));
        let holds = Arc::clone(&away);
        let readiness = Readiness::new(drain).degraded("without its database", move || holds.load(Relaxed));
        let operator = Operator::new(readiness, Metrics::new());
        let body = r#"{"ready":true,"stage":"ready","reasons":[],"degraded":["without its database"]}"#;
        assert_eq!(get(&operator, "/readyz"), (200, body.to_owned()));
        away.store(false, Relaxed);
        assert!(!get(&operator, "/readyz").1.contains("degraded"));
    }

    #[test]
    fn why_a_process_is_degraded_is_said_to_those_who_ask_for_it() {
        let drain = Drain::new();
        drain.advance(Stage::Ready);
        let readiness = Readiness::new(drain)
            .degraded_because("without its store", || Some("10.0.0.1:6379: connection refused".to_owned()))
            .degraded_because("nothing", || None);
        let operator = Operator::new(readiness, Metrics::new());
        let (status, short) = get(&operator, "/readyz");
        assert_eq!(
            (status, short.contains("without its store"), short.contains("10.0.0.1")),
            (200, true, false)
        );
        for path in ["/readyz?verbose", "/readyz?x=1&verbose=1"] {
            let (_, long) = get(&operator, path);
            let details = r#","details":[{"reason":"without its store","detail":"10.0.0.1:6379: connection refused"}]}"#;
            assert!(long.ends_with(details) && !long.contains("nothing"), "{long}");
        }
    }

    #[test]
    fn addresses_and_errors_are_for_those_who_may_read() {
        let readiness = Readiness::new(Drain::new())
            .degraded_because("without its store", || Some("10.0.0.1:6379: connection refused".to_owned()));
        let operator = Operator::new(readiness, Metrics::new()).with_readers(|_, fields| {
            fields.get(header::AUTHORIZATION).is_some_and(|it| it == "Bearer reader")
        });
        for (token, is_told) in [("Bearer reader", true), ("Bearer other", false)] {
            let request = Request::get("/readyz?verbose").header(header::AUTHORIZATION, token);
            let (_, response) = operator.answer(&request.body(()).unwrap()).unwrap();
            let Body::Full(bytes) = response.into_body() else { panic!("a page is whole") };
            let body = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(body.contains("without its store"), "what is not well is no secret: {body}");
            assert_eq!(body.contains("10.0.0.1"), is_told, "{body}");
        }
    }

    #[test]
    fn other_paths_are_not_ours_and_other_methods_are_refused() {
        let operator = Operator::new(Readiness::new(Drain::new()), Metrics::new());
        assert!(operator.answer(&Request::get("/v1/decisions").body(()).unwrap()).is_none());
        let (_, refusal) = operator.answer(&Request::post("/metrics").body(()).unwrap()).unwrap();
        assert_eq!(refusal.status(), StatusCode::METHOD_NOT_ALLOWED);
        let asked = Request::get("/metrics").header(header::ACCEPT, "application/openmetrics-text");
        let (_, page) = operator.answer(&asked.body(()).unwrap()).unwrap();
        assert_eq!(page.headers()[header::CONTENT_TYPE], Exposition::OpenMetrics.content_type());
        assert!(!get(&operator, "/metrics").1.contains("# EOF"));
    }
}
