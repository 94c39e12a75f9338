//! What is known of requests afterwards: records, and who reads them.
//!
//! ```text
//!   request ── each step ──> record/ ── when it has ended ──┬──> access_log/   a line of the log
//!                                                           ├──> traces        the last requests, while somebody looks
//!                                                           └──> spans         for a collector of OpenTelemetry
//!   request ── its tally ── when it has ended ──> analytics/    counts by route, key, server and status
//!   route, server ── bytes, times ──> flow ──> the metrics page
//! ```
//!
//! Readers and counts stand above the record: `record/` knows of them no more than a trait each. Nothing here decides about a request.

pub mod access_log;
pub mod analytics;
pub mod flow;
pub(crate) mod number;
pub(crate) mod record;
pub mod spans;
pub mod traces;
