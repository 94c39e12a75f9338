//! Memory: whether the counters may grow as far as the configuration lets them.

use super::Finding;
use super::processes::Process;
use crate::config::Settings;
use crate::serve::memory_warning_of;

const AREA: &str = "memory";

/// The limits of the running server; those of this process where none runs.
pub(super) fn judge(settings: &Settings, server: Option<&Process>) -> Vec<Finding> {
    let process = server.map_or_else(|| "self".to_owned(), |server| server.id.to_string());
    vec![match memory_warning_of(settings, &process) {
        Some(warning) => Finding::warning(
            AREA,
            warning,
            "lower memory.max_bytes (--memory-max-bytes), or raise that limit",
        ),
        None => Finding::ok(AREA, "the counters may grow as far as memory.max_bytes lets them"),
    }]
}
