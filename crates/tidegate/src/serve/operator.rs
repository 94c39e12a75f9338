//! The operator's pages: which numbers of which service are on the metrics page.
//!
//! The services offer numbers and do not know of the page; here is where they meet. Labels are
//! policy names, which the configuration bounds, and fixed words (fault 53).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_admin::api::{Events, SessionCount};
use tidegate_admin::{
    BuildInfo, Certificates, ConfigurationStatus, Families, Family, Lifecycle, Metrics, Operator, Process,
    Readiness, Servers,
};
use tidegate_certificates::Acme;
use tidegate_control::Configuration;
use tidegate_gateway::service::Gateway;
use tidegate_limiter::answers::Door;
use tidegate_limiter::candidate::LimitDifferenceCounts;
use tidegate_limiter::engine::Engine;
use tidegate_net::buffers::Buffers;
use tidegate_net::drain::Drain;
use tidegate_store::guard::{CALL_BOUNDS_US, Guard, GuardStats};
use tidegate_store::lease::LeaseStats;
use tidegate_store::memory;

use super::StartError;
use super::access_log::AccessLogMetrics;
use super::acme::AcmeMetrics;
use super::apis::Tools;
use super::capacity::LoadMetrics;
use super::edge_metrics::EdgeMetrics;
use super::edges::ServedEdge;
use super::flow_metrics::FlowMetrics;
use super::intake::ServedIntake;
use super::key_metrics::{IdentityMetrics, KeyMetrics};
use super::last_warnings::OfThisProcess;
use super::listeners::SecuredListeners;
use super::saturation::RunMetrics;
use super::telemetry::{Exporter, Telemetry, TelemetryMetrics};
use super::traces::KeptTraces;
use super::upstream_metrics::UpstreamMetrics;
use crate::config::Settings;

/// What this program was built from.
pub(super) const BUILD: BuildInfo =
    BuildInfo { version: env!("CARGO_PKG_VERSION"), commit: env!("BUILD_COMMIT") };

/// The pages of a process with these servers.
pub(super) fn operator(
    (engine, gateway, edge): (Arc<Engine>, Arc<Gateway>, Arc<ServedEdge>),
    (configuration, events, guard): (Configuration, Events, Arc<tidegate_access::guard::Guard>),
    (drain, buffers): (Drain, Buffers),
    (servers, tools): (Servers, &Tools),
    (secured, acme, ingestion): (SecuredListeners, Option<&Arc<Acme>>, Option<&ServedIntake>),
    (settings, status): (&Settings, ConfigurationStatus),
) -> Result<(Operator, Option<Exporter>), StartError> {
    let mut metrics = Metrics::new();
    metrics.register(BUILD);
    metrics.register(Process::started_now());
    metrics.register(Lifecycle { drain: drain.clone() });
    metrics.register(status);
    metrics.register(servers);
    metrics.register(OfThisProcess);
    metrics.register(LoadMetrics(tools.load.clone()));
    metrics.register(RunMetrics(tools.runs.clone()));
    metrics.register(HeldBytes { buffers });
    metrics.register(events);
    metrics.register(SessionCount(guard));
    metrics.register(Certificates::new(move || {
        secured.now().into_iter().map(|it| (it.listener.label(), it.tls)).collect()
    }));
    if let Some(acme) = acme {
        metrics.register(AcmeMetrics(Arc::clone(acme)));
    }
    metrics.register(Decisions { engine: Arc::clone(&engine) });
    metrics.register(Stored { configuration: configuration.clone() });
    metrics.register(StoreMetrics { engine: Arc::clone(&engine) });
    if let Some(log) = gateway.access_log() {
        metrics.register(AccessLogMetrics(Arc::clone(log)));
    }
    let telemetry = Telemetry::new(settings, gateway.spans())?;
    if let Some(telemetry) = &telemetry {
        metrics.register(TelemetryMetrics(Arc::clone(telemetry)));
    }
    metrics.register(KeptTraces(gateway.traces().clone()));
    metrics.register(KeyMetrics(gateway.keys().clone()));
    metrics.register(IdentityMetrics(Arc::clone(&gateway)));
    metrics.register(UpstreamMetrics(Arc::clone(&gateway)));
    metrics.register(EdgeMetrics(edge));
    if let Some(ingestion) = ingestion {
        ingestion.register(&mut metrics);
    }
    metrics.register(FlowMetrics(gateway));
    let readiness = readiness(drain.clone(), engine, configuration);
    let readiness = match acme.cloned() {
        Some(acme) => readiness.degraded_because(
            "certificates cannot be had, or not yet: what is in force is shown",
            move || acme.trouble(),
        ),
        None => readiness,
    };
    let operator = Operator::new(readiness, metrics);
    tools.history.of(operator.metrics());
    let exporter = telemetry.map(|telemetry| telemetry.exporter(operator.metrics(), drain));
    Ok((operator, exporter))
}

