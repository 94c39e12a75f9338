//! What the metrics page says of API keys. Keys are no labels: there are as many as somebody issues.

use std::fmt;
use std::sync::Arc;

use tidegate_access::keys::ApiKeys;
use tidegate_admin::{Families, Family};

/// How many keys are in force, and what became of requests that needed one.
pub(super) struct KeyMetrics(pub(super) Arc<ApiKeys>);

impl Family for KeyMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let stats = self.0.stats();
        families.gauge("tidegate_api_keys", "API keys in force", stats.keys as u64)?;
        let help = "Requests on routes that need an API key, by what was found";
        families.counters("tidegate_api_key_requests", help, |series| {
            series(&[("result", "accepted")], stats.accepted)?;
            series(&[("result", "missing")], stats.missing)?;
            series(&[("result", "unknown")], stats.unknown)?;
            series(&[("result", "expired")], stats.expired)
        })
    }
}
