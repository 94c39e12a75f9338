//! Why a request is not done, and how it is told: one place from cause to status.
//!
//! | status | cause | worth another try |
//! |---|---|---|
//! | 400 | what was sent is not a batch | no |
//! | 401, 403 | no token, or one without the scope | no |
//! | 408 | the body did not come in time | yes |
//! | 413 | too many bytes, with or without their compression | no |
//! | 415 | another media type or compression | no |
//! | 429 | a limit of the client is used up, or its share of the queue is, or it has no room for a new series | after `Retry-After` |
//! | 503 | the queue is full, or the batch could not be written | after `Retry-After` |
//! | 507 | the disk is full | after `Retry-After` |
//!
//! That is what a batch of JSON is told. Senders of other protocols have a list of their own of what they send again, and
//! drop the rest for ever, so what will fit later is told as 503 where theirs lacks it ([`Senders`], decision 0325):
//!
//! | senders | send again | drop |
//! |---|---|---|
//! | Prometheus, by default | 5xx | 408, 429 |
//! | OpenTelemetry over HTTP | 429, 502, 503, 504 | 408, 507 |
//! | clients of InfluxDB, Telegraf | 429, 503 | 408; 507, some of them |
//!
//! Nothing of what was refused is kept, but where the disk refused it. A batch whose write or flush failed may be found
//! on the disk all the same, after a restart, which no server can rule out; and of a batch that is split over partitions,
//! the parts that the disk did take are kept.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use thiserror::Error;
use tidegate_log::{AppendError, GroupError, ReadError};
use tidegate_net::http::BodyError;
use tidegate_wire::metrics::line_protocol::TooLong;
use tidegate_wire::metrics::otlp::{ExportError, JsonError};
use tidegate_wire::metrics::remote_write::RequestError;
use tidegate_wire::metrics::{BatchError, MetricError};

use crate::access::AccessError;
use crate::body::EncodingError;
use crate::counters::Reason;
use crate::limits::Denial;
use crate::series::WINDOW;

