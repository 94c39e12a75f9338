//! The intake's counters, added to once for each batch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The protocol that metrics came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `POST /metrics`.
    Json,
    /// Prometheus remote write.
    RemoteWrite,
    /// OpenTelemetry over HTTP.
    OtlpHttp,
    /// OpenTelemetry over gRPC.
    OtlpGrpc,
    /// InfluxDB's line protocol.
    LineProtocol,
    /// StatsD over UDP and TCP.
    Statsd,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Json, Self::RemoteWrite, Self::OtlpHttp, Self::OtlpGrpc, Self::LineProtocol, Self::Statsd];

    /// Its name as a metric's label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::RemoteWrite => "remote_write",
            Self::OtlpHttp => "otlp_http",
            Self::OtlpGrpc => "otlp_grpc",
            Self::LineProtocol => "line_protocol",
            Self::Statsd => "statsd",
        }
    }
}

/// Data that came and that a line cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// A marker that a series has ended.
    Stale,
    /// A value that is infinite or not a number.
    NotFinite,
    /// The buckets of a native or exponential histogram.
    Histogram,
    /// An exemplar.
    Exemplar,
    /// A field that is a text.
    Text,
    /// A member of a set.
    Set,
    /// An event, or the result of a check.
    Event,
    /// A part of a line of StatsD that no known version has.
    UnknownPart,
}

impl Leftover {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Stale,
        Self::NotFinite,
        Self::Histogram,
        Self::Exemplar,
        Self::Text,
        Self::Set,
        Self::Event,
        Self::UnknownPart,
    ];

    /// Its name as a metric's label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stale => "stale_marker",
            Self::NotFinite => "not_finite",
            Self::Histogram => "native_histogram",
            Self::Exemplar => "exemplar",
            Self::Text => "text",
            Self::Set => "set",
            Self::Event => "event",
            Self::UnknownPart => "unknown_part",
        }
    }
}

/// Why a batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is malformed.
    Invalid,
    /// It is too large.
    TooLarge,
    /// No token came that may send metrics, or read them.
    Unauthorized,
    /// A limit of its client is used up.
    Limited,
    /// A policy that is listed is not in force.
    NoPolicy,
    /// Its client has more in the queue than its share.
    Share,
    /// Its client has no room for a new series.
    Series,
    /// The queue is full.
    Full,
    /// The disk is full.
    DiskFull,
    /// It could not be written.
    WriteFailed,
    /// Its body did not come, or not in time.
    Incomplete,
    /// The process ends, or cannot answer.
    Unavailable,
    /// The lines asked for are not there, or a group's offset could not be kept.
    Unread,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Invalid,
        Self::TooLarge,
        Self::Unauthorized,
        Self::Limited,
        Self::NoPolicy,
        Self::Share,
        Self::Series,
        Self::Full,
        Self::DiskFull,
        Self::WriteFailed,
        Self::Incomplete,
        Self::Unavailable,
        Self::Unread,
    ];

    /// Its name as a metric's label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::TooLarge => "too_large",
            Self::Unauthorized => "unauthorized",
            Self::Limited => "limited",
            Self::NoPolicy => "no_policy",
            Self::Share => "share",
            Self::Series => "series",
            Self::Full => "full",
            Self::DiskFull => "disk_full",
            Self::WriteFailed => "write_failed",
            Self::Incomplete => "incomplete",
            Self::Unavailable => "unavailable",
            Self::Unread => "unread",
        }
    }
}

/// The counters of an intake.
#[derive(Debug, Default)]
pub struct Counters {
    batches: [AtomicU64; Protocol::ALL.len()],
    metrics: [AtomicU64; Protocol::ALL.len()],
    rejected: AtomicU64,
    repeated: AtomicU64,
    forgotten: AtomicU64,
    leftovers: [AtomicU64; Leftover::ALL.len()],
    refused: [AtomicU64; Reason::ALL.len()],
}

impl Counters {
    pub(crate) fn count_batch(&self, protocol: Protocol, metrics: usize) {
        self.batches[protocol as usize].fetch_add(1, Relaxed);
        self.metrics[protocol as usize].fetch_add(metrics as u64, Relaxed);
    }

    pub(crate) fn count_rejected(&self, metrics: usize) {
        self.rejected.fetch_add(metrics as u64, Relaxed);
    }

    pub(crate) fn count_repeated(&self) {
        self.repeated.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_forgotten(&self) {
        self.forgotten.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_leftover(&self, leftover: Leftover, count: usize) {
        self.leftovers[leftover as usize].fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn count_refusal(&self, reason: Reason) {
        self.refused[reason as usize].fetch_add(1, Relaxed);
    }

    /// Batches that were acknowledged.
    #[must_use]
    pub fn batches(&self, protocol: Protocol) -> u64 {
        self.batches[protocol as usize].load(Relaxed)
    }

    /// Metrics of batches that were acknowledged.
    #[must_use]
    pub fn metrics(&self, protocol: Protocol) -> u64 {
        self.metrics[protocol as usize].load(Relaxed)
    }

    /// Metrics that were left out of a batch whose others were kept.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }

    /// Batches that were sent again, and acknowledged without being kept again.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Relaxed)
    }

    /// Batches that were forgotten before their time, for want of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }

    /// Data that was left out, because no line can hold it.
    #[must_use]
    pub fn leftovers(&self, leftover: Leftover) -> u64 {
        self.leftovers[leftover as usize].load(Relaxed)
    }

    /// Requests that were refused.
    #[must_use]
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Relaxed)
    }

    /// The four numbers that the source has.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let sum = |read: fn(&Self, Protocol) -> u64| -> u64 {
            Protocol::ALL.into_iter().map(|protocol| read(self, protocol)).sum()
        };
        serde_json::json!({
            "metrics_received": sum(Self::metrics),
            "batches_processed": sum(Self::batches),
            "validation_errors": self.refused(Reason::Invalid) + self.rejected(),
            "rate_limited_requests": self.refused(Reason::Limited) + self.refused(Reason::Share),
        })
    }
}
