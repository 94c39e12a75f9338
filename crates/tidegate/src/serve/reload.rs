//! Putting a configuration that was loaded again in force.
//!
//! Policies and overrides change at once. Settings are read once, at start: a changed one is named
//! in the log with the advice to restart, and nothing is half applied.

use tidegate_algorithms::policy::Mistake;
use tidegate_limiter::http::Api;

use crate::config::{Config, Settings};

/// Puts the policies of `config` in force.
///
/// # Errors
/// If they cannot stand together with what is stored; the old ones stay then.
pub async fn apply(api: &Api, started_with: &Settings, config: &Config) -> Result<(), Vec<Mistake>> {
    api.configuration().replace_file(config.layer.clone()).await?;
    let restart = started_with.differences(&config.settings);
    if !restart.is_empty() {
        tracing::warn!(settings = restart.join(", "), "these settings take effect at the next start");
    }
    Ok(())
}
