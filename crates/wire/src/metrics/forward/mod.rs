//! Lines on their way out: what other systems take.
//!
//! ```text
//!   line ── read_line ── KeptLine ──┬─ remote write 1.0: a sample of its series; deltas as sums (`sums.rs`)
//!                                   └─ OTLP: a metric of one point
//! ```
//!
//! By OTLP each line is a message of its own inside the request. Lines that cannot be read are left out; the log never has such
//! lines.

pub mod otlp;
pub mod remote_write;
mod sums;

pub use sums::Sums;
