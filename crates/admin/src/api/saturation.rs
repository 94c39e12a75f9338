//! `/v1/saturation`: runs of `tidegate saturate` against this machine, and the reports that they leave.
//!
//! The binary starts the run as a process of its own; this file checks addresses and rights, and writes the audit log.
//! A run puts as much load on its target as it can carry, so starting one takes the scope `configure`.

use std::fmt::Debug;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Change, Kind};
use tidegate_wire::bodies::read;
use tidegate_wire::problem::Problem;
use utoipa::ToSchema;

use super::changes::{author, refusal};
use super::{NoExplanation, Shared, query};

/// Runs in the audit log; there are no documents of this kind.
const RUN: Kind = Kind::new("saturation_run");

/// The tester of this machine. Its methods may block.
pub trait SaturationRuns: Debug + Send + Sync {
    /// What this machine allows of such a run.
    ///
    /// # Errors
    /// When the run may not be started from here.
    fn preflight(&self, wanted: &WantedRun) -> Result<Value, NoExplanation>;

    /// Whether one is under way.
    fn is_running(&self) -> bool;

    /// Begins it.
    ///
    /// # Errors
    /// When one is under way, when it may not be run from here or cannot be started.
    fn start(&self, wanted: &WantedRun) -> Result<(), NotStarted>;

    /// Ends the run under way early; what it was asked for, if there is one.
    fn cancel(&self) -> Option<WantedRun>;

    /// The last run, and the reports that there are.
    fn state(&self) -> Value;

    /// A report, by its name in the list.
    fn report(&self, name: &str) -> Option<String>;
}

/// Why a run was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// One is under way.
    Busy,
    /// It may not be run from here.
    Refused(NoExplanation),
    /// The process could not be started.
    Failed(String),
}

/// A run that is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedRun {
    /// Where to, on this machine: http://, https://, h2c://, h2://, grpc://, grpcs://, tcp:// or redis:// with 127.0.0.1,
    /// `[::1]` or localhost.
    pub target: String,
    /// Most connections that are opened.
    #[serde(default = "connections")]
    pub max_connections: u32,
    /// Measured seconds of each step.
    #[serde(default = "seconds")]
    pub step_seconds: f64,
    /// Most minutes over all steps.
    #[serde(default = "minutes")]
    pub max_minutes: f64,
}

fn connections() -> u32 {
    256
}

fn seconds() -> f64 {
    5.0
}

fn minutes() -> f64 {
    5.0
}

/// The last run of the tester from here, and the reports in the data folder.
#[utoipa::path(
    operation_id = "get_saturation", get, path = "/v1/saturation", tag = "operation",
    responses(
        (status = 200, description = "The last run, null if there was none, and the reports, the newest first.", body = Object,
            example = json!({"run": {"state": "running", "wanted": {"target": "http://127.0.0.1:3000/", "max_connections": 256, "step_seconds": 5.0, "max_minutes": 5.0}, "began_unix_ms": 1, "said": ["step 1: 1 connection"], "exit": null, "report": "run-1.json"}, "reports": [{"name": "run-1.json", "bytes": 51200, "at_unix_ms": 1}]})),
        Problems,
    )
)]
pub(super) async fn state(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    blocking(&shared, |runs| runs.state()).await.map(Json)
}

/// One of the reports.
#[utoipa::path(
    operation_id = "get_saturation_report", get, path = "/v1/saturation/reports/{name}", tag = "operation",
    params(("name" = String, Path, description = "its name in the list", example = "run-1.json")),
    responses((status = 200, description = "The report as it was written.", body = Object,
        example = json!({"schema": "tidegate-report/2"})), Problems)
)]
pub(super) async fn report(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let wanted = name.clone();
    let found = blocking(&shared, move |runs| runs.report(&wanted)).await?;
    let text = found.ok_or_else(|| Refusal::not_found(format_args!("report {name:?}")))?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// What this machine allows of a run, before it is started.
#[utoipa::path(
    operation_id = "preflight_saturation", get, path = "/v1/saturation/preflight", tag = "operation",
    params(
        ("target" = String, Query, description = "where to, on this machine", example = "http://127.0.0.1:3000/"),
        ("max_connections" = Option<u32>, Query, description = "most connections; 256 if absent", example = 256),
    ),
    responses((status = 200, description = "What was found; `blocked` says that it would not run.", body = Object,
        example = json!({"blocked": false, "findings": [{"severity": "ok", "text": "descriptors: 1024 of 1048576", "remedy": null}]})), Problems)
)]
pub(super) async fn preflight(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<WantedRun>, QueryRejection>,
) -> Result<Json<Value>, Refusal> {
    let wanted = query::whole(query)?;
    blocking(&shared, move |runs| runs.preflight(&wanted)).await?.map(Json).map_err(wrong)
}

