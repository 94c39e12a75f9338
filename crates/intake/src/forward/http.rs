//! Lines by HTTP: as Prometheus remote write 1.0, or as OTLP in protobuf.

use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use tidegate_upstream::endpoint::{Answer, Endpoint};
use tidegate_upstream::tls::TlsError;
use tidegate_wire::metrics::forward::{self, Sums};

use super::config::{ForwardConfig, HttpDestination, HttpProtocol};
use super::sink::{Sent, Untaken};
use crate::intake::Intake;
use crate::limits::Limits;
use crate::read::Turn;

/// Longest try.
const DEADLINE: Duration = Duration::from_secs(30);

/// An endpoint of HTTP.
pub(super) struct HttpSink<L> {
    intake: Arc<Intake<L>>,
    forward: String,
    protocol: HttpProtocol,
    endpoint: Endpoint,
    token_file: Option<PathBuf>,
    /// What the token's file had when it was last read; it is read again for the try after a failure.
    authorization: Option<HeaderValue>,
    /// Of the deltas that went by remote write.
    sums: Sums,
}

impl<L: Limits> HttpSink<L> {
    pub(super) fn new(
        intake: &Arc<Intake<L>>,
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
        let body = self.encode(lines);
        let answer = match self.endpoint.post(&fields, body, DEADLINE).await {
            Ok(answer) => answer,
            Err(error) => return self.failed(error.to_string(), None),
        };
        let said = || format!("{} {}", answer.status, answer.said());
        match answer.status {
            status if status.is_success() => {
                self.sums.keep();
                let left_out = left_out(self.protocol, &answer).min(lines.len() as u64);
                Sent { left_out, said: answer.said(), ..Sent::all(lines.len()) }
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

    fn encode(&mut self, lines: &[&[u8]]) -> Bytes {
        let lines = lines.iter().copied();
        match self.protocol {
            HttpProtocol::Otlp => forward::otlp::encode(lines).into(),
            HttpProtocol::RemoteWrite => {
                let request = forward::remote_write::encode(lines, &mut self.sums);
                // Invariant: a batch is far below the 4 GiB that a block may have.
                snap::raw::Encoder::new().compress_vec(&request).unwrap_or_default().into()
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

/// Lines of a request that was answered 2xx which the other side has not taken all the same.
fn left_out(protocol: HttpProtocol, answer: &Answer) -> u64 {
    match protocol {
        HttpProtocol::Otlp => forward::otlp::rejected(&answer.body),
        HttpProtocol::RemoteWrite => 0,
    }
}
