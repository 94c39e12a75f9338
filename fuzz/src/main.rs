//! libFuzzer's program for all targets: the environment names the one that this process runs.
#![no_main]

use std::sync::LazyLock;

use tidegate_fuzz::{Run, TARGETS};

/// What names the target.
const VARIABLE: &str = "TIDEGATE_FUZZ_TARGET";

static TARGET: LazyLock<Run> = LazyLock::new(|| {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("{VARIABLE} names no target: {wanted:?}")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
