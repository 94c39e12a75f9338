//! The commands that measure: they run one after the other, and alone on the machine.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod judge;
mod laboratory;
mod load;
mod planted;
mod saturate;
mod services;
#[path = "../it/support/mod.rs"]
mod support;
