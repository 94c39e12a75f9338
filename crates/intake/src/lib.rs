//! The metrics intake: metrics in, acknowledged only when they are safe.
//!
//! ```text
//!   request ── access: whose it is ── body: bounded, decompressed ── a decoder of `wire` ──> lines
//!                                                                                             │
//!     reply <── as safe as was asked for ── log ── queue ── one writer ── disk <── limits: may the client? ─┘
//! ```
//!
//! A request is decoded between two waits, on its connection's core: what it takes beyond its own bytes is gone
//! before the next one is looked at. What waits for the disk is the log's queue, which has a bound.
//!
//! The crate knows neither tokens nor policies: they come as values of [`access::Access`] and [`limits::BatchLimiter`].

pub mod access;
pub mod alerts;
mod batch;
mod body;
mod client;
pub mod counters;
pub mod forward;
mod influx;
mod intake;
mod kept;
pub mod limits;
mod otlp;
mod partitioning;
mod query;
mod read;
mod readers;
mod refusal;
mod remote_write;
mod repeats;
mod series;
mod service;
pub mod settings;
mod shown;
pub mod statsd;

pub use intake::{Intake, MetricLines, Page, Parts};
pub use partitioning::PartitionBy;
pub use series::ClientSeries;
pub use service::{IntakeService, TEMPLATES};
pub use tidegate_upstream::endpoint::EndpointUrl;
