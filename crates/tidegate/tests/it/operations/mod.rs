//! What operators are given beside the binary: alerts, dashboards, the runbook, compose files, the chart, tutorials and other pages with commands, each tried with the binary.

mod alerts;
mod autoscaling;
mod book;
mod charts;
mod compose;
mod composed;
mod dashboards;
mod monitored;
mod pages;
mod reference;
mod rolling;

use std::path::{Path, PathBuf};

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The text of a file of the repository.
pub(crate) fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
