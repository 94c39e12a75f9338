//! How a request to the collector fares, by OTLP's rules: what may be sent again, and what is counted and said of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header};
use tidegate_upstream::endpoint::{Endpoint, EndpointUrl};
use tidegate_wire::otlp::rejected;

use crate::config::Telemetry as TelemetrySettings;
use crate::serve::StartError;

/// Longest try.
const DEADLINE: Duration = Duration::from_secs(10);

/// How requests to the collector fared.
#[derive(Debug, Default)]
pub(super) struct Tries {
    pub(super) taken: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) refused: AtomicU64,
    is_away: AtomicBool,
}

/// How a request fared.
pub(super) enum Outcome {
    /// It was taken, but for so many of its spans or points.
    Taken { rejected: u64 },
    /// The same may be taken later; the wait is what the collector asks for.
    Failed { asked: Option<Duration> },
    /// It would be refused again.
    Refused,
}

/// Where one signal is sent.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Endpoint,
    /// The header fields of each request.
    fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) tries: Arc<Tries>,
}

impl Collector {
    /// At this URL, with the fields of the settings.
    pub(super) fn new(settings: &TelemetrySettings, url: &EndpointUrl) -> Result<Self, StartError> {
        let endpoint = Endpoint::new(url.clone());
        let endpoint = endpoint.map_err(|error| StartError::Telemetry(error.to_string()))?;
        let content = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let fields = std::iter::once(content).chain(settings.headers.fields().iter().cloned()).collect();
        Ok(Self { endpoint, fields, tries: Arc::default() })
    }

    /// Sends a request, and says how it fared.
    pub(super) async fn post(&mut self, body: Vec<u8>) -> Outcome {
        let Self { endpoint, fields, tries } = self;
        let (why, asked) = match endpoint.post(fields, body.into(), DEADLINE).await {
            Ok(answer) if answer.status.is_success() => {
                tries.taken.fetch_add(1, Relaxed);
                if tries.is_away.swap(false, Relaxed) {
                    tracing::info!(url = %endpoint.url(), "the collector is back");
                }
                return Outcome::Taken { rejected: rejected(&answer.body) };
            }
            Ok(answer) if is_worth_another_try(answer.status) => {
                (format!("{} {}", answer.status, answer.said()), answer.retry_after)
            }
            Ok(answer) => {
                if tries.refused.fetch_add(1, Relaxed) == 0 {
                    let (status, said) = (answer.status.as_u16(), answer.said());
                    tracing::error!(url = %endpoint.url(), status, said = %said.escape_debug(), "the collector refuses spans or metrics, which are dropped; later refusals are only counted");
                }
                return Outcome::Refused;
            }
            Err(error) => (error.to_string(), None),
        };
        tries.failed.fetch_add(1, Relaxed);
        if !tries.is_away.swap(true, Relaxed) {
            tracing::warn!(url = %endpoint.url(), why = %why.escape_debug(), "the collector cannot be reached: spans wait in a queue, and are dropped while it is full");
        }
        Outcome::Failed { asked }
    }
}

/// The answers after which the same is sent again, as OTLP has them.
fn is_worth_another_try(status: StatusCode) -> bool {
    [429, 502, 503, 504].contains(&status.as_u16())
}
