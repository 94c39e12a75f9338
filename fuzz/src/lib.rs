//! Targets for fuzzing: a function for each parser, which takes any bytes.
//!
//! `tests/it` runs each with its seeds, among which is every input that ever crashed, in the ordinary build. `main.rs` is the
//! program in which libFuzzer runs them with inputs of its own: `cargo xtask fuzz` builds it with coverage counters.

mod targets;

pub use targets::{Run, TARGETS};
