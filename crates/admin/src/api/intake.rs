//! `/v1/intake/query`, `/v1/intake/oldest`, `/v1/intake/groups`: what the metrics intake has, and its groups of readers.
//!
//! The intake answers on its own listener, too, which no page of a browser may ask. The answers are the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use http::{StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_access::guard::Actor;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Change, Kind};
use tidegate_net::http::Body;
use tidegate_wire::problem::Problem;
use utoipa::ToSchema;

use super::Shared;
use super::changes::{author, refusal};

/// What will be there later.
type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A reader of an intake's lines.
pub trait ReadIntake: Debug + Send + Sync {
    /// Answers a query, as the intake's own listener does; `None`: there is no intake.
    fn query<'a>(&'a self, parameters: &'a str) -> Later<'a, Option<http::Response<Body>>>;

    /// The oldest line of each partition; `None`: there is no intake.
    fn oldest(&self) -> Later<'_, Option<Value>>;

    /// The groups of readers that have committed; `None`: there is no intake.
    fn groups(&self) -> Option<Vec<ReaderGroup>>;

    /// Forgets a group if it still is where this one is; whether it was.
    ///
    /// # Errors
    /// When what is kept of it cannot be removed, in words.
    fn remove_group<'a>(&'a self, group: &'a ReaderGroup) -> Later<'a, Result<bool, String>>;
}

/// How far a group of readers has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReaderGroup {
    /// Its name.
    pub name: String,
    /// The next line that it wants of each partition.
    pub offsets: BTreeMap<u16, u64>,
    /// Whether it is that of a forward which is configured.
    pub is_of_a_forward: bool,
}

/// How often a group is tried to be forgotten while it goes on. Each try has a line in the audit log.
const REMOVALS: usize = 3;

/// Groups in the audit log; there are no documents of this kind.
const GROUP: Kind = Kind::new("intake_group");

/// Points of one metric that the intake has: one for each step of time.
#[utoipa::path(
    operation_id = "query_intake", get, path = "/v1/intake/query", tag = "intake",
    params(
        ("name" = Option<String>, Query, description = "the metric, exactly; it must be given", example = "cpu.usage"),
        ("last" = Option<String>, Query, description = "from so long ago until now", example = "5m"),
        ("step" = Option<String>, Query, description = "the time that a point stands for; a sixtieth of all if absent", example = "10s"),
        ("agg" = Option<String>, Query, description = "min, max, avg, sum, count, rate, p50, p90, p95, p99 or p99.9; avg if absent", example = "max"),
        ("tags" = Option<String>, Query, description = "name=value that a line must have", example = "host=a"),
    ),
    responses(
        (status = 200, description = "The points: Unix milliseconds and a value each. `complete` is false where a bound was reached.", body = Object,
            example = json!({"name": "cpu.usage", "agg": "avg", "start": 1, "end": 300_001, "step": 5_000, "points": [[1, 81.5]], "lines": 1, "bytes_read": 120, "complete": true})),
        Problems,
    )
)]
pub(super) async fn query(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = query.unwrap_or_default();
    let answered = match &shared.explainers.intake {
        Some(intake) => intake.query(&query).await,
        None => None,
    };
    let (head, body) = answered.ok_or_else(missing)?.into_parts();
    let kind = if head.status.is_success() { "application/json" } else { "application/problem+json" };
    let body = if let Body::Full(bytes) = body { bytes } else { Bytes::new() };
    Ok((head.status, [(header::CONTENT_TYPE, kind)], body).into_response())
}

/// The oldest line that each partition of the intake's log keeps.
#[utoipa::path(
    operation_id = "oldest_of_intake", get, path = "/v1/intake/oldest", tag = "intake",
    responses(
        (status = 200, description = "The oldest line of each partition; `null` where there is none.", body = Object,
            example = json!({"oldest": [{"partition": 0, "offset": 0, "line": {"timestamp": "2026-11-23T08:00:00.000Z", "name": "cpu.usage", "value": 81.5, "type": "gauge", "tags": {}, "client": "127.0.0.1"}}]})),
        Problems,
    )
)]
pub(super) async fn oldest(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    let found = match &shared.explainers.intake {
        Some(intake) => intake.oldest().await,
        None => None,
    };
    found.map(Json).ok_or_else(missing)
}

/// The groups of readers that have committed how far they came.
#[utoipa::path(
    operation_id = "intake_groups", get, path = "/v1/intake/groups", tag = "intake",
    responses(
        (status = 200, description = "In the order of their names.", body = Vec<ReaderGroup>,
            example = json!([{"name": "billing", "offsets": {"0": 1_000}, "is_of_a_forward": false}])),
        Problems,
    )
)]
pub(super) async fn groups(State(shared): State<Arc<Shared>>) -> Result<Json<Vec<ReaderGroup>>, Refusal> {
    let groups = shared.explainers.intake.as_ref().and_then(|intake| intake.groups());
    groups.map(Json).ok_or_else(missing)
}

/// Forgets a group of readers, which makes room for another. If it reads again, it begins at the oldest line.
#[utoipa::path(
    operation_id = "remove_intake_group", delete, path = "/v1/intake/groups/{name}", tag = "intake",
    params(("name" = String, Path, min_length = 1, max_length = 64, description = "which", example = "billing")),
    responses((status = 204, description = "It is forgotten."), Problems)
)]
pub(super) async fn remove_group(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let intake = shared.explainers.intake.as_ref().ok_or_else(missing)?;
    let conflict = |detail| Refusal(Problem::new(409, "Conflict", detail));
    for before in 0..REMOVALS {
        let mut groups = intake.groups().ok_or_else(missing)?.into_iter();
        let Some(group) = groups.find(|group| group.name == name) else {
            // It is gone, also if another request removed it meanwhile.
            let is_gone = before > 0;
            let unknown = || Refusal::not_found(format_args!("group {name:?}"));
            return is_gone.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown);
        };
        if group.is_of_a_forward {
            let detail = "it is the group of a forward: take the forward out of the file and restart first";
            return Err(conflict(detail));
        }
        // Recorded first: what is forgotten is then never without its line in the audit log, the last one of which says
        // how far it had come.
        let record = Change::record_removal(GROUP, &*name, json!({ "offsets": group.offsets }).to_string());
        shared.configuration.change(record, author(&actor)).await.map_err(refusal)?;
        let failed = |detail| Refusal(Problem::new(500, "Internal Server Error", detail));
        if intake.remove_group(&group).await.map_err(failed)? {
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    Err(conflict("its readers go on committing: stop them first; it is not forgotten"))
}

fn missing() -> Refusal {
    Refusal::not_found("intake in this process")
}
