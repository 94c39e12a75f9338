//! InfluxDB's line protocol, `POST /api/v2/write` and `/write`, and the replies that its clients know.
//!
//! A request of which some lines are not acceptable is answered 400, and the others are kept: that is what InfluxDB
//! does, and its clients do not send it again. `bucket`, `org`, `db` and the like say where in InfluxDB a point would
//! go, and are passed over.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts as Head;
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use tidegate_net::http::{Body, Peer, RequestBody};
use tidegate_wire::metrics::line_protocol::{Precision, read_points};

use crate::access::Right;
use crate::batch;
use crate::counters::{Leftover, Protocol};
use crate::intake::{ACK, Intake, Repeated};
use crate::limits::Limits;
use crate::refusal::Refusal;

impl<L: Limits> Intake<L> {
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

fn precision(head: &Head) -> Result<Precision, Refusal> {
    let query = head.uri.query().unwrap_or_default();
    let stated = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "precision");
    let word = stated.map_or(Cow::Borrowed("ns"), |(_, word)| word);
    Precision::of_word(&word)
        .ok_or_else(|| Refusal::Malformed("precision must be ns, us, ms, s, m or h".to_owned()))
}

/// A refusal as clients of either version read it.
pub(crate) fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = told(refusal.status(), &refusal.to_string());
    response.headers_mut().extend(refusal.fields());
    response
}

fn told(status: StatusCode, reason: &str) -> Response<Body> {
    let code = match status.as_u16() {
        400 => "invalid",
        401 => "unauthorized",
        403 => "forbidden",
        413 => "request too large",
        429 => "too many requests",
        503 | 507 => "unavailable",
        _ => "internal error",
    };
    let body = json!({ "code": code, "message": reason, "error": reason });
    let mut response = batch::json(body.to_string().into_bytes());
    *response.status_mut() = status;
    response
}
