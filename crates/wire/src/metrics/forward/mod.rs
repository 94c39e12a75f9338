//! Lines on their way out: what other systems take.
//!
//! ```text
//!   line ── read_line ── KeptLine ──┬─ remote write 1.0: a series of one sample
//!                                   └─ OTLP: a metric of one point
//! ```
//!
//! Each line is a message of its own inside the request, so that a request may be cut between any two lines. Lines
//! that cannot be read are left out, and are none that the log has.

pub mod otlp;
pub mod remote_write;
