//! `POST /api/v1/write`: Prometheus remote write, 1.0 and 2.0.
//!
//! | reply | when | the sender then |
//! |---|---|---|
//! | 204 | all samples that a line can hold are kept | goes on |
//! | 400 | some are not acceptable, the others are kept; or nothing is, because the body is no request | logs it, and goes on |
//! | 415 | another message or compression | 2.0: may fall back to 1.0 |
//! | 5xx | nothing is kept | sends it again, after `Retry-After` |
//!
//! A limit is a 503, too: by default Prometheus drops what is answered 429 (`retry_on_http_429: false`).
//!
//! 2.0 is told how much was written; samples and histograms that were left out are missing in these numbers.

use std::sync::Arc;

use http::request::Parts as Head;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use tidegate_net::http::{Body, Peer, RequestBody};
use tidegate_wire::metrics::remote_write::{SampleCounts, Version, read_request};

use crate::access::Right;
use crate::body::decode_unstated;
use crate::counters::{Leftover, Protocol};
use crate::intake::{ACK, Intake, Repeated};
use crate::refusal::{Refusal, Senders};

const SAMPLES: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

impl Intake {
    /// Keeps the samples of a request.
    pub(crate) async fn take_remote_write(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        let client = self.admit(head, peer, Right::Ingest)?;
        let wanted = self.wanted(head)?;
        let version = version(head)?;
        let (body, batch) = self.body(head, &client, body, Repeated::ByItsBytes).await?;
        let is_stated = head.headers.contains_key(header::CONTENT_ENCODING);
        let body = if is_stated { body } else { decode_unstated(body, self.parts.settings.body_bytes)? };
        let mut writer = self.writer(&client);
        let counts = read_request(version, &body, &mut writer)?;
        drop(body);
        let kept = self.keep(Protocol::RemoteWrite, client, writer.finish(), wanted, batch).await?;
        self.count(&counts);
        let mut response = match &counts.error {
            None => Response::new(Body::Empty),
            Some(error) => {
                Response::new(Body::from(format!("{} samples left out: {error}\n", counts.rejected)))
            }
        };
        let status = if counts.error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::NO_CONTENT };
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(ACK, HeaderValue::from_static(kept.durability.word()));
        if version == Version::V2 {
            fields.insert(SAMPLES, counts.samples.into());
            fields.insert(HISTOGRAMS, 0.into());
            fields.insert(EXEMPLARS, 0.into());
        }
        Ok(response)
    }

    fn count(&self, counts: &SampleCounts) {
        let counters = &self.parts.counters;
        counters.count_rejected(counts.rejected);
        counters.count_leftover(Leftover::Stale, counts.stale);
        counters.count_leftover(Leftover::NotFinite, counts.not_finite);
        counters.count_leftover(Leftover::Histogram, counts.histograms);
        counters.count_leftover(Leftover::Exemplar, counts.exemplars);
    }
}

/// Which message the body is, by its media type. Without parameters it is 1.0, as the specification has it, and without a media
/// type, as Prometheus has it. A parameter may stand between quotes (RFC 9110, 5.6.6).
fn version(head: &Head) -> Result<Version, Refusal> {
    let media_type = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(media_type).to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let message = parts.find_map(|part| part.strip_prefix("proto=")).map(|message| message.trim_matches('"'));
    match (kind, message) {
        ("" | "application/x-protobuf", None | Some("prometheus.writerequest")) => Ok(Version::V1),
        ("application/x-protobuf", Some("io.prometheus.write.v2.request")) => Ok(Version::V2),
        _ => Err(Refusal::MediaType(
            "the content-type must be application/x-protobuf, of prometheus.WriteRequest or \
             io.prometheus.write.v2.Request",
        )),
    }
}

/// A refusal as Prometheus logs it: the reason as text.
pub(crate) fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{refusal}\n")));
    *response.status_mut() = refusal.status_for(Senders::PrometheusOrOtlp);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().extend(refusal.fields());
    response
}
