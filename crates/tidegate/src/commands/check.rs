//! `tidegate check FILE`: what would the server say to this file, here? What is stored is looked at too.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_algorithms::policy::Policy;
use tidegate_store::lease::{Bounds, LeaseConfig, bounds};

use super::EXIT_MISTAKES;
use super::layers::Layers;
use super::sample::{Samples, unsupplied};
use crate::config::{Environment, Flags, Source};
use crate::serve::lease_config;

/// Checks a configuration file the way the server would, environment and TLS files included, and says
/// what of the stored configuration does not go with it.
#[derive(Debug, clap::Args)]
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
        let checked = source.load().and_then(|loaded| loaded.check_tls().map(|soon| (loaded, soon)));
        match checked {
            Ok((loaded, soon)) => {
                let layers = Layers::of(&loaded.config);
                let stored = layers.warnings();
                let unsupplied = unsupplied(&layers.set, &loaded.config, &self.samples);
                for warning in loaded.warnings.iter().chain(&soon).chain(&stored).chain(&unsupplied) {
                    writeln!(out, "warning: {warning}")?;
                }
                let (policies, overrides) =
                    (loaded.config.layer.policies.len(), loaded.config.layer.overrides.len());
                writeln!(
                    out,
                    "{}: good (policies: {policies}, overrides: {overrides})",
                    self.file.display()
                )?;
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
        writeln!(
            out,
            "  {}: up to {units} units for {lifetime_ms} ms at a node; in any window at most {over_admission} \
             above the limit, and at most {stranded} stranded",
            policy.name
        )?;
    }
    Ok(())
}
