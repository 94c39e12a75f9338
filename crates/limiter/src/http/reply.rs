//! Replies: JSON, problem documents, and the one mapping from errors to statuses.

use axum::extract::FromRequest;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use tidegate_algorithms::policy::Mistake;
use tidegate_control::ChangeError;
use tidegate_wire::bodies::BodyError;
use tidegate_wire::problem::{self, FieldError, Problem};

use crate::credential::Denial;
use crate::error::AskError;
use crate::sources::SourceError;

/// A reply whose body is whole.
pub(super) type Reply = Response<Bytes>;

/// The media type of replies that are not problems.
pub(super) const JSON: &str = "application/json";

/// How many characters of a foreign host or origin a reply repeats.
const MAX_SHOWN: usize = 80;

/// Why a request gets no answer of its own kind.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The body is not JSON, or a field is wrong.
    Body(BodyError),
    /// The body is of another type, or encoded.
    NotJson,
    /// The request is out of bounds, or the store gave no answer.
    Ask {
        /// Why.
        error: AskError,
        /// Where the request stated what it is about.
        stated: Stated,
    },
    /// What was sent has more than one reading.
    Source(SourceError),
    /// The configuration was not changed.
    Change(ChangeError),
    /// A field outside a body is wrong.
    Field {
        /// Where: a query parameter, header or path segment.
        place: String,
        /// What is wrong.
        problem: String,
        /// What would be right.
        accepted: &'static str,
    },
    /// A text that must say something is empty, at this pointer.
    Empty(&'static str),
    /// A token is missing, or not one that may do this.
    Denied(Denial),
    /// Without a token: a page of another site may have sent it. The host that it names.
    ForeignHost(String),
    /// The same. The origin that it names.
    ForeignOrigin(String),
    /// There is nothing of that name.
    NotFound(String),
}

/// Where a request states its attributes and its cost: what errors point to is what the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stated {
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

    fn attribute(self, name: &str) -> String {
        format!("{}/{}", self.attributes(), name.replace('~', "~0").replace('/', "~1"))
    }

    fn cost(self) -> String {
        match self {
            Self::Body | Self::Flat => "/cost".to_owned(),
            Self::Item(index) => format!("/{index}/cost"),
        }
    }

    /// An error of a request that states itself so.
    pub(super) fn refusal(self) -> impl FnOnce(AskError) -> Refusal {
        move |error| Refusal::Ask { error, stated: self }
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        Self::Ask { error, stated: Stated::Body }
    }
}

impl From<SourceError> for Refusal {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        Self::Change(error)
    }
}

impl Refusal {
    fn problem(self) -> Problem {
        match self {
            Self::Body(BodyError::Syntax(detail)) => Problem::new(400, "Bad Request", detail),
            Self::Body(BodyError::Field(error)) => fields("a field is wrong", vec![error]),
            Self::NotJson => Problem::new(
                415,
                "Unsupported Media Type",
                "send content-type: application/json without a content-encoding",
            ),
            Self::Ask { error, stated } => ask_problem(&error, stated),
            Self::Source(error) => Problem::new(400, "Bad Request", error.to_string()),
            Self::Change(error) => change_problem(error),
            Self::Field { place, problem, accepted } => fields(
                "a field is wrong",
                vec![FieldError { pointer: place, detail: problem, accepted: accepted.to_owned() }],
            ),
            Self::Empty(pointer) => {
                let (pointer, accepted) = (pointer.to_owned(), "1 to 512 bytes".to_owned());
                let error = FieldError { pointer, detail: "is empty".to_owned(), accepted };
                Problem { errors: vec![error], ..Problem::new(400, "Bad Request", "a field is empty") }
            }
            Self::Denied(denial @ Denial::Unknown) => {
                Problem::new(401, "Unauthorized", format!("{denial}: authorization: Bearer ..."))
            }
            Self::Denied(denial @ Denial::Scope(_)) => Problem::new(403, "Forbidden", denial.to_string()),
            Self::ForeignHost(host) => foreign("host", &host, "http.allowed_hosts"),
            Self::ForeignOrigin(origin) => foreign("origin", &origin, "http.cors_origins"),
            Self::NotFound(what) => Problem::new(404, "Not Found", format!("there is no {what}")),
        }
    }
}

/// What a page of another site could have sent, or a proxy that nobody has listed.
fn foreign(what: &str, value: &str, setting: &str) -> Problem {
    let value: String = value.chars().take(MAX_SHOWN).collect();
    let detail = format!(
        "without a token, the configuration is for this machine's own pages, and the {what} here is {value:?}: \
         list it in {setting}, or configure admin.token"
    );
    Problem::new(403, "Forbidden", detail)
}

