//! `cargo xtask collector`: the tests of what a collector is sent, once more through OpenTelemetry's own.
//!
//! It is built of the Go module proxy, at the versions of `xtask/collector/go.mod`, with OTLP in and OTLP out and nothing else.
//! That takes minutes, so `make test` has OpenTelemetry's messages in Python alone: this is for who changes what is sent.

use std::path::Path;

use crate::chore::{cargo, run};
use crate::go;

/// Builds the collector into `.tools`, and runs the tests with it.
///
/// # Errors
/// When it does not build, or a test fails.
pub(crate) fn collector(root: &Path) -> anyhow::Result<()> {
    go::setup(root)?;
    go::programs(root, "collector", &["tidegate/xtask/collector"])?;
    let program = root.join(".tools/bin/collector");
    let tests = ["test", "--package", "tidegate", "--locked", "--no-fail-fast", "--test", "it", "--"];
    let modules = ["telemetry::", "intake_otlp::"];
    run(cargo().args(tests).args(modules).current_dir(root).env("TIDEGATE_COLLECTOR", program))
}