/// Why a request is not done.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    /// The batch is not acceptable.
    #[error("{}", batch(.0))]
    Batch(#[from] BatchError),
    /// A request of remote write is not.
    #[error(transparent)]
    Samples(#[from] RequestError),
    /// A request of OpenTelemetry is not.
    #[error(transparent)]
    Points(#[from] ExportError),
    /// A request in JSON is not valid.
    #[error(transparent)]
    PointsJson(#[from] JsonError),
    /// The lines of a request in line protocol are too many.
    #[error(transparent)]
    Lines(#[from] TooLong),
    /// Something else of the request is not.
    #[error("{0}")]
    Malformed(String),
    /// It is of another media type than is read here.
    #[error("{0}")]
    MediaType(&'static str),
    /// Its token is missing, or has not the scope.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// It carries no token, and a browser's page may have sent it.
    #[error(
        "the request has no token, and a web page may have sent it: send a token; without one, leave out the field \
         origin, and read by an address or localhost as host"
    )]
    Foreign,
    /// Its compression is unknown, malformed or hides too much.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// Its body did not come.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The client's limits deny it.
    #[error("{}", denied(.0))]
    Denied(Denial, Box<HeaderMap>),
    /// The lines cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A group cannot have this name, or its offset cannot be kept.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The same batch is under way.
    #[error("the same batch is being kept: try again in a moment")]
    UnderWay,
    /// Another batch had its key.
    #[error("this idempotency-key was sent with another body before: use a new key for a new batch")]
    OtherBody,
    /// There are as many streams as there may be.
    #[error("there are as many streams of events as there may be")]
    TooManyStreams,
    /// The process ends.
    #[error("this process is ending")]
    NoReader,
    /// The log does not take it.
    #[error("{}", append(.0))]
    Append(#[from] AppendError),
}

/// The protocol whose status is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Senders {
    /// Senders that read [`Refusal::status`].
    Json,
    /// Prometheus and OpenTelemetry, which all send again what is answered 503.
    PrometheusOrOtlp,
    /// Clients of InfluxDB, which know 429 as well.
    Influx,
}

fn batch(error: &BatchError) -> String {
    match error {
        BatchError::Empty => error.to_string(),
        BatchError::Metric(_) => format!("Invalid metric: {error}"),
        _ => format!("Invalid batch: {error}"),
    }
}

fn denied(denial: &Denial) -> String {
    match denial {
        Denial::Quota { .. } | Denial::NoMatch => "Rate limit exceeded".to_owned(),
        Denial::NoPolicy { policy } => {
            format!("the policy {policy:?}, which intake.policies lists, is not in force")
        }
        Denial::Invalid(why) | Denial::NoAnswer(why) => why.clone(),
    }
}

fn append(error: &AppendError) -> String {
    match error {
        AppendError::Full { .. } => "Server overloaded, try again later".to_owned(),
        other => other.to_string(),
    }
}

impl Refusal {
    /// The status that says it.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            _ if self.is_too_long() => StatusCode::PAYLOAD_TOO_LARGE,
            _ if self.is_new_series() => StatusCode::TOO_MANY_REQUESTS,
            Self::Points(_) | Self::PointsJson(_) | Self::Lines(_) => StatusCode::BAD_REQUEST,
            Self::Batch(_)
            | Self::Samples(_)
            | Self::Malformed(_)
            | Self::Encoding(EncodingError::Malformed(_)) => StatusCode::BAD_REQUEST,
            Self::Denied(Denial::Invalid(_), _) | Self::Group(GroupError::Name) => StatusCode::BAD_REQUEST,
            Self::MediaType(_) | Self::Encoding(EncodingError::Unknown) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Access(AccessError::Unknown) => StatusCode::UNAUTHORIZED,
            Self::Access(AccessError::Missing(_)) | Self::Foreign => StatusCode::FORBIDDEN,
            Self::Encoding(EncodingError::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(error) => error.status(),
            Self::Denied(Denial::Quota { .. } | Denial::NoMatch, _)
            | Self::Append(AppendError::ShareExceeded { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Self::Append(AppendError::DiskFull) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Append(AppendError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Append(AppendError::Misdescribed | AppendError::NoPartition(_)) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Read(ReadError::NoPartition(_)) | Self::Group(GroupError::NoPartition(_)) => {
                StatusCode::NOT_FOUND
            }
            Self::Read(ReadError::Gone { .. }) => StatusCode::GONE,
            Self::Read(ReadError::Beyond { .. }) | Self::Group(GroupError::Beyond { .. }) => {
                StatusCode::RANGE_NOT_SATISFIABLE
            }
            Self::Group(GroupError::TooMany(_)) => StatusCode::CONFLICT,
            Self::Read(_) | Self::Group(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Denied(Denial::NoPolicy { .. } | Denial::NoAnswer(_), _)
            | Self::Append(_)
            | Self::UnderWay
            | Self::TooManyStreams
            | Self::NoReader => StatusCode::SERVICE_UNAVAILABLE,
            Self::OtherBody => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    /// The status for these senders: one that they send again after, where another try is worth it.
    pub(crate) fn status_for(&self, senders: Senders) -> StatusCode {
        match (senders, self.status()) {
            (Senders::PrometheusOrOtlp, StatusCode::TOO_MANY_REQUESTS)
            | (
                Senders::PrometheusOrOtlp | Senders::Influx,
                StatusCode::REQUEST_TIMEOUT | StatusCode::INSUFFICIENT_STORAGE,
            ) => StatusCode::SERVICE_UNAVAILABLE,
            (_, status) => status,
        }
    }

    /// Whether the request's lines, or its objects, are too many.
    fn is_too_long(&self) -> bool {
        matches!(
            self,
            Self::Batch(BatchError::TooLong(_))
                | Self::Samples(RequestError::TooLong(_))
                | Self::Points(ExportError::TooLong(_))
                | Self::PointsJson(JsonError::TooMany)
                | Self::Lines(_)
        )
    }

    /// Whether a metric of it is of a series that there is no room for.
    fn is_new_series(&self) -> bool {
        matches!(self, Self::Batch(BatchError::Metric(rejected)) if rejected.error == MetricError::SeriesLimit)
    }

    /// What it counts as.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            _ if self.is_too_long() => Reason::TooLarge,
            _ if self.is_new_series() => Reason::Series,
            Self::Points(_) | Self::PointsJson(_) | Self::Lines(_) => Reason::Invalid,
            Self::Batch(_) | Self::Samples(_) | Self::Malformed(_) | Self::MediaType(_) => Reason::Invalid,
            Self::Encoding(EncodingError::TooLarge(_)) | Self::Body(BodyError::TooLarge { .. }) => {
                Reason::TooLarge
            }
            Self::Encoding(_) | Self::Denied(Denial::Invalid(_), _) => Reason::Invalid,
            Self::Access(_) | Self::Foreign => Reason::Unauthorized,
            Self::Body(BodyError::NoRoom) | Self::Denied(Denial::NoAnswer(_), _) => Reason::Unavailable,
            Self::Body(_) => Reason::Incomplete,
            Self::Denied(Denial::Quota { .. } | Denial::NoMatch, _) => Reason::Limited,
            Self::Denied(Denial::NoPolicy { .. }, _) => Reason::NoPolicy,
            Self::Append(AppendError::Full { .. }) => Reason::Full,
            Self::Append(AppendError::ShareExceeded { .. }) => Reason::Share,
            Self::Append(AppendError::DiskFull) => Reason::DiskFull,
            Self::Append(AppendError::TooLarge { .. }) => Reason::TooLarge,
            Self::Append(AppendError::Closing) => Reason::Unavailable,
            Self::Append(_) => Reason::WriteFailed,
            Self::Read(_) | Self::Group(_) => Reason::Unread,
            Self::UnderWay | Self::TooManyStreams | Self::NoReader => Reason::Unavailable,
            Self::OtherBody => Reason::Invalid,
        }
    }

    /// Whether the request's body may not have been read to its end.
    pub(crate) fn is_before_the_body(&self) -> bool {
        !matches!(
            self,
            Self::Batch(_)
                | Self::Samples(_)
                | Self::Points(_)
                | Self::PointsJson(_)
                | Self::Lines(_)
                | Self::Denied(..)
                | Self::Append(_)
                | Self::Read(_)
                | Self::Group(_)
        )
    }

    /// The fields that go with it.
    pub(crate) fn fields(&self) -> HeaderMap {
        let mut fields = match self {
            Self::Denied(_, fields) => (**fields).clone(),
            _ => HeaderMap::new(),
        };
        if matches!(self, Self::Access(AccessError::Unknown)) {
            fields.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.wait() {
            fields.entry(header::RETRY_AFTER).or_insert_with(|| HeaderValue::from(whole_seconds(wait)));
        }
        fields
    }

    /// How long to wait before another try, where one is worth it.
    fn wait(&self) -> Option<Duration> {
        match self {
            _ if self.is_new_series() => Some(WINDOW),
            Self::Append(AppendError::Full { retry_after } | AppendError::ShareExceeded { retry_after }) => {
                Some(*retry_after)
            }
            _ if [408, 429, 503, 507].contains(&self.status().as_u16()) => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

/// At least one, and never too few.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_fit_later_is_told_as_each_protocols_senders_send_it_again() {
        let quota = || Refusal::Denied(Denial::Quota { policies: Vec::new() }, Box::default());
        let later = Duration::from_secs(1);
        let cases = [
            (quota(), [429, 503, 429]),
            (Refusal::Append(AppendError::ShareExceeded { retry_after: later }), [429, 503, 429]),
            (Refusal::Append(AppendError::Full { retry_after: later }), [503, 503, 503]),
            (Refusal::Append(AppendError::DiskFull), [507, 503, 503]),
            (Refusal::Body(BodyError::TooSlow), [408, 503, 503]),
            (Refusal::UnderWay, [503, 503, 503]),
            (Refusal::Denied(Denial::NoPolicy { policy: "few".to_owned() }, Box::default()), [503, 503, 503]),
        ];
        for (refusal, told) in cases {
            let senders = [Senders::Json, Senders::PrometheusOrOtlp, Senders::Influx];
            assert_eq!(senders.map(|senders| refusal.status_for(senders).as_u16()), told, "{refusal}");
            assert!(refusal.fields().contains_key(header::RETRY_AFTER), "{refusal}");
        }
        for never in [
            Refusal::Denied(Denial::Invalid("it costs more than the limit".to_owned()), Box::default()),
            Refusal::Malformed(String::new()),
            Refusal::OtherBody,
        ] {
            assert!(never.status_for(Senders::PrometheusOrOtlp).is_client_error(), "{never}");
            assert!(!never.fields().contains_key(header::RETRY_AFTER), "{never}");
        }
    }
}
