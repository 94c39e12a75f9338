//! Lines by HTTP: as Prometheus remote write 1.0, or as OTLP in protobuf.

use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tidegate_upstream::endpoint::{Answer, Endpoint};
use tidegate_upstream::tls::TlsError;
use tidegate_wire::metrics::forward::remote_write::Encoded;
use tidegate_wire::metrics::forward::{self, Sums};

use super::config::{ForwardConfig, HttpDestination, HttpProtocol};
use super::sent::{Sent, Untaken};
use crate::intake::Intake;
use crate::readers::Turn;

/// Longest try.
const DEADLINE: Duration = Duration::from_secs(30);

/// An endpoint of HTTP.
pub(super) struct HttpSink {
    intake: Arc<Intake>,
    forward: String,
    protocol: HttpProtocol,
    endpoint: Endpoint,
    token_file: Option<PathBuf>,
    /// The content of the token's file when it was last read. The file is read again after a failure.
    authorization: Option<HeaderValue>,
    /// The sums of the deltas that went by remote write.
    sums: Sums,
}

impl HttpSink {
    pub(super) fn new(
        intake: &Arc<Intake>,
        config: &ForwardConfig,
        to: HttpDestination,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            intake: Arc::clone(intake),
            forward: config.name.clone(),
            protocol: to.protocol,
            endpoint: Endpoint::new(to.url)?,
            token_file: to.token_file,
            authorization: None,
            sums: Sums::new(RandomState::new()),
        })
    }

    /// Sends lines in one request: all are taken, or none.
    pub(super) async fn send(&mut self, lines: &[&[u8]]) -> Sent {
        if self.authorization.is_none() {
            self.authorization = self.token().await;
        }
        let mut fields = fields(self.protocol);
        fields.extend(self.authorization.clone().map(|value| (header::AUTHORIZATION, value)));
        let ForwardRequest { body, samples, superseded } = self.encode(lines);
        let answer = match self.endpoint.post(&fields, body, DEADLINE).await {
            Ok(answer) => answer,
            Err(error) => return self.failed(error.to_string(), None),
        };
        let said = || format!("{} {}", answer.status, answer.said());
        match answer.status {
            status if status.is_success() => {
                self.sums.keep();
                let sent = (lines.len() as u64).saturating_sub(superseded);
                let (left_out, said) = left_out(self.protocol, samples, &answer);
                Sent { left_out: left_out.min(sent), superseded, said, ..Sent::all(lines.len()) }
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Sent::refused(0, said())
            }
            _ => self.failed(said(), answer.retry_after),
        }
    }

    fn failed(&mut self, why: String, retry_after: Option<Duration>) -> Sent {
        self.authorization = None;
        Sent { untaken: Some(Untaken::Failed { why, retry_after }), ..Sent::all(0) }
    }

    fn encode(&mut self, lines: &[&[u8]]) -> ForwardRequest {
        let samples = lines.len() as u64;
        let lines = lines.iter().copied();
        match self.protocol {
            HttpProtocol::Otlp => {
                ForwardRequest { body: forward::otlp::encode(lines).into(), samples, superseded: 0 }
            }
            HttpProtocol::RemoteWrite => {
                let Encoded { bytes, samples, superseded } =
                    forward::remote_write::encode(lines, &mut self.sums);
                // Invariant: a batch is far below the 4 GiB that a block may have.
                let body = snap::raw::Encoder::new().compress_vec(&bytes).unwrap_or_default().into();
                ForwardRequest { body, samples, superseded }
            }
        }
    }

    /// The token of the file, so that one that was exchanged is used for the next try.
    async fn token(&self) -> Option<HeaderValue> {
        let path = self.token_file.clone()?;
        let read = self.intake.on_a_thread(Turn::Forward, move || std::fs::read_to_string(path)).await;
        let token = match read.ok()? {
            Ok(token) => token,
            Err(error) => {
                tracing::error!(forward = self.forward, %error, "the token's file cannot be read");
                return None;
            }
        };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Some lines as a request to the other side.
struct ForwardRequest {
    body: Bytes,
    samples: u64,
    /// Lines that the request leaves out, since a later line has their time.
    superseded: u64,
}

/// The fields of a request, its compression among them.
fn fields(protocol: HttpProtocol) -> Vec<(HeaderName, HeaderValue)> {
    let protobuf = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    match protocol {
        HttpProtocol::RemoteWrite => {
            let version = HeaderName::from_static("x-prometheus-remote-write-version");
            vec![
                protobuf,
                (header::CONTENT_ENCODING, HeaderValue::from_static("snappy")),
                (version, HeaderValue::from_static("0.1.0")),
            ]
        }
        HttpProtocol::Otlp => vec![protobuf],
    }
}

/// How many samples the other side says it has left out of a request that it answered 2xx, and its words.
fn left_out(protocol: HttpProtocol, samples: u64, answer: &Answer) -> (u64, String) {
    match protocol {
        HttpProtocol::Otlp => (forward::otlp::rejected(&answer.body), answer.said()),
        HttpProtocol::RemoteWrite => {
            let told = |written| (samples.saturating_sub(written), format!("{WRITTEN}: {written}"));
            written(&answer.fields).map(told).unwrap_or_default()
        }
    }
}

/// The field in which a receiver says how many samples it has written: a receiver of remote write 2.0 must, one of 1.0
/// may.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";

/// The number of that field. 0 says nothing: Prometheus 3.8 answers it to each request of 1.0 whose samples it has all written,
/// since its library counts those of 2.0 only.
fn written(fields: &HeaderMap) -> Option<u64> {
    let written: u64 = fields.get(WRITTEN)?.to_str().ok()?.trim().parse().ok()?;
    (written > 0).then_some(written)
}
