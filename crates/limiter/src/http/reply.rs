//! From this service's errors to statuses and problem documents.

use axum::response::IntoResponse;
use http::StatusCode;
use http::header::CONTENT_TYPE;
pub(super) use tidegate_access::json_body::{JsonBytes, expect_json, is_json};
pub(super) use tidegate_access::refusal::Refusal;
use tidegate_access::reply::JSON;
pub(super) use tidegate_access::reply::{Reply, bytes, json, no_content};
use tidegate_net::http::{Answered, Unwritten};
use tidegate_net::stats::Route;
use tidegate_wire::problem::{self, FieldError, Problem};

use super::ApiState;
use super::quota::describe;
use crate::decision::Decision;
use crate::error::AskError;
use crate::sources::SourceError;

/// Where a request states its attributes and its cost: what errors point to is what the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// In a body of `attributes` and `cost`.
    Body,
    /// In that item of a batch.
    Item(usize),
    /// Each by its own name: in the simple API, in a query.
    Flat,
}

impl Stated {
    fn attributes(self) -> String {
        match self {
            Self::Body => "/attributes".to_owned(),
            Self::Item(index) => format!("/{index}/attributes"),
            Self::Flat => String::new(),
        }
    }

    fn cost(self) -> String {
        match self {
            Self::Body | Self::Flat => "/cost".to_owned(),
            Self::Item(index) => format!("/{index}/cost"),
        }
    }

    pub(super) fn limits(self) -> String {
        match self {
            Self::Body | Self::Flat => "/limits".to_owned(),
            Self::Item(index) => format!("/{index}/limits"),
        }
    }

    /// An error of a request that states itself so.
    pub(super) fn refusal(self) -> impl FnOnce(AskError) -> Refusal {
        move |error| Refusal(problem_of(&error, self))
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        Self(problem_of(&error, Stated::Body))
    }
}

impl From<SourceError> for Refusal {
    fn from(error: SourceError) -> Self {
        Self(Problem::new(400, "Bad Request", error.to_string()))
    }
}

/// Answers a decision at once: the fields that describe it, then the JSON that `write` appends.
pub(super) fn decided(
    shared: &ApiState,
    decision: &Decision,
    reply: Unwritten<'_>,
    route: Route,
    write: impl FnOnce(&mut Vec<u8>),
) -> Answered {
    let mut head = reply.head(StatusCode::OK);
    head.field(&CONTENT_TYPE, |value| value.extend_from_slice(JSON.as_bytes()));
    describe(shared, decision, &mut head);
    head.end(route, write)
}

/// A text that must say something is empty, at this pointer.
pub(super) fn empty(pointer: &str) -> Refusal {
    let (pointer, accepted) = (pointer.to_owned(), "at least one byte".to_owned());
    let error = FieldError { pointer, detail: "is empty".to_owned(), accepted };
    Refusal(Problem { errors: vec![error], ..Problem::new(400, "Bad Request", "a field is empty") })
}

/// What is wrong with a request that states itself so, as a problem document.
#[must_use]
pub fn problem_of(error: &AskError, stated: Stated) -> Problem {
    let detail = error.to_string();
    let at = |pointer: String| vec![FieldError { pointer, detail: detail.clone(), accepted: String::new() }];
    let bad = |errors| Problem { errors, ..Problem::new(400, "Bad Request", detail.clone()) };
    match error {
        AskError::PermitTooLong(_) => bad(at(stated.attributes())),
        AskError::CostTooLarge(_) => Refusal::fields(&detail, at(stated.cost())).0,
        AskError::Store(_) => Problem {
            kind: problem::Type::TemporaryReducedCapacity,
            ..Problem::new(503, "Temporary Reduced Capacity", detail)
        },
    }
}

/// Stands in the router for routes that are answered before it is asked.
pub(super) async fn answered_before() -> axum::response::Response {
    Refusal::not_found("such path; see /openapi.json").into_response()
}
