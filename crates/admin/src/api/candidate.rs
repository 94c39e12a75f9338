//! `/v1/candidate`: policies, routes and upstreams that are judged beside those in force, promoted or dropped by one call.
//!
//! The candidate is a document of the configuration: all nodes have it, and the audit log says who put it, promoted or
//! dropped it. The gateway and the decision service know what such a document is, what it would change and what was found; they
//! are a value from the binary. This file has the addresses, the rights and the changes.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tidegate_access::guard::Actor;
use tidegate_access::json_body::expect_json;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, ChangeError, Kind, Parts, Precondition, Revision};
use tidegate_wire::bodies::{UniqueJson, read as read_json};
use tidegate_wire::problem::Problem;
use utoipa::ToSchema;

use super::changes::{self, Tagged, edit, edit_all, precondition, tagged};
use super::{Shared, query};

const CANDIDATE: Kind = Kind::new("candidate");

/// The one document of its kind.
const NAME: &str = "candidate";

/// The gateway's candidate.
pub trait Candidates: Debug + Send + Sync {
    /// The document that a file in TOML has.
    ///
    /// # Errors
    /// When the file is not a candidate.
    fn read_toml(&self, file: &[u8]) -> Result<Value, Mistake>;

    /// The change that makes this document the candidate.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn proposed(&self, parts: &Parts, document: &Value) -> Result<Change, ChangeError>;

    /// The changes that put the stored candidate in force.
    ///
    /// # Errors
    /// There is no candidate.
    fn promoted(&self, parts: &Parts) -> Result<Vec<Change>, ChangeError>;

    /// The stored candidate.
    fn stored(&self, parts: &Parts) -> Option<StoredCandidate>;
}

/// The stored candidate, and what was found of it.
#[derive(Clone, Debug)]
pub struct StoredCandidate {
    /// Its version.
    pub revision: Revision,
    /// As it was sent.
    pub document: Value,
    /// Why it is not judged, if it is not.
    pub mistakes: Vec<Mistake>,
    /// What this node has found by its routes and upstreams.
    pub judged: Option<Value>,
    /// What this node has found by its policies.
    pub limits: Option<Value>,
}

/// The candidate, and how the requests of this node would fare under it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CandidateNow {
    /// Its version.
    revision: u64,
    /// The documents, as they were sent.
    candidate: Value,
    /// Why it is not judged, if it is not: it does not go with what is in force now.
    mistakes: Vec<String>,
    /// Since when it is judged beside what is in force, how many requests would end the same and how many differently, with
    /// examples of the latter; null while it is not judged.
    #[schema(required = true)]
    judged: Option<Value>,
    /// The same of the decisions that its policies would make: the `same`; `would_limit`, `would_allow`; null while no policies are
    /// judged.
    #[schema(required = true)]
    limits: Option<Value>,
}

/// What a promotion has put in force.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Promoted {
    /// The newest revision of its changes.
    revision: u64,
}

/// The candidate, and how the requests that this node has had since would fare under it: the `same`; `would_refuse`,
/// `would_admit`; `other_upstream`, `other_reply`, `other_route`, `other_limits` or `other_options`, the first of these that is so.
/// `examples` has up to ten pairs of outcomes of each difference, with the first request that had them, and how many did. `judged` is
/// about its routes and upstreams, `limits` about its policies; each is null where there are none.
#[utoipa::path(
    operation_id = "get_candidate", get, path = "/v1/candidate", tag = "gateway",
    responses(
        (status = 200, description = "The candidate and the counts of this node.", body = CandidateNow,
            example = json!({"revision": 7, "candidate": {"route": [{"name": "app", "upstream": "app-v2"}]}, "mistakes": [], "judged": {"since": "2026-11-23T08:00:00Z", "requests": 120, "by_difference": {"same": 100, "would_refuse": 0, "would_admit": 0, "other_upstream": 20, "other_reply": 0, "other_route": 0, "other_limits": 0, "other_options": 0}, "examples": [{"difference": "other_upstream", "method": "GET", "host": "shop.example", "path": "/cart", "in_force": {"route": "app", "forward": "app-v1"}, "candidate": {"route": "app", "forward": "app-v2"}, "requests": 20}], "without_example": 0}, "limits": null})),
        Problems,
    )
)]
pub(super) async fn read(State(shared): State<Arc<Shared>>) -> Result<Tagged<CandidateNow>, Refusal> {
    let stored = candidates(&shared)?.stored(&shared.configuration.parts());
    let stored = stored.ok_or_else(|| Refusal::not_found("candidate"))?;
    let StoredCandidate { revision, document, mistakes, judged, limits } = stored;
    let mistakes = mistakes.iter().map(ToString::to_string).collect();
    Ok(tagged(revision, CandidateNow { revision: revision.0, candidate: document, mistakes, judged, limits }))
}

