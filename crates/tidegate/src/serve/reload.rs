//! Putting a configuration that was loaded again in force.
//!
//! What a service declares changes at once, and the service says in the log what changed. Settings are read
//! once, at start: a changed one is named in the log, with both values, and the advice to restart.

use tidegate_algorithms::policy::Mistake;
use tidegate_control::Configuration;

use crate::config::{Config, Settings};

/// Puts what `config` declares for the services in force, all of it or nothing.
///
/// # Errors
/// If it does not go with what is stored; what was in force stays then.
pub async fn apply(
    configuration: &Configuration,
    started_with: &Settings,
    config: &Config,
) -> Result<(), Vec<Mistake>> {
    configuration.replace_file(config.layers()).await?;
    let restart = started_with.differences(&config.settings);
    for change in restart {
        tracing::warn!(change, "this setting takes effect at the next start");
    }
    Ok(())
}
