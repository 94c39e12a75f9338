//! Parameters of a query, and names in a path.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use tidegate_access::refusal::Refusal;
use tidegate_algorithms::policy::MAX_VALUE_BYTES;

/// All parameters of a query that knows each of them.
pub(super) fn whole<T>(found: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    let refusal =
        |why: QueryRejection| Refusal::field("", why.body_text(), "the parameters of /openapi.json");
    found.map(|Query(whole)| whole).map_err(refusal)
}

/// A whole number, `default` if the query does not have it.
pub(super) fn number(query: &str, name: &str, default: u64) -> Result<u64, Refusal> {
    match form_urlencoded::parse(query.as_bytes()).find(|(other, _)| other == name) {
        Some((_, text)) => text.parse().map_err(|_| no_number(name, &text)),
        None => Ok(default),
    }
}

/// The parameter `limit` of a list in pages of at most `most`; 100 if the query does not have it.
pub(super) fn page(query: &str, most: usize) -> Result<usize, Refusal> {
    let limit = number(query, "limit", 100)?;
    let in_range = usize::try_from(limit).ok().filter(|limit| (1..=most).contains(limit));
    in_range.ok_or_else(|| no_number("limit", &limit.to_string()))
}

fn no_number(name: &str, text: &str) -> Refusal {
    Refusal::field(format!("/{name}"), format!("is {text:?}"), "a whole number; limit from 1 to 1000")
}

/// A client's name, or the refusal that says what a name is.
pub(super) fn client_id(text: &str) -> Result<&str, Refusal> {
    if (1..=MAX_VALUE_BYTES).contains(&text.len()) {
        return Ok(text);
    }
    Err(Refusal::field("/client_id", format!("has {} bytes", text.len()), "1 to 512 bytes"))
}
