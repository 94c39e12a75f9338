//! The operator's pages: which numbers of which service are on the metrics page.
//!
//! The services offer numbers and do not know of the page; here is where they meet. Labels are
//! policy names, which the configuration bounds, and fixed words (fault 53).

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{
    BuildInfo, ConfigurationStatus, Families, Family, Lifecycle, Metrics, Operator, Process, Readiness,
    Servers,
};
use tidegate_limiter::engine::Engine;
use tidegate_net::drain::Drain;
use tidegate_net::stats::Stats;
use tidegate_store::guard::GuardStats;
use tidegate_store::{Counters, memory};

/// The pages of a process with one HTTP server.
pub(super) fn operator(
    engine: Arc<Engine>,
    drain: Drain,
    server: Arc<Stats>,
    configuration: ConfigurationStatus,
) -> Operator {
    let mut metrics = Metrics::new();
    metrics.register(BuildInfo {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("TIDEGATE_COMMIT").unwrap_or("unknown"),
    });
    metrics.register(Process::started_now());
    metrics.register(Lifecycle { drain: drain.clone() });
    metrics.register(configuration);
    metrics.register(Servers::default().with("api", server));
    metrics.register(Decisions { engine: Arc::clone(&engine) });
    metrics.register(Store { engine });
    Operator::new(Readiness::new(drain), metrics)
}

/// What each policy decided, and the revision that is in force.
struct Decisions {
    engine: Arc<Engine>,
}

impl Family for Decisions {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let revision = self.engine.set().revision();
        families.gauge("tidegate_config_revision", "Stored revision in force", revision.0)?;
        let tallies = self.engine.tallies().read();
        let help = "Verdicts of each policy";
        families.counters("tidegate_decisions", help, |series| {
            tallies.iter().try_for_each(|(policy, count)| {
                series(&[("policy", policy), ("result", "allowed")], count.allowed)?;
                series(&[("policy", policy), ("result", "denied")], count.denied)?;
                series(&[("policy", policy), ("result", "shadow_denied")], count.shadow_denied)
            })
        })?;
        let help = "Verdicts that a policy gave without its store";
        families.counters("tidegate_decisions_degraded", help, |series| {
            tallies.iter().try_for_each(|(policy, count)| series(&[("policy", policy)], count.degraded))
        })
    }
}

/// How full the memory store is, or how the guard before a shared one fares.
struct Store {
    engine: Arc<Engine>,
}

impl Family for Store {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        match self.engine.counters() {
            Counters::Memory(memory) => memory_store(&memory.stats(), families),
            Counters::Guarded(guard) => guarded_store(&guard.stats(), families),
            Counters::Shared(_) | Counters::Leased(_) => Ok(()),
        }
    }
}

fn memory_store(stats: &memory::Stats, families: &mut Families<'_>) -> fmt::Result {
    families.gauge("tidegate_store_entries", "Keys remembered", stats.entries)?;
    families.gauge("tidegate_store_bytes", "Bytes that counters take", stats.bytes)?;
    families.gauge("tidegate_store_max_bytes", "Most bytes that counters may take", stats.max_bytes)?;
    let help = "Bytes left of the reserve for logs and permits";
    families.gauge("tidegate_store_reserve_left_bytes", help, stats.reserve_left)?;
    let help = "Keys dropped because the store was full, although they still said something";
    families.counter("tidegate_store_evicted", help, stats.evicted_live)?;
    let help = "Keys dropped because they said no more than an absent one";
    families.counter("tidegate_store_expired", help, stats.expired)
}

fn guarded_store(stats: &GuardStats, families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        "tidegate_store_breaker_open",
        "1 while the store is not asked",
        u64::from(stats.is_open),
    )?;
    families.counter("tidegate_store_breaker_opened", "Times the breaker opened", stats.opened)?;
    families.counter("tidegate_store_failures", "Calls that failed or were too late", stats.failures)?;
    let help = "Calls not made because too many were under way";
    families.counter("tidegate_store_saturated", help, stats.saturated)?;
    families.counters("tidegate_store_blind_answers", "Answers given without the store", |series| {
        series(&[("mode", "local")], stats.degraded_local)?;
        series(&[("mode", "open")], stats.degraded_open)?;
        series(&[("mode", "closed")], stats.degraded_closed)
    })?;
    families.counter("tidegate_store_blind_units", "Units admitted blindly", stats.blind_units)?;
    let help = "Of the units admitted blindly, an estimate of what the store would have denied";
    families.counter("tidegate_store_over_admitted_units", help, stats.over_admitted_units)
}
