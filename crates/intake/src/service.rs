//! The intake's listener: each path's handler, and how a refusal is told in each protocol.
//!
//! | path | method | does |
//! |---|---|---|
//! | `/metrics` | POST | keeps a batch of JSON |
//! | | GET | the intake's own numbers: as JSON, or as Prometheus asks for them |
//! | `/health` | GET | says that the process takes metrics |
//! | `/api/v1/write` | POST | keeps samples of Prometheus remote write |
//! | `/v1/metrics` | POST | keeps points of OpenTelemetry, in protobuf or JSON |
//! | `/opentelemetry.proto.collector.metrics.v1.MetricsService/Export` | POST | the same over gRPC |
//! | `/api/v2/write`, `/write` | POST | keeps points of InfluxDB's line protocol |
//! | `/ping`, `/api/v2/ping` | GET, HEAD | says to InfluxDB's clients that somebody is there |
//! | `/query` | GET, POST | says that a database was created, which they ask for before they write |
//! | `/v1/intake/read` | GET | lines from an offset on, as a reply or as a stream of events |
//! | `/v1/intake/query` | GET | points of one name |
//! | `/v1/intake/alerts` | GET | the alert rules, and which series are beyond their thresholds |
//! | `/v1/intake/series` | GET | how many series the clients have that have the most |
//! | `/v1/intake/commit` | POST | notes how far a group of readers has come |

use std::sync::Arc;

use http::request::Parts as Head;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::json;
use tidegate_net::drain::Stage;
use tidegate_net::http::{Body, Handle, HandleFuture, Peer, Reply, RequestBody};
use tidegate_net::stats::Route;
use tidegate_wire::problem::{MEDIA_TYPE, Problem};

use crate::batch;
use crate::influx;
use crate::intake::Intake;
use crate::otlp;
use crate::refusal::Refusal;
use crate::remote_write;

/// Every route template that metrics may use; the first is for everything else.
pub const TEMPLATES: &[&str] = &[
    "other",
    "/metrics",
    "/health",
    READ,
    QUERY,
    COMMIT,
    ALERTS,
    SERIES,
    REMOTE_WRITE,
    OTLP,
    OTLP_CALL,
    INFLUX_2,
    INFLUX_1,
    PING_2,
    PING_1,
    INFLUX_QUERY,
];

const READ: &str = "/v1/intake/read";
const QUERY: &str = "/v1/intake/query";
const ALERTS: &str = "/v1/intake/alerts";
const SERIES: &str = "/v1/intake/series";
const REMOTE_WRITE: &str = "/api/v1/write";
const OTLP: &str = "/v1/metrics";
const OTLP_CALL: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const INFLUX_2: &str = "/api/v2/write";
const INFLUX_1: &str = "/write";
const PING_2: &str = "/api/v2/ping";
const PING_1: &str = "/ping";
const INFLUX_QUERY: &str = "/query";
const COMMIT: &str = "/v1/intake/commit";

/// The intake behind the server of [`tidegate_net::http`]; clones share it.
#[derive(Clone, Debug)]
pub struct IntakeService(pub Arc<Intake>);

impl Handle for IntakeService {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(self.serve(request, peer))
    }
}