fn ask_problem(error: &AskError, stated: Stated) -> Problem {
    let detail = error.to_string();
    match error {
        AskError::ValueTooLong { attribute, .. } => {
            let pointer = stated.attribute(attribute);
            let error = FieldError { pointer, detail: detail.clone(), accepted: String::new() };
            Problem { errors: vec![error], ..Problem::new(400, "Bad Request", detail) }
        }
        AskError::AmbiguousPath(_) => {
            let pointer = stated.attribute("path");
            let error = FieldError { pointer, detail: detail.clone(), accepted: String::new() };
            Problem { errors: vec![error], ..Problem::new(400, "Bad Request", detail) }
        }
        AskError::PermitTooLong(_) => {
            let pointer = stated.attributes();
            let error = FieldError { pointer, detail: detail.clone(), accepted: String::new() };
            Problem { errors: vec![error], ..Problem::new(400, "Bad Request", detail) }
        }
        AskError::CostTooLarge(_) => fields(
            &detail,
            vec![FieldError { pointer: stated.cost(), detail: detail.clone(), accepted: String::new() }],
        ),
        AskError::Store(_) => Problem {
            kind: problem::Type::TemporaryReducedCapacity,
            ..Problem::new(503, "Temporary Reduced Capacity", detail)
        },
    }
}

fn change_problem(error: ChangeError) -> Problem {
    use tidegate_control::Error;
    let detail = error.to_string();
    match error {
        ChangeError::Mistakes(mistakes) => fields(&detail, mistakes.into_iter().map(field_error).collect()),
        ChangeError::DeclaredInFile { .. } => Problem::new(409, "Conflict", detail),
        ChangeError::TooManyWaiting => Problem::new(503, "Service Unavailable", detail),
        ChangeError::Control(error) => match &*error {
            Error::PreconditionFailed { .. } => Problem::new(412, "Precondition Failed", detail),
            Error::NotFound { .. } => Problem::new(404, "Not Found", detail),
            Error::Invalid { .. } | Error::InvalidActor { .. } => {
                Problem::new(422, "Unprocessable Content", detail)
            }
            Error::TooManyChanges { .. } => Problem::new(413, "Content Too Large", detail),
            Error::Full { .. } => Problem::new(507, "Insufficient Storage", detail),
            _ => Problem::new(503, "Service Unavailable", detail),
        },
    }
}

fn field_error(mistake: Mistake) -> FieldError {
    FieldError { pointer: mistake.pointer, detail: mistake.problem, accepted: mistake.accepted }
}

fn fields(detail: &str, errors: Vec<FieldError>) -> Problem {
    Problem { errors, ..Problem::new(422, "Unprocessable Content", detail) }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        refuse(self).map(axum::body::Body::from)
    }
}

/// The reply to a refused request.
pub(super) fn refuse(refusal: Refusal) -> Reply {
    problem(&refusal.problem())
}

/// A problem document as a reply.
pub(super) fn problem(problem: &Problem) -> Reply {
    let mut reply = bytes(problem.status, Bytes::from(problem.to_json()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
    match problem.status {
        401 => {
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        503 => {
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    reply
}

/// A JSON reply from bytes.
pub(super) fn bytes(status: u16, body: Bytes) -> Reply {
    let mut reply = Response::new(body);
    // Invariant: statuses here are constants between 200 and 599.
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    reply
}

/// A 200 with a JSON document.
pub(super) fn json(value: &impl Serialize) -> Reply {
    // Invariant: reply types are plain structs with string keys, which always serialise.
    bytes(200, Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

/// A 204.
pub(super) fn no_content() -> Reply {
    let mut reply = Response::new(Bytes::new());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

/// Refuses a body that the headers do not announce as plain JSON.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let field = |name| headers.get(name).map(HeaderValue::as_bytes);
    if is_json(field(CONTENT_TYPE), field(CONTENT_ENCODING)) { Ok(()) } else { Err(Refusal::NotJson) }
}

/// Whether these fields announce a plain JSON body. Asking for the exact media type is also what
/// keeps other origins' pages out: a browser sends it cross-origin only after a preflight.
pub(super) fn is_json(content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> bool {
    let media_type = content_type.unwrap_or_default();
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let plain = content_encoding.is_none_or(|encoding| encoding == b"identity");
    essence.eq_ignore_ascii_case(b"application/json") && plain
}

/// The bytes of a JSON body, for the cold routes.
pub(super) struct JsonBytes(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBytes {
    type Rejection = Refusal;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Refusal> {
        expect_json(request.headers())?;
        // Invariant: the body was read, and bounded, before the route was found.
        Bytes::from_request(request, state).await.map(Self).map_err(|_| Refusal::NotJson)
    }
}

/// The last resort: no route has this path.
pub(super) async fn no_such_path() -> axum::response::Response {
    Refusal::NotFound("such path; see /openapi.json".to_owned()).into_response()
}

/// The path exists, the method does not. The router has set `Allow`.
pub(super) async fn no_such_method() -> axum::response::Response {
    let detail = "the path exists, but not with this method; see the allow header";
    problem(&Problem::new(405, "Method Not Allowed", detail)).map(axum::body::Body::from)
}
