//! `GET /v1/analytics`: how many requests a gateway had, by route, API key, server and status, and how fast it was.
//!
//! The gateway counts and answers, as a value from the binary; here are the address, the rights and the document.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_wire::problem::Problem;

use super::Shared;
use super::explain::NoExplanation;

/// Who has counted requests.
pub trait CountedRequests: Debug + Send + Sync {
    /// What they were, as these parameters ask.
    fn answer<'a>(
        &'a self,
        parameters: &'a [(String, String)],
    ) -> Pin<Box<dyn Future<Output = Result<CountedAnswer, NoAnswer>> + Send + 'a>>;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// A parameter is wrong.
    Question(NoExplanation),
    /// What is stored cannot be read now, in these words.
    Away(String),
}

/// An answer in the form that was asked for.
#[derive(Clone, Debug)]
pub enum CountedAnswer {
    /// As JSON.
    Json(Value),
    /// As comma-separated values.
    Csv(String),
}

/// Requests that the gateways of all nodes have answered, told apart as one likes: what each has stored, which it does once a
/// minute (`gateway.analytics_interval`), and what the one that is asked has not stored yet. A span of time counts if it is at least in part between `from` and
/// `to`; `total` is all rows together. A request that no server was asked about counts for its route's upstream. Percentiles are at most 12.5 % too high. While the store is away there is only what this node has not stored:
/// `complete` is false then, and CSV is refused with 503.
#[utoipa::path(
    get, path = "/v1/analytics", tag = "gateway",
    params(
        ("by" = Option<String>, Query, description = "some of route,key,upstream,server,status; all requests together if absent", example = "route,status"),
        ("step" = Option<String>, Query, description = "minute (120 are kept), hour (168) or day (366): a row for each; one for all the time if absent", example = "hour"),
        ("from" = Option<String>, Query, description = "a date or a time; an hour ago if absent", example = "2026-11-01"),
        ("to" = Option<String>, Query, description = "a time, or a date, which then counts as a whole; now if absent", example = "2026-11-23T08:00:00Z"),
        ("route" = Option<String>, Query, description = "only this route's", example = "app"),
        ("key" = Option<String>, Query, description = "only those with the API key of this id"),
        ("format" = Option<String>, Query, description = "json or csv", example = "json"),
    ),
    responses(
        (status = 200, description = "The rows, as JSON or CSV.", body = Object,
            example = json!({"from": "2026-11-23T07:00:00Z", "to": "2026-11-23T08:00:01Z", "resolution": "minute", "complete": true, "series_left_out": 0, "total": {"requests": 120, "succeeded": 100, "rate_limited": 15, "client_errors": 1, "failed": 4, "bytes": 51200, "mean_ms": 3.1, "p50_ms": 2.0, "p95_ms": 9.2, "p99_ms": 30.7}, "rows": [{"route": "app", "requests": 120, "succeeded": 100, "rate_limited": 15, "client_errors": 1, "failed": 4, "bytes": 51200, "mean_ms": 3.1, "p50_ms": 2.0, "p95_ms": 9.2, "p99_ms": 30.7}]})),
        Problems,
    )
)]
pub(super) async fn analytics(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let Some(requests) = &shared.explainers.requests else {
        return Err(Refusal::not_found("count of requests in this process: gateway.analytics is off"));
    };
    let query = query.unwrap_or_default();
    let parameters: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let answer = requests.answer(&parameters).await.map_err(|why| match why {
        NoAnswer::Question(NoExplanation { parameter, problem, accepted }) => {
            Refusal::field(format!("/{parameter}"), problem, accepted)
        }
        NoAnswer::Away(why) => Refusal(Problem::new(503, "The counts cannot be read", why)),
    })?;
    Ok(match answer {
        CountedAnswer::Json(value) => Json(value).into_response(),
        CountedAnswer::Csv(text) => ([(CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response(),
    })
}