/// Ready with or without the configuration's database and the counters' store: what was last in force is
/// served, and each policy says what happens without its store.
fn readiness(drain: Drain, engine: Arc<Engine>, configuration: Configuration) -> Readiness {
    let control = configuration.control().clone();
    let (copied, altered) = (control.clone(), control.clone());
    Readiness::new(drain)
        .degraded_because("the counters' store does not answer: decisions are made without it", move || {
            engine.counters().guard().and_then(Guard::trouble)
        })
        .degraded("the configuration cannot be changed: its database is away or fails", move || {
            !control.is_reachable()
        })
        .degraded("stored documents are set aside: GET /v1/set-aside lists them", move || {
            configuration.parts().set_aside_count() > 0
        })
        .degraded("stored documents are not what was put: GET /v1/set-aside lists them", move || {
            !altered.altered().is_empty()
        })
        .degraded("the configuration is this node's copy of the last revision it knew", move || {
            copied.is_from_copy()
        })
}

/// Bytes that are held for peers.
struct HeldBytes {
    buffers: Buffers,
}

impl Family for HeldBytes {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Bytes of request bodies and replies that connections hold beyond what each has free";
        families.gauge("tidegate_buffered_bytes", help, self.buffers.taken())?;
        let help = "Most bytes of bodies and replies that connections may hold beyond what each has free";
        families.gauge("tidegate_buffered_max_bytes", help, self.buffers.limit())?;
        let help = "Times that a connection was refused bytes, for its own limit or that of all";
        families.counter("tidegate_buffer_refusals", help, self.buffers.refused())
    }
}

/// What each policy decided, the revision that is in force, and what of it is not.
struct Decisions {
    engine: Arc<Engine>,
}

impl Family for Decisions {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let set = self.engine.set();
        families.gauge("tidegate_config_revision", "Stored revision in force", set.revision().0)?;
        let tallies = self.engine.tallies().read();
        let help = "Verdicts of each policy";
        families.counters("tidegate_decisions", help, |series| {
            tallies.iter().try_for_each(|(policy, count)| {
                series(&[("policy", policy), ("result", "allowed")], count.allowed)?;
                series(&[("policy", policy), ("result", "denied")], count.denied)?;
                series(&[("policy", policy), ("result", "shadow_denied")], count.shadow_denied)
            })
        })?;
        let help = "Requests by what they were answered, each counted once however many policies it is under; unmatched: \
                    let through, since no policy applies";
        families.counters("tidegate_requests_decided", help, |series| {
            Door::COUNTED.into_iter().try_for_each(|door| {
                let (protocol, count) = (("protocol", door.label()), self.engine.answers().read(door));
                series(&[protocol, ("result", "allowed")], count.allowed)?;
                series(&[protocol, ("result", "denied")], count.denied)?;
                series(&[protocol, ("result", "unmatched")], count.unmatched)
            })
        })?;
        candidate(&self.engine, families)?;
        let unmatched = self.engine.unmatched();
        let help = "Requests that no policy applies to, by what on_no_match answered";
        families.counters("tidegate_unmatched_requests", help, |series| {
            series(&[("result", "allowed")], unmatched.allowed)?;
            series(&[("result", "denied")], unmatched.denied)
        })?;
        let help = "Verdicts that a policy gave without its store";
        families.counters("tidegate_decisions_degraded", help, |series| {
            tallies.iter().try_for_each(|(policy, count)| series(&[("policy", policy)], count.degraded))
        })
    }
}

/// What a candidate's policies would decide.
fn candidate(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let help = "Decisions by what the candidate's policies would have said: the same, would_limit what is allowed, or would_allow \
        what is denied; it begins at 0 with each candidate";
    families.counters("tidegate_candidate_decisions", help, |series| {
        let counts: LimitDifferenceCounts = engine.candidate_counts();
        counts.iter().try_for_each(|(difference, count)| series(&[("difference", difference)], *count))
    })?;
    let help = "Bytes that the counters of the candidate's policies take; 0 without such";
    let bytes = engine.candidate_limits().map_or(0, |limits| limits.bytes);
    families.gauge("tidegate_candidate_counters_bytes", help, bytes)
}

/// The stored configuration, as far as this node has heard of it, and how changes of it fare.
struct Stored {
    configuration: Configuration,
}

