//! The state of the configuration file: whether its present content is in force (fault 19's gauge).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_net::clock::wall;

use crate::{Families, Family};

/// The state of the configuration; clones share it.
#[derive(Clone, Debug)]
pub struct ConfigurationStatus {
    shared: Arc<ReloadState>,
}

#[derive(Debug)]
struct ReloadState {
    reload_good: AtomicBool,
    applied: AtomicU64,
    refused: AtomicU64,
    applied_at_nanos: AtomicU64,
}

impl Default for ConfigurationStatus {
    fn default() -> Self {
        Self::new()
    }
}

impl ConfigurationStatus {
    /// A process that started now, with a good file or none.
    #[must_use]
    pub fn new() -> Self {
        let shared = ReloadState {
            reload_good: AtomicBool::new(true),
            applied: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            applied_at_nanos: AtomicU64::new(wall().0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The file was loaded again and is in force.
    pub fn reloaded(&self) {
        self.shared.reload_good.store(true, Relaxed);
        self.shared.applied.fetch_add(1, Relaxed);
        self.shared.applied_at_nanos.store(wall().0, Relaxed);
    }

    /// The file was loaded again and refused; the old configuration stays.
    pub fn refused(&self) {
        self.shared.reload_good.store(false, Relaxed);
        self.shared.refused.fetch_add(1, Relaxed);
    }

    /// Whether the file's present content is in force.
    #[must_use]
    pub fn is_reload_good(&self) -> bool {
        self.shared.reload_good.load(Relaxed)
    }
}

impl Family for ConfigurationStatus {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let ReloadState { applied, refused, applied_at_nanos, .. } = &*self.shared;
        families.gauge(
            "tidegate_config_last_reload_successful",
            "1 if the present content of the configuration file is in force, 0 if it was refused",
            u64::from(self.is_reload_good()),
        )?;
        families.gauge(
            "tidegate_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was taken over",
            applied_at_nanos.load(Relaxed) / 1_000_000_000,
        )?;
        families.counters("tidegate_config_reloads", "Reloads of the configuration file", |series| {
            series(&[("result", "applied")], applied.load(Relaxed))?;
            series(&[("result", "refused")], refused.load(Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;
    use crate::exposition::Exposition;

    #[test]
    fn fault_19_a_gauge_says_that_the_file_was_refused() {
        let status = ConfigurationStatus::new();
        let mut metrics = Metrics::new();
        metrics.register(status.clone());
        assert!(metrics.page(Exposition::OpenMetrics).contains("tidegate_config_last_reload_successful 1\n"));
        status.refused();
        let page = metrics.page(Exposition::OpenMetrics);
        assert!(page.contains("tidegate_config_last_reload_successful 0\n"), "{page}");
        assert!(page.contains("tidegate_config_reloads_total{result=\"refused\"} 1\n"), "{page}");
        status.reloaded();
        assert!(status.is_reload_good());
        assert!(metrics.page(Exposition::OpenMetrics).contains("tidegate_config_last_reload_successful 1\n"));
    }
}
