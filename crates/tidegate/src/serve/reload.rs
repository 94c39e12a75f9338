//! Putting a configuration that was loaded again in force.
//!
//! Policies and overrides change at once; the limiter says in the log what changed. Settings are read
//! once, at start: a changed one is named in the log, with both values, and the advice to restart.

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
    for change in restart {
        tracing::warn!(change, "this setting takes effect at the next start");
    }
    Ok(())
}
