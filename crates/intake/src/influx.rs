//! InfluxDB's line protocol, `POST /api/v2/write` and `/write`, and the replies that its clients know.
//!
//! A request of which some lines are not acceptable is answered 400, and the others are kept: that is what InfluxDB
//! does, and its clients do not send it again. `bucket`, `org`, `db` and the like say where in InfluxDB a point would
//! go, and are passed over.
//!
//! Before they write, Telegraf and clients of version 1 ask for a ping and create their database by `/query`. There are no
//! databases here, so to create one is done at once; any other statement is refused by name.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts as Head;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::json;
use tidegate_net::http::{Body, Peer, RequestBody};
use tidegate_wire::metrics::line_protocol::{Precision, read_points};

use crate::access::Right;
use crate::batch;
use crate::counters::{Leftover, Protocol};
use crate::intake::{ACK, Intake, Repeated};
use crate::refusal::{Refusal, Senders};

impl Intake {
    /// Keeps the points of a request.
    pub(crate) async fn take_points(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        let client = self.admit(head, peer, Right::Ingest)?;
        let wanted = self.wanted(head)?;
        let precision = precision(head)?;
        let (body, batch) = self.body(head, &client, body, Repeated::ByItsKey).await?;
        let mut writer = self.writer(&client);
        writer.reserve(0, body.len());
        let counts = read_points(&body, precision, &mut writer)?;
        drop(body);
        let kept = self.keep(Protocol::LineProtocol, client, writer.finish(), wanted, batch).await?;
        self.parts.counters.count_rejected(counts.rejected);
        self.parts.counters.count_leftover(Leftover::Text, counts.texts);
        let mut response = match counts.error {
            None => {
                let mut response = Response::new(Body::Empty);
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Some((line, error)) => {
                let rejected = counts.rejected;
                let reason = format!(
                    "partial write: line {line}: {error}; {rejected} lines left out, {} points kept",
                    kept.lines
                );
                told(StatusCode::BAD_REQUEST, &reason)
            }
        };
        response.headers_mut().insert(ACK, HeaderValue::from_static(kept.durability.word()));
        Ok(response)
    }
}

/// Where clients of either version look whether it is InfluxDB that they talk to.
const VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
const BUILD: HeaderName = HeaderName::from_static("x-influxdb-build");

/// The reply to a ping.
pub(crate) fn pong() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    fields.insert(VERSION, HeaderValue::from_static(concat!("tidegate-", env!("CARGO_PKG_VERSION"))));
    fields.insert(BUILD, HeaderValue::from_static("Tidegate"));
    response
}

impl Intake {
    /// Answers a statement of InfluxQL, in the address or in a form.
    pub(crate) async fn answer_influx_query(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        let client = self.admit(head, peer, Right::Ingest)?;
        let (body, _) = self.body(head, &client, body, Repeated::ByItsKey).await?;
        let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let form = if kind.starts_with(b"application/x-www-form-urlencoded") { &*body } else { b"" };
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let mut parameters = form_urlencoded::parse(query).chain(form_urlencoded::parse(form));
        let statement = parameters.find(|(name, _)| name == "q").map(|(_, statement)| statement);
        let statement =
            statement.ok_or_else(|| Refusal::Malformed("the parameter q is missing".to_owned()))?;
        if !creates_a_database(&statement) {
            return Err(Refusal::Malformed(
                "of InfluxQL only one CREATE DATABASE is answered here; lines are read by /v1/intake/query"
                    .to_owned(),
            ));
        }
        Ok(batch::json(json!({ "results": [{ "statement_id": 0 }] }).to_string().into_bytes()))
    }
}

/// Whether a text is one statement that creates a database.
fn creates_a_database(statement: &str) -> bool {
    let statement = statement.trim().trim_end_matches(';');
    let mut words = statement.split_ascii_whitespace();
    let is = |word: Option<&str>, wanted: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    let creates = is(words.next(), "create") && is(words.next(), "database") && words.next().is_some();
    let (mut is_quoted, mut is_escaped) = (false, false);
    let ends_before = statement.bytes().any(|byte| {
        is_quoted ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        byte == b';' && !is_quoted
    });
    creates && !ends_before && !is_quoted
}

fn precision(head: &Head) -> Result<Precision, Refusal> {
    let query = head.uri.query().unwrap_or_default();
    let stated = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "precision");
    // An empty value counts as absent, as with InfluxDB of either version.
    let word = stated.map(|(_, word)| word).filter(|word| !word.is_empty());
    let word = word.unwrap_or(Cow::Borrowed("ns"));
    Precision::of_word(&word)
        .ok_or_else(|| Refusal::Malformed("precision must be ns, us, ms, s, m or h".to_owned()))
}

/// A refusal as clients of either version read it.
pub(crate) fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = told(refusal.status_for(Senders::Influx), &refusal.to_string());
    response.headers_mut().extend(refusal.fields());
    response
}

fn told(status: StatusCode, reason: &str) -> Response<Body> {
    let code = match status.as_u16() {
        400 => "invalid",
        401 => "unauthorized",
        403 => "forbidden",
        405 => "method not allowed",
        413 => "request too large",
        415 => "unsupported media type",
        429 => "too many requests",
        503 => "unavailable",
        _ => "internal error",
    };
    let body = json!({ "code": code, "message": reason, "error": reason });
    let mut response = batch::json(body.to_string().into_bytes());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_that_creates_a_database_is_known() {
        for statement in [
            "CREATE DATABASE x",
            "create database \"a b;c\\\"d\";",
            " CREATE DATABASE \"telegraf\" WITH DURATION 3d NAME \"y\" ;",
        ] {
            assert!(creates_a_database(statement), "{statement}");
        }
        for statement in [
            "",
            "CREATE DATABASE",
            "CREATE DATABASE;",
            "CREATE USER x",
            "SHOW DATABASES",
            "CREATE DATABASE x; DROP DATABASE y",
            "CREATE DATABASE \"x",
        ] {
            assert!(!creates_a_database(statement), "{statement}");
        }
    }
}
