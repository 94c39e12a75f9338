//! Pictures for the pages, drawn by the code that judges measurements.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod pictures;
