//! Changes of documents over HTTP: entity tags, preconditions, and what a refused change is told.
//!
//! A document's entity tag is the revision that wrote it, `"0"` if it is not stored but built in or
//! from the file. `If-Match` makes a change conditional (fault 20): with it, of two administrators
//! who edit the same document the second is told (412) instead of undoing the first one's work.

use axum::Json;
use http::HeaderMap;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use serde_json::Value;
use tidegate_access::guard::Actor;
use tidegate_access::refusal::Refusal;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{
    Author, Change, ChangeError, Configuration, Edit, Error, Kind, Parts, Precondition, Revision,
};
use tidegate_net::clock;
use tidegate_wire::bodies::{UniqueJson, read};
use tidegate_wire::problem::{FieldError, Problem};

/// A document with its entity tag.
pub(super) type Tagged<T> = ([(http::HeaderName, String); 1], Json<T>);

/// A document with its entity tag.
pub(super) fn tagged<T>(revision: Revision, document: T) -> Tagged<T> {
    ([(ETAG, etag(revision))], Json(document))
}

pub(super) fn etag(revision: Revision) -> String {
    format!("\"{revision}\"")
}

/// The document in a body, under the name that the path says.
pub(super) fn named(body: &[u8], name: &str) -> Result<Value, Refusal> {
    let UniqueJson(mut document) = read(body)?;
    if let Some(fields) = document.as_object_mut() {
        let stated = fields.entry("name").or_insert_with(|| Value::from(name));
        if stated != name {
            let problem = format!("is {stated}, but the path says {name:?}");
            return Err(Refusal::field("/name", problem, "the name in the path, or none"));
        }
    }
    Ok(document)
}

/// Makes a change under the preconditions that the headers state.
pub(super) async fn change(
    configuration: &Configuration,
    actor: &Actor,
    change: Change,
    headers: &HeaderMap,
) -> Result<Revision, Refusal> {
    let change = change.when(precondition(headers)?);
    let (kind, name) = (change.kind, change.name.clone());
    let changed = configuration.change(change, author(actor)).await;
    changed.map_err(|error| refusal(as_sent(error, kind, &name, str::to_owned)))
}

/// Makes the change that `edit` says. Mistakes in the document of this kind and name point into what was
/// sent as `sent` says.
pub(super) async fn edit(
    configuration: &Configuration,
    actor: &Actor,
    (kind, name): (Kind, &str),
    edit: Edit,
    sent: impl Fn(&str) -> String,
) -> Result<Revision, Refusal> {
    let edited = configuration.edit(author(actor), edit).await;
    edited.map_err(|error| refusal(as_sent(error, kind, name, sent)))
}

/// Makes the changes that `edit` says, all of them or none. Mistakes point as those of [`edit`] do.
pub(super) async fn edit_all(
    configuration: &Configuration,
    actor: &Actor,
    (kind, name): (Kind, &str),
    edit: impl Fn(&Parts) -> Result<Vec<Change>, ChangeError> + Send + 'static,
) -> Result<Revision, Refusal> {
    let edited = configuration.edit_all(author(actor), edit).await;
    edited.map_err(|error| refusal(as_sent(error, kind, name, str::to_owned)))
}

/// The author of a change that is asked for now, and the address that asks.
pub(super) fn author(actor: &Actor) -> Author {
    let from = actor.from().map(|address| address.to_string().into());
    Author { actor: actor.name().to_owned(), at: clock::wall(), from }
}

/// Lets mistakes point into what the client sent, which is this document or, by `sent`, became it. A mistake in
/// another document, which does not go with this one, says its place in words.
fn as_sent(error: ChangeError, kind: Kind, name: &str, sent: impl Fn(&str) -> String) -> ChangeError {
    let ChangeError::Mistakes(mut mistakes) = error else { return error };
    let document = format!("/{kind}/{name}");
    for mistake in &mut mistakes {
        match mistake.pointer.strip_prefix(&document) {
            Some(within) if within.is_empty() || within.starts_with('/') => mistake.pointer = sent(within),
            _ => {
                mistake.problem = format!("{} {}", mistake.pointer, mistake.problem);
                mistake.pointer = String::new();
            }
        }
    }
    ChangeError::Mistakes(mistakes)
}

/// `If-Match: "7"`, `If-Match: "0"` (not stored), `If-None-Match: *`, or none of them.
pub(super) fn precondition(headers: &HeaderMap) -> Result<Precondition, Refusal> {
    let refusal = |place: &str, value: &http::HeaderValue| {
        let accepted = "one entity tag as it was given: if-match: \"7\"; or if-none-match: *";
        Refusal::field(place, format!("is {value:?}"), accepted)
    };
    if let Some(value) = headers.get(IF_MATCH) {
        let tag = value.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
        return match tag.and_then(|tag| tag.parse().ok()) {
            Some(0) => Ok(Precondition::IfNoneMatch),
            Some(revision) => Ok(Precondition::IfMatch(Revision(revision))),
            None => Err(refusal("/if-match", value)),
        };
    }
    match headers.get(IF_NONE_MATCH) {
        Some(value) if value == "*" => Ok(Precondition::IfNoneMatch),
        Some(value) => Err(refusal("/if-none-match", value)),
        None => Ok(Precondition::None),
    }
}

/// Why the configuration was not changed, or not read: the one place that gives such errors a status.
pub(super) fn refusal(error: ChangeError) -> Refusal {
    let detail = error.to_string();
    Refusal(match error {
        ChangeError::Mistakes(mistakes) => {
            return Refusal::fields(&detail, mistakes.into_iter().map(field_error).collect());
        }
        ChangeError::DeclaredInFile { .. } => Problem::new(409, "Conflict", detail),
        ChangeError::FileChanged { .. } | ChangeError::Overtaken { .. } => {
            Problem::new(412, "Precondition Failed", detail)
        }
        ChangeError::NotThere { .. } => Problem::new(422, "Unprocessable Content", detail),
        ChangeError::Pruned { .. } => Problem::new(409, "Conflict", detail),
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
    })
}

/// A mistake as problem documents have it.
pub(super) fn field_error(mistake: Mistake) -> FieldError {
    FieldError { pointer: mistake.pointer, detail: mistake.problem, accepted: mistake.accepted }
}