/// Makes these policies, routes and upstreams the candidate, in the place of the one before: with them what is in force would be changed, and
/// without those in `remove`. It changes nothing but what is counted. It may be JSON, or TOML like the file.
#[utoipa::path(
    operation_id = "put_candidate", put, path = "/v1/candidate", tag = "gateway",
    params(("if-match" = Option<String>, Header, description = "change only this version; \"0\": only if there is no candidate yet", example = "\"7\"")),
    request_body(content = Object, content_type = "application/json", description = "`policy`, `upstream` and `route`, lists of documents with their names; `remove`, the names of stored ones that would go.",
        example = json!({"route": [{"name": "app", "upstream": "app-v2"}], "remove": {"route": ["old"]}})),
    responses(
        (status = 200, description = "It is judged from now on, at the other nodes within a second.", body = CandidateNow,
            example = json!({"revision": 7, "candidate": {"route": [{"name": "app", "upstream": "app-v2"}]}, "mistakes": [], "judged": null, "limits": null})),
        Problems,
    )
)]
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Tagged<CandidateNow>, Refusal> {
    let candidates = candidates(&shared)?;
    let document = sent(candidates, &headers, &body)?;
    let precondition = precondition(&headers)?;
    let (proposing, proposed) = (Arc::clone(candidates), document.clone());
    let put: tidegate_control::Edit =
        Box::new(move |parts| Ok(Some(proposing.proposed(parts, &proposed)?.when(precondition))));
    let revision = edit(&shared.configuration, &actor, (CANDIDATE, NAME), put, str::to_owned).await?;
    let (judged, limits) = (None, None);
    let now =
        CandidateNow { revision: revision.0, candidate: document, mistakes: Vec::new(), judged, limits };
    Ok(tagged(revision, now))
}

/// Drops the candidate. What is in force stays.
#[utoipa::path(
    operation_id = "drop_candidate", delete, path = "/v1/candidate", tag = "gateway",
    params(("if-match" = Option<String>, Header, description = "drop only this version", example = "\"7\"")),
    responses((status = 204, description = "It is gone, and nothing is judged."), Problems)
)]
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    candidates(&shared)?;
    changes::change(&shared.configuration, &actor, Change::delete(CANDIDATE, NAME), &headers).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts the candidate in force, all of it in one change, and drops it. It is 412 if one of its documents was changed since it was
/// put, so that nobody's work is undone: put it again. It is 412, too, if this node has not judged as many requests as are asked for, by
/// its routes and upstreams and by its policies, where it has such.
#[utoipa::path(
    operation_id = "promote_candidate", post, path = "/v1/candidate/promote", tag = "gateway",
    params(
        ("judged" = Option<u64>, Query, description = "promote only if this node has judged at least so many requests, and as many decisions if there are policies", example = 1000),
        ("if-match" = Option<String>, Header, description = "promote only this version", example = "\"7\""),
    ),
    responses(
        (status = 200, description = "It is in force at this node, at the others within a second.", body = Promoted,
            example = json!({"revision": 9})),
        Problems,
    )
)]
pub(super) async fn promote(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Tagged<Promoted>, Refusal> {
    let promoting = Arc::clone(candidates(&shared)?);
    let precondition = match query::number(&query.unwrap_or_default(), "judged", 0)? {
        0 => precondition(&headers)?,
        needed => judged(&shared, needed, precondition(&headers)?)?,
    };
    let dropped = Change::delete(CANDIDATE, NAME).when(precondition);
    let promote = move |parts: &Parts| {
        let mut changes = vec![dropped.clone()];
        changes.extend(promoting.promoted(parts)?);
        Ok(changes)
    };
    let revision = edit_all(&shared.configuration, &actor, (CANDIDATE, NAME), promote).await?;
    Ok(tagged(revision, Promoted { revision: revision.0 }))
}

/// What a promotion goes by: the version of which this node has judged so many requests, lest another one is promoted in its place.
fn judged(shared: &Shared, needed: u64, asked: Precondition) -> Result<Precondition, Refusal> {
    let stored = candidates(shared)?.stored(&shared.configuration.parts());
    let stored = stored.ok_or_else(|| Refusal::not_found("candidate"))?;
    let has = |kind: &str| {
        [&stored.document[kind], &stored.document["remove"][kind]]
            .iter()
            .any(|list| list.as_array().is_some_and(|list| !list.is_empty()))
    };
    let counted = |found: Option<&Value>, what: &str| found.and_then(|it| it[what].as_u64()).unwrap_or(0);
    for (is_there, count, what) in [
        (
            has("route") || has("upstream"),
            counted(stored.judged.as_ref(), "requests"),
            "requests by the candidate",
        ),
        (
            has("policy"),
            counted(stored.limits.as_ref(), "decisions"),
            "decisions by the candidate's policies",
        ),
    ] {
        if is_there && count < needed {
            let detail = format!("this node has judged {count} {what}, of {needed} that are asked for");
            return Err(Refusal(Problem::new(412, "Precondition Failed", detail)));
        }
    }
    Ok(if asked == Precondition::None { Precondition::IfMatch(stored.revision) } else { asked })
}

/// The document in a body of JSON or of TOML.
fn sent(candidates: &Arc<dyn Candidates>, headers: &HeaderMap, body: &[u8]) -> Result<Value, Refusal> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/toml") && !headers.contains_key(CONTENT_ENCODING) {
        return candidates.read_toml(body).map_err(|mistake| {
            Refusal::fields("the document has 1 mistake", vec![changes::field_error(mistake)])
        });
    }
    if expect_json(headers).is_err() {
        let detail = "send content-type: application/json or application/toml without a content-encoding";
        return Err(Refusal(Problem::new(415, "Unsupported Media Type", detail)));
    }
    let UniqueJson(document) = read_json(body)?;
    Ok(document)
}

fn candidates(shared: &Shared) -> Result<&Arc<dyn Candidates>, Refusal> {
    shared.explainers.candidates.as_ref().ok_or_else(|| Refusal::not_found("gateway in this process"))
}