impl IntakeService {
    async fn serve(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let index = TEMPLATES.iter().skip(1).position(|known| *known == path).map_or(0, |place| place + 1);
        let route = Route::new(u8::try_from(index).unwrap_or_default());
        let intake = &self.0;
        match (path, &head.method) {
            ("/metrics", &Method::POST) => {
                let done = intake.take_batch(&head, body, peer).await;
                intake.reply(route, done, batch::refused)
            }
            ("/metrics", &Method::GET) => Reply::new(route, intake.numbers(&head)),
            ("/health", &Method::GET) => Reply::new(route, intake.health()),
            (REMOTE_WRITE, &Method::POST) => {
                let done = intake.take_remote_write(&head, body, peer).await;
                intake.reply(route, done, remote_write::refused)
            }
            (INFLUX_2 | INFLUX_1, &Method::POST) => {
                intake.reply(route, intake.take_points(&head, body, peer).await, influx::refused)
            }
            (PING_2 | PING_1, &Method::GET | &Method::HEAD) => Reply::new(route, influx::pong()),
            (INFLUX_QUERY, &Method::GET | &Method::POST) => {
                let done = intake.answer_influx_query(&head, body, peer).await;
                intake.reply(route, done, influx::refused)
            }
            (OTLP, &Method::POST) => {
                let done = intake.take_otlp(&head, body, peer).await;
                intake.reply(route, done, |refusal| otlp::refused(&head, refusal))
            }
            (OTLP_CALL, &Method::POST) => {
                let done = intake.take_otlp_call(&head, body, peer).await;
                let status = done.as_ref().err().map(|refusal| refusal.status().as_u16());
                let reply = intake.reply(route, done, otlp::refused_call);
                // On the wire it is a 200, which says nothing in metrics.
                match status {
                    Some(status) => reply.counted_as(status),
                    None => reply,
                }
            }
            (READ, &Method::GET) => intake.reply(route, intake.read(&head, peer).await, problem),
            (QUERY, &Method::GET) => intake.reply(route, intake.query(&head, peer).await, problem),
            (ALERTS, &Method::GET) => intake.reply(route, intake.show_alerts(&head, peer), problem),
            (SERIES, &Method::GET) => intake.reply(route, intake.show_series(&head, peer), problem),
            (COMMIT, &Method::POST) => intake.reply(route, intake.commit(&head, peer).await, problem),
            // Calls of other services than the one above are told in gRPC that it is not here.
            _ => Reply::new(route, nothing_there(path)).last().told_to(&head.headers),
        }
    }
}

impl Intake {
    /// The reply to what was done, or `told` of why it was not.
    fn reply(
        &self,
        route: Route,
        done: Result<Response<Body>, Refusal>,
        told: impl FnOnce(&Refusal) -> Response<Body>,
    ) -> Reply {
        let refusal = match done {
            Ok(response) => return Reply::new(route, response),
            Err(refusal) => refusal,
        };
        self.parts.counters.count_refusal(refusal.reason());
        let reply = Reply::new(route, told(&refusal));
        if refusal.is_before_the_body() { reply.last() } else { reply }
    }

    fn health(&self) -> Response<Body> {
        let is_ready = self.parts.drain.stage() == Stage::Ready;
        let status = if is_ready { "healthy" } else { "draining" };
        let body = json!({ "status": status, "service": "ingestion" }).to_string();
        let mut response = batch::json(body.into_bytes());
        if !is_ready {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }

    fn numbers(&self, head: &Head) -> Response<Body> {
        let accepted = head.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let wants_text = accepted
            .flat_map(|value| value.split(','))
            .filter_map(|range| range.split(';').next())
            .any(|range| ["text/plain", "application/openmetrics-text"].contains(&range.trim()));
        if wants_text {
            return (self.parts.page)(&head.headers);
        }
        batch::json(self.parts.counters.to_json().to_string().into_bytes())
    }
}

/// What is answered to a request that none of the routes takes: its method is another, or its path.
fn nothing_there(path: &str) -> Response<Body> {
    match path {
        "/metrics" | INFLUX_QUERY => wrong_method("GET, POST"),
        PING_2 | PING_1 => wrong_method("GET, HEAD"),
        "/health" | READ | QUERY | ALERTS | SERIES => wrong_method("GET"),
        COMMIT | REMOTE_WRITE | OTLP | OTLP_CALL | INFLUX_2 | INFLUX_1 => wrong_method("POST"),
        _ => refuse(StatusCode::NOT_FOUND, "there is nothing at this path"),
    }
}

fn wrong_method(allowed: &'static str) -> Response<Body> {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "this path does not answer this method");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A refusal as a problem document.
fn problem(refusal: &Refusal) -> Response<Body> {
    let mut response = refuse(refusal.status(), &refusal.to_string());
    response.headers_mut().extend(refusal.fields());
    response
}

fn refuse(status: StatusCode, reason: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Body::from(Problem::new(status.as_u16(), title, reason).to_json()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}