/// Starts a run; one at a time. It ends with the server at the latest.
#[utoipa::path(
    operation_id = "start_saturation", post, path = "/v1/saturation/run", tag = "operation",
    request_body(content = WantedRun, example = json!({"target": "http://127.0.0.1:3000/", "max_connections": 64, "step_seconds": 5.0, "max_minutes": 5.0})),
    responses((status = 202, description = "It has begun: GET /v1/saturation tells how it goes.", body = Object,
        example = json!({"run": null, "reports": []})), Problems)
)]
pub(super) async fn start(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let wanted: WantedRun = read(&body)?;
    let checked = wanted.clone();
    blocking(&shared, move |runs| runs.preflight(&checked)).await?.map_err(wrong)?;
    if blocking(&shared, |runs| runs.is_running()).await? {
        return Err(busy());
    }
    // Recorded first: no load is then without its line in the audit log.
    record(&shared, &actor, &wanted, "started").await?;
    let started = blocking(&shared, move |runs| runs.start(&wanted)).await?;
    started.map_err(|why| match why {
        // Of two requests at once, one is refused here.
        NotStarted::Busy => busy(),
        NotStarted::Refused(mistake) => wrong(mistake),
        NotStarted::Failed(why) => Refusal(Problem::new(503, "Service Unavailable", why)),
    })?;
    Ok((StatusCode::ACCEPTED, state(State(shared)).await?))
}

/// Ends the run under way early. Its report has what was measured until then.
#[utoipa::path(
    operation_id = "cancel_saturation", delete, path = "/v1/saturation/run", tag = "operation",
    responses((status = 200, description = "It is told to end: GET /v1/saturation tells when it has.", body = Object,
        example = json!({"run": {"state": "ending"}, "reports": []})), Problems)
)]
pub(super) async fn cancel(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
) -> Result<Json<Value>, Refusal> {
    let cancelled = blocking(&shared, |runs| runs.cancel()).await?;
    let wanted = cancelled.ok_or_else(|| Refusal::not_found("run under way"))?;
    record(&shared, &actor, &wanted, "cancelled").await?;
    state(State(shared)).await
}

fn busy() -> Refusal {
    Refusal(Problem::new(409, "Conflict", "a run is under way; one at a time".to_owned()))
}

async fn record(shared: &Shared, actor: &Actor, wanted: &WantedRun, what: &str) -> Result<(), Refusal> {
    let body = json!({ "what": what, "wanted": wanted }).to_string();
    let line = Change::record_removal(RUN, what, body);
    shared.configuration.change(line, author(actor)).await.map(drop).map_err(refusal)
}

fn wrong(NoExplanation { parameter, problem, accepted }: NoExplanation) -> Refusal {
    Refusal::field(format!("/{parameter}"), problem, accepted)
}

/// Asks on a thread that may block.
async fn blocking<T: Send + 'static>(
    shared: &Shared,
    ask: impl FnOnce(&dyn SaturationRuns) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let runs = shared.explainers.saturation.clone();
    let runs = runs.ok_or_else(|| Refusal::not_found("tester in this process"))?;
    // A runtime that shuts down has nobody to answer.
    let asked = tokio::task::spawn_blocking(move || ask(&*runs)).await;
    asked.map_err(|_| Refusal(Problem::new(503, "Service Unavailable", "the server is stopping".to_owned())))
}
