//! OpenTelemetry's metrics: `POST /v1/metrics` in protobuf or JSON, and the same call over gRPC on the same port.
//!
//! Over gRPC a message stands in a frame of five bytes, and the reply ends with trailers; that is all there is to a
//! unary call (decision 0030). A frame may be compressed with gzip.
//!
//! A refusal that is worth another try is 503, with `Retry-After`, over HTTP and UNAVAILABLE over gRPC, which
//! is what exporters send again.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use tidegate_net::http::{Body, Peer, RequestBody};
use tidegate_wire::grpc::percent_encoded;
use tidegate_wire::metrics::otlp::{self, ExportCounts, from_json, read_request};

use crate::access::Right;
use crate::body::Encoding;
use crate::client::Client;
use crate::counters::{Leftover, Protocol};
use crate::intake::{ACK, Intake, Repeated};
use crate::kept::Kept;
use crate::refusal::{Refusal, Senders};
use crate::repeats::Repeatable;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const GRPC: &str = "application/grpc";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Bytes of a frame's head: a flag and a length.
const FRAME_HEAD: usize = 5;

impl Intake {
    /// Keeps the points of a request over HTTP.
    pub(crate) async fn take_otlp(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        let client = self.admit(head, peer, Right::Ingest)?;
        let is_json = is_json(head)?;
        let (body, batch) = self.body(head, &client, body, Repeated::ByItsKey).await?;
        let body = if is_json { from_json(&body)?.into() } else { body };
        let (counts, kept) = self.keep_points(Protocol::OtlpHttp, client, head, body, batch).await?;
        let (kind, reply) = match is_json {
            true => (JSON, otlp::exported_json(&counts)),
            false => (PROTOBUF, otlp::exported(&counts)),
        };
        let mut response = Response::new(Body::from(reply));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(ACK, HeaderValue::from_static(kept.durability.word()));
        Ok(response)
    }

    /// Keeps the points of a call over gRPC.
    pub(crate) async fn take_otlp_call(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
        peer: &Peer,
    ) -> Result<Response<Body>, Refusal> {
        let client = self.admit(head, peer, Right::Ingest)?;
        let limit = self.parts.settings.body_bytes;
        let body = message(&head.headers, body.bytes(limit + FRAME_HEAD).await?, limit)?;
        let (counts, kept) = self.keep_points(Protocol::OtlpGrpc, client, head, body, None).await?;
        let reply = otlp::exported(&counts);
        let mut frame = Vec::with_capacity(FRAME_HEAD + reply.len());
        frame.push(0);
        frame.extend_from_slice(&u32::try_from(reply.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend_from_slice(&reply);
        let mut response = Response::new(Body::Trailed(frame.into(), || {
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
            trailers
        }));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
        response.headers_mut().insert(ACK, HeaderValue::from_static(kept.durability.word()));
        Ok(response)
    }

    async fn keep_points(
        self: &Arc<Self>,
        protocol: Protocol,
        client: Client,
        head: &Head,
        body: Bytes,
        batch: Option<Repeatable>,
    ) -> Result<(ExportCounts, Kept), Refusal> {
        let wanted = self.wanted(head)?;
        let mut writer = self.writer(&client);
        let counts = read_request(&body, &mut writer)?;
        drop(body);
        let kept = self.keep(protocol, client, writer.finish(), wanted, batch).await?;
        let counters = &self.parts.counters;
        counters.count_rejected(counts.rejected);
        counters.count_leftover(Leftover::Stale, counts.no_value);
        counters.count_leftover(Leftover::NotFinite, counts.not_finite + counts.empty_quantiles);
        counters.count_leftover(Leftover::Histogram, counts.histograms);
        counters.count_leftover(Leftover::Exemplar, counts.exemplars);
        Ok((counts, kept))
    }
}

/// Whether the body is JSON; otherwise it is protobuf.
fn is_json(head: &Head) -> Result<bool, Refusal> {
    let value = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match media_type {
        _ if media_type.eq_ignore_ascii_case(JSON.as_bytes()) => Ok(true),
        _ if media_type.eq_ignore_ascii_case(PROTOBUF.as_bytes()) => Ok(false),
        _ => Err(Refusal::MediaType("the content-type must be application/x-protobuf or application/json")),
    }
}

/// The one message of a call.
fn message(fields: &HeaderMap, body: Bytes, limit: usize) -> Result<Bytes, Refusal> {
    let malformed = || Refusal::Malformed("the call is not one frame of gRPC".to_owned());
    let [flag, length @ ..] = *body.first_chunk::<FRAME_HEAD>().ok_or_else(malformed)?;
    let message = body.slice(FRAME_HEAD..);
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(malformed());
    }
    match (flag, fields.get(GRPC_ENCODING).map(HeaderValue::as_bytes)) {
        (0, _) => Ok(message),
        (1, Some(b"gzip")) => Ok(Encoding::Gzip.decode(message, limit)?),
        (1, _) => Err(Refusal::MediaType("a compressed message must have grpc-encoding: gzip")),
        _ => Err(malformed()),
    }
}

/// gRPC's code for a refusal.
fn code(refusal: &Refusal) -> u16 {
    match refusal.status().as_u16() {
        400 | 422 => 3,
        401 => 16,
        403 => 7,
        408 => 4,
        413 => 8,
        415 => 12,
        429 | 503 | 507 => 14,
        _ => 13,
    }
}

/// A refusal over HTTP, of the type that the request has.
pub(crate) fn refused(head: &Head, refusal: &Refusal) -> Response<Body> {
    let message = refusal.to_string();
    let (kind, body) = match is_json(head) {
        Ok(true) => (JSON, otlp::refused_json(code(refusal), &message)),
        _ => (PROTOBUF, otlp::refused(code(refusal), &message)),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = refusal.status_for(Senders::PrometheusOrOtlp);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().extend(refusal.fields());
    response
}

/// A refusal over gRPC: a reply without a body, whose fields are the trailers.
pub(crate) fn refused_call(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    let fields = response.headers_mut();
    *fields = refusal.fields();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    fields.insert(GRPC_STATUS, code(refusal).into());
    if let Ok(words) = HeaderValue::try_from(percent_encoded(refusal.to_string().as_bytes())) {
        fields.insert(GRPC_MESSAGE, words);
    }
    response
}
