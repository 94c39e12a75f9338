//! Whether the generator and the stub measure the truth. They measure time, so that each runs alone.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod load_truth;
mod server_closes;
mod stub_truth;
