//! Judgement of measurements: where a service stops scaling, why, and what follows from it.
//!
//! ```text
//!   Measurement --record--> StepRecord --discover--> knee, capacity, zones --+
//!   Observation (kernel, server) ----------diagnose--> cause, findings ------+--report--> JSON, Markdown,
//!                                                                            |            HTML, text
//!   two Reports --compare--> Comparison       Report --plan--> Plan          +--live---> a terminal's lines
//!   published claims --audit--> verdicts
//! ```
//!
//! Pure: everything is a function of measurements, whether they were made a second ago, read from a report a
//! year later, or [`simulated`]. The crate `tester` makes the load and reads the kernel's figures.

pub mod audit;
pub mod compare;
pub mod diagnose;
pub mod discover;
pub mod live;
pub mod measurement;
pub mod plan;
pub mod record;
pub mod report;
pub mod simulated;
pub mod threshold;
