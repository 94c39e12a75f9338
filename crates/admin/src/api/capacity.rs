//! `/v1/capacity`: one accepted report of `tidegate saturate`, and the load of now beside it.
//!
//! What is kept of a report is a document of the configuration: it is in the audit log, all nodes have it, and who
//! forgets it is named. Reading reports and counting requests is the binary's part.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Change, Kind, Revision, Snapshot};
use utoipa::ToSchema;

use super::changes::{self, Tagged, tagged};
use super::{NoExplanation, Shared, query};

const CAPACITY: Kind = Kind::new("capacity");

/// The one document of its kind.
const NAME: &str = "accepted";

/// A reader of reports and of counts of requests.
pub trait CapacityReports: Debug + Send + Sync {
    /// What is kept of a report, for the load of this server of the process.
    ///
    /// # Errors
    /// When the text is no report, or says nothing that a load can be compared with.
    fn read(&self, server: &str, report: &str) -> Result<AcceptedCapacity, NoExplanation>;

    /// Requests per second of the server that the accepted report is for; `None`: there is no accepted report, or it
    /// is too early to say.
    fn load(&self) -> Option<f64>;
}

/// What is kept of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedCapacity {
    /// The server of the process whose load it is compared with, as in the label `server` of the metrics.
    pub server: String,
    /// Replies per second, denials among them.
    pub per_second: f64,
    /// Whether that is where more load stops giving more. Otherwise it is the most that was kept up.
    pub is_knee: bool,
    /// Why it was not more, `unknown` where nobody knows.
    pub cause: String,
    /// The same in a sentence.
    pub cause_summary: String,
    /// What the report concludes.
    pub sentence: String,
    /// What was tested.
    pub target: String,
    /// When, RFC 3339.
    pub started: String,
    /// By which version.
    pub version: String,
}

impl AcceptedCapacity {
    /// The one that is stored.
    #[must_use]
    pub fn stored(documents: &Snapshot) -> Option<(Self, Revision)> {
        let document = documents.get(CAPACITY, NAME)?;
        // Only this program writes it; a body that was altered on the disk counts as absent.
        let accepted = serde_json::from_str(&document.body).ok()?;
        Some((accepted, document.revision))
    }
}

/// The accepted report, and the load of now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CapacityNow {
    /// What is kept of it; null if none was accepted.
    #[schema(required = true)]
    accepted: Option<AcceptedCapacity>,
    /// Requests per second in the last ten seconds, of this node; null without a report, or so early.
    #[schema(required = true)]
    requests_per_second: Option<f64>,
    /// Of what the report says that can be kept up: 1 is all; null while that is not known.
    #[schema(required = true)]
    used: Option<f64>,
}

/// The parameters of a new report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForServer {
    #[serde(default = "decisions")]
    server: String,
}

fn decisions() -> String {
    "api".to_owned()
}

/// What the accepted capacity report says, and how much of that is asked for now.
#[utoipa::path(
    operation_id = "get_capacity", get, path = "/v1/capacity", tag = "operation",
    responses(
        (status = 200, description = "The report, if one was accepted, and the load of this node.", body = CapacityNow,
            example = json!({"accepted": {"server": "api", "per_second": 41000.0, "is_knee": true, "cause": "server-cpu", "cause_summary": "The server's cores are used up.", "sentence": "It keeps up 41,000 requests per second.", "target": "http://127.0.0.1:4000/v1/decisions", "started": "2026-11-23T08:00:00Z", "version": "0.1.0"}, "requests_per_second": 25420.0, "used": 0.62})),
        Problems,
    )
)]
pub(super) async fn read(State(shared): State<Arc<Shared>>) -> Result<Tagged<CapacityNow>, Refusal> {
    let reports = reports(&shared)?;
    let stored = AcceptedCapacity::stored(shared.configuration.parts().documents());
    let (accepted, revision) = stored.map_or((None, Revision(0)), |(it, revision)| (Some(it), revision));
    let load = accepted.as_ref().and_then(|_| reports.load());
    let used = accepted.as_ref().zip(load).map(|(accepted, load)| load / accepted.per_second);
    Ok(tagged(revision, CapacityNow { accepted, requests_per_second: load, used }))
}

/// Accepts a report, as `tidegate saturate --json` writes it, in the place of the one before.
#[utoipa::path(
    operation_id = "accept_capacity", post, path = "/v1/capacity", tag = "operation",
    params(("server" = Option<String>, Query, description = "the server whose load it is compared with, by the label `server` of the metrics; api if absent", example = "gateway")),
    request_body(content = Object, content_type = "application/json", description = "The report.",
        example = json!({"schema": "tidegate-report/2"})),
    responses(
        (status = 200, description = "What is kept of it.", body = AcceptedCapacity,
            example = json!({"server": "gateway", "per_second": 41000.0, "is_knee": true, "cause": "server-cpu", "cause_summary": "The server's cores are used up.", "sentence": "It keeps up 41,000 requests per second.", "target": "http://127.0.0.1:8080/", "started": "2026-11-23T08:00:00Z", "version": "0.1.0"})),
        Problems,
    )
)]
pub(super) async fn accept(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    query: Result<Query<ForServer>, QueryRejection>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<AcceptedCapacity>, Refusal> {
    let ForServer { server } = query::whole(query)?;
    let not_text = |_| Refusal::field("", "is not text in UTF-8", "a report of tidegate saturate --json");
    let report = std::str::from_utf8(&body).map_err(not_text)?;
    let accepted = reports(&shared)?.read(&server, report).map_err(|mistake| {
        let pointer =
            if mistake.parameter.is_empty() { String::new() } else { format!("/{}", mistake.parameter) };
        Refusal::field(pointer, mistake.problem, mistake.accepted)
    })?;
    // A plain struct with string keys always serialises.
    let document = serde_json::to_string(&accepted).unwrap_or_default();
    let change = Change::put(CAPACITY, NAME, document);
    let revision = changes::change(&shared.configuration, &actor, change, &headers).await?;
    Ok(tagged(revision, accepted))
}

/// Forgets the accepted report.
#[utoipa::path(
    operation_id = "forget_capacity", delete, path = "/v1/capacity", tag = "operation",
    params(("if-match" = Option<String>, Header, description = "forget only this version", example = "\"7\"")),
    responses((status = 204, description = "It is gone."), Problems)
)]
pub(super) async fn forget(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    changes::change(&shared.configuration, &actor, Change::delete(CAPACITY, NAME), &headers).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn reports(shared: &Shared) -> Result<&Arc<dyn CapacityReports>, Refusal> {
    shared.explainers.capacity.as_ref().ok_or_else(|| Refusal::not_found("load to compare in this process"))
}
