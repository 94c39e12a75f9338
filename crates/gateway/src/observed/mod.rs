//! What is known of requests afterwards: records, and who reads them.
//!
//! ```text
//!   request ── each step ──> record/ ── when it has ended ──┬──> access_log/   a line of the log
//!                                                           ├──> analytics/    counts by route, key and server
//!                                                           ├──> traces        the last requests, while somebody looks
//!                                                           └──> spans         for a collector of OpenTelemetry
//!   route, server ── bytes, times ──> flow ──> the metrics page
//! ```
//!
//! A reader stands above the record: `record/` knows of its readers no more than a trait. Nothing here decides about a request.

pub mod access_log;
pub mod analytics;
pub mod flow;
pub(crate) mod record;
pub mod spans;
pub mod traces;