impl Family for Stored {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Documents that are not in force, or not as a whole: GET /v1/set-aside lists them";
        let aside = self.configuration.parts().set_aside_count();
        families.gauge("tidegate_config_set_aside", help, aside as u64)?;
        let stats = self.configuration.stats();
        let help = "Changes that wait to be stored; more than 4096 are turned away";
        families.gauge("tidegate_control_changes_waiting", help, stats.waiting as u64)?;
        families.counter("tidegate_control_changes", "Changes stored by this node", stats.stored)?;
        let help = "Changes turned away because too many waited";
        families.counter("tidegate_control_changes_turned_away", help, stats.turned_away)?;
        let help = "Transactions in which changes were stored";
        families.counter("tidegate_control_transactions", help, stats.transactions)?;
        let control = self.configuration.control();
        let help =
            "Stored documents that something else than Tidegate has altered: GET /v1/set-aside lists them";
        families.gauge("tidegate_control_altered", help, control.altered().len() as u64)?;
        let help = "Newest stored revision known here, for a moment more than the one in force";
        families.gauge("tidegate_control_revision", help, control.snapshot().revision().0)?;
        let help = "1 while the stored configuration can be changed, and others' changes heard of";
        families.gauge("tidegate_control_reachable", help, u64::from(control.is_reachable()))?;
        let help = "1 while this node knows the stored configuration from its copy only";
        families.gauge("tidegate_control_from_copy", help, u64::from(control.is_from_copy()))?;
        let help = "Times that the stored configuration turned out to have another history";
        families.counter("tidegate_control_replaced", help, control.snapshot().replaced())?;
        if let Some(messages) = control.message_stats() {
            let help = "Messages among the nodes that share the configuration, by what became of them";
            families.counters("tidegate_control_messages", help, |series| {
                series(&[("result", "sent")], messages.sent)?;
                series(&[("result", "heard")], messages.heard)?;
                series(&[("result", "dropped")], messages.dropped)
            })?;
        }
        let Some(copied) = control.copied_revision() else { return Ok(()) };
        let help = "Stored revision in this node's copy, behind the known one if it cannot be written";
        families.gauge("tidegate_control_copy_revision", help, copied.0)
    }
}

/// How full the memory store is, or how the guard before a shared one fares.
struct StoreMetrics {
    engine: Arc<Engine>,
}

impl Family for StoreMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let counters = self.engine.counters();
        if let Some(memory) = counters.memory() {
            memory_store(&memory.stats(), families)?;
        }
        if let Some(guard) = counters.guard() {
            guarded_store(&guard.stats(), families)?;
        }
        if let Some(leases) = counters.leases() {
            leased_store(&leases.stats(), families)?;
        }
        Ok(())
    }
}

fn memory_store(stats: &memory::Stats, families: &mut Families<'_>) -> fmt::Result {
    families.gauge("tidegate_store_entries", "Keys remembered", stats.entries)?;
    families.gauge("tidegate_store_bytes", "Bytes that counters take", stats.bytes)?;
    families.gauge("tidegate_store_max_bytes", "Most bytes that counters may take", stats.max_bytes)?;
    let help = "Bytes left of the reserve for logs and permits";
    families.gauge("tidegate_store_reserve_left_bytes", help, stats.reserve_left)?;
    let help = "Keys dropped because the store was full, although they had units in use";
    families.counter("tidegate_store_evicted", help, stats.evicted_live)?;
    let help = "Keys dropped because they had no units in use";
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
    let help = "How long the store's calls took, failures included";
    families.histograms("tidegate_store_call_duration_seconds", help, |series| {
        let seconds = |us| Duration::from_micros(us).as_secs_f64();
        let bounds = CALL_BOUNDS_US.map(seconds).into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(stats.calls.buckets).collect();
        series(&[], seconds(stats.calls.sum_us), &buckets)
    })?;
    let help = "Calls for keys that hold what the store cannot read";
    families.counter("tidegate_store_unreadable", help, stats.unreadable)?;
    let help = "Calls not made because too many were under way";
    families.counter("tidegate_store_saturated", help, stats.saturated)?;
    families.counters("tidegate_store_blind_answers", "Answers given without the store", |series| {
        series(&[("mode", "local")], stats.degraded_local)?;
        series(&[("mode", "open")], stats.degraded_open)?;
        series(&[("mode", "closed")], stats.degraded_closed)
    })?;
    families.counter("tidegate_store_blind_units", "Units admitted blindly", stats.blind_units)?;
    let help = "Units admitted blindly that the store had no room for afterwards";
    families.counter("tidegate_store_over_admitted_units", help, stats.over_admitted_units)?;
    let help = "Units admitted blindly that the store has charged afterwards";
    families.counter("tidegate_store_charged_afterwards_units", help, stats.charged_units)?;
    let help = "Units admitted blindly that could not be charged to the store afterwards";
    families.counter("tidegate_store_unsettled_units", help, stats.unsettled_units)
}

fn leased_store(stats: &LeaseStats, families: &mut Families<'_>) -> fmt::Result {
    let help = "Requests, by whether leases answered them or the store was asked";
    families.counters("tidegate_lease_requests", help, |series| {
        series(&[("answered_by", "lease")], stats.local)?;
        series(&[("answered_by", "store")], stats.remote)
    })?;
    families.counter("tidegate_lease_units_taken", "Units taken in leases", stats.taken)?;
    families.counter("tidegate_lease_units_returned", "Units returned on drain", stats.returned)
}
