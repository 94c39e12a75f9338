//! `tidegate check FILE`: what would the server say to this file, here? What is stored is looked at too.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::policy::Policy;
use tidegate_store::lease::{Bounds, LeaseConfig, bounds};

use super::EXIT_MISTAKES;
use super::layers::Layers;
use super::reach::Reach;
use super::sample::Samples;
use crate::config::{Config, Environment, Flags, Source};
use crate::serve::{lease_config, memory_warning};

/// Says everything that is wrong with a configuration file.
///
/// It is checked the way the server would, environment and the files that it names included. What of the stored
/// configuration does not go with it is said, too. Exit code 0: it is good, 2: it has mistakes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate check tidegate.toml
  tidegate check tidegate.toml --request client_id=user123 path=/pay")]
pub struct Check {
    /// The file.
    file: PathBuf,
    #[command(flatten)]
    samples: Samples,
}

impl Check {
    /// Writes every mistake on a line of its own, or one line that says the file is good.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let source = Source { path: Some(self.file.clone()), environment, flags: Flags::default() };
        let checked = source.load().and_then(|loaded| loaded.check_files().map(|warned| (loaded, warned)));
        match checked {
            Ok((loaded, warned)) => {
                let layers = Layers::of(&loaded.config);
                let stored = layers.warnings();
                let reach = Reach::of(&loaded.config, &layers);
                let unsupplied = reach.unsupplied(&self.samples);
                let memory = memory_warning(&loaded.config.settings);
                let found = loaded.warnings.iter().chain(&warned).chain(&memory);
                for warning in found.chain(&stored).chain(&unsupplied) {
                    writeln!(out, "warning: {warning}")?;
                }
                for note in reach.only_permits() {
                    writeln!(out, "note: {note}")?;
                }
                let (policies, overrides) =
                    (loaded.config.layer.policies.len(), loaded.config.layer.overrides.len());
                let (upstreams, routes) = loaded.config.gateway.counts();
                let gateway = match routes + upstreams {
                    0 => String::new(),
                    _ => format!(", upstreams: {upstreams}, routes: {routes}"),
                };
                let edge = match loaded.config.edge.config.backends.len() {
                    0 => String::new(),
                    backends => format!(", backends: {backends}"),
                };
                let intake = &loaded.config.intake;
                let lists = [("alerts", intake.alerts.len()), ("forwards", intake.forwards.len())];
                let lists = lists.into_iter().filter(|(_, count)| *count > 0);
                let intake: String = lists.map(|(name, count)| format!(", {name}: {count}")).collect();
                let file = self.file.display();
                let counts = format!("policies: {policies}, overrides: {overrides}{gateway}{edge}{intake}");
                writeln!(out, "{file}: good ({counts})")?;
                write_routes(&loaded.config, out)?;
                self.samples.describe(&layers.set, loaded.config.settings.on_no_match, out)?;
                if let Some(leases) = lease_config(&loaded.config.settings) {
                    write_leases(&loaded.config.layer.policies, &leases, out)?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(mistakes) => {
                writeln!(out, "{mistakes}")?;
                Ok(ExitCode::from(EXIT_MISTAKES))
            }
        }
    }
}

/// The routes in the order in which they are looked at.
fn write_routes(config: &Config, out: &mut dyn Write) -> io::Result<()> {
    let gateway = config.gateway.config();
    let routes = gateway.in_order();
    if !routes.is_empty() {
        writeln!(out, "routes, the first that fits takes a request:")?;
    }
    for ranked in routes {
        writeln!(out, "  {}: {ranked}", ranked.route.name)?;
    }
    Ok(())
}

/// What taking units ahead can cost under each policy, over all nodes.
fn write_leases(policies: &[Policy], leases: &LeaseConfig, out: &mut dyn Write) -> io::Result<()> {
    let nodes = leases.instances;
    writeln!(out, "leases, with {nodes} nodes (shared.instances):")?;
    let built_in = [Policy::default_per_client()];
    for policy in if policies.is_empty() { &built_in } else { policies } {
        let Bounds { units, lifetime, over_admission, stranded, .. } = bounds(&policy.quota.limit, leases);
        if units == 1 {
            writeln!(out, "  {}: not leased, so counted exactly", policy.name)?;
            continue;
        }
        let lifetime_ms = lifetime / 1_000_000;
        let (name, above) = (&policy.name, above_the_limit(&policy.quota.limit, over_admission));
        writeln!(
            out,
            "  {name}: up to {units} units for {lifetime_ms} ms at a node; {above}, and at most {stranded} stranded"
        )?;
    }
    Ok(())
}

/// How far a window may pass the limit by leases, and by the algorithm itself where that does.
fn above_the_limit(limit: &Limit, by_leases: u64) -> String {
    let both = |own: u64, whose: &str| {
        let together = own.saturating_add(by_leases);
        format!(
            "in any window at most {together} above the limit ({own} by {whose} and {by_leases} by leases)"
        )
    };
    match limit {
        Limit::SlidingCounter(counter) => both(counter.limit.saturating_sub(1), "the sliding counter itself"),
        Limit::FixedWindow(_) | Limit::Calendar(_) => {
            format!("in a window of its own at most {by_leases} above the limit")
        }
        _ => format!("in any window at most {by_leases} above the limit"),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::{SlidingCounter, SlidingLog};

    use super::*;

    #[test]
    fn a_sliding_counters_own_bound_is_stated_beside_that_of_its_leases() {
        let counter = Limit::SlidingCounter(SlidingCounter { limit: 60_000, seconds: 60 });
        assert_eq!(
            above_the_limit(&counter, 999),
            "in any window at most 60998 above the limit (59999 by the sliding counter itself and 999 by leases)"
        );
        let log = Limit::SlidingLog(SlidingLog { limit: 60_000, window: 60_000_000_000 });
        assert_eq!(above_the_limit(&log, 999), "in any window at most 999 above the limit");
    }
}
