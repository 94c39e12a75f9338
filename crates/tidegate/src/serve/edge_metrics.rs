//! Metrics of the edge: of listeners, backends and their regions, never of clients.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_admin::{Families, Family};
use tidegate_edge::service::BackendReport;
use tidegate_edge::stats::Refusal;

use super::edges::ServedEdge;

/// What is known of the edge's listeners and backends. Their names come from the configuration and from
/// registrations, which are bounded.
#[derive(Debug)]
pub(super) struct EdgeMetrics(pub(super) Arc<ServedEdge>);

impl Family for EdgeMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.0.listeners().is_empty() {
            return Ok(());
        }
        self.listeners(families)?;
        self.names(families)?;
        let reports = self.0.edge.backends();
        states(families, &reports)?;
        counts(families, &reports)
    }
}

impl EdgeMetrics {
    fn names(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(server) = self.0.names() else { return Ok(()) };
        let stats = server.stats();
        let help = "Questions about names, by what became of them";
        families.counters("tidegate_edge_names", help, |series| {
            series(&[("result", "answered")], stats.answered.load(Relaxed))?;
            series(&[("result", "unlisted")], stats.unlisted.load(Relaxed))?;
            series(&[("result", "malformed")], stats.malformed.load(Relaxed))
        })
    }

    fn listeners(&self, families: &mut Families<'_>) -> fmt::Result {
        let listeners = self.0.listeners();
        families.gauges("tidegate_edge_open", "Connections that have a backend", |series| {
            listeners
                .iter()
                .try_for_each(|it| series(&[("listener", it.label())], it.stats().open.load(Relaxed)))
        })?;
        families.counters("tidegate_edge_placed", "Connections that got a backend", |series| {
            listeners.iter().try_for_each(|it| {
                let (placed, affine) = (it.stats().placed.load(Relaxed), it.stats().affine.load(Relaxed));
                let labels = |by| [("listener", it.label()), ("by", by)];
                series(&labels("score"), placed.saturating_sub(affine))?;
                series(&labels("affinity"), affine)
            })
        })?;
        families.counters(
            "tidegate_edge_refused",
            "Connections that got no backend, by reason",
            |series| {
                listeners.iter().try_for_each(|it| {
                    Refusal::ALL.iter().zip(&it.stats().refused).try_for_each(|(reason, count)| {
                        series(&[("listener", it.label()), ("reason", reason.word())], count.load(Relaxed))
                    })
                })
            },
        )?;
        let help = "Times that a connection waited for its limits of bytes";
        families.counters("tidegate_edge_byte_waits", help, |series| {
            listeners
                .iter()
                .try_for_each(|it| series(&[("listener", it.label())], it.stats().waits.load(Relaxed)))
        })?;
        let help = "Attempts at backends that failed; a connection tries up to eight backends";
        families.counters("tidegate_edge_failed_attempts", help, |series| {
            listeners
                .iter()
                .try_for_each(|it| series(&[("listener", it.label())], it.stats().retries.load(Relaxed)))
        })?;
        families.counters("tidegate_edge_bytes", "Bytes that were passed on", |series| {
            listeners.iter().try_for_each(|it| {
                let (up, down) = it.stats().traffic.read();
                series(&[("listener", it.label()), ("direction", "to_backend")], up)?;
                series(&[("listener", it.label()), ("direction", "to_client")], down)
            })
        })?;
        families.gauges(
            "tidegate_edge_affinity_clients",
            "Clients whose backend is remembered",
            |series| {
                listeners
                    .iter()
                    .try_for_each(|it| series(&[("listener", it.label())], it.affinity_stats().clients))
            },
        )?;
        let help = "Clients that were forgotten before their time because the table was full";
        families.counters("tidegate_edge_affinity_dropped", help, |series| {
            listeners
                .iter()
                .try_for_each(|it| series(&[("listener", it.label())], it.affinity_stats().dropped))
        })
    }
}

fn labels(report: &BackendReport) -> [(&str, &str); 3] {
    [("app", &report.app), ("region", &report.region), ("backend", &report.name)]
}

fn states(families: &mut Families<'_>, reports: &[BackendReport]) -> fmt::Result {
    families.gauges("tidegate_edge_backend_up", "1 while checks let a backend be used", |series| {
        reports.iter().try_for_each(|it| series(&labels(it), u64::from(it.is_up)))
    })?;
    let help = "1 while failed connections have taken a backend out";
    families.gauges("tidegate_edge_backend_ejected", help, |series| {
        reports.iter().try_for_each(|it| series(&labels(it), u64::from(it.is_ejected)))
    })?;
    families.gauges("tidegate_edge_backend_open", "Connections at a backend", |series| {
        reports.iter().try_for_each(|it| series(&labels(it), u64::from(it.open)))
    })
}

fn counts(families: &mut Families<'_>, reports: &[BackendReport]) -> fmt::Result {
    let help = "Attempts to connect to a backend, by how they ended";
    families.counters("tidegate_edge_backend_connects", help, |series| {
        reports.iter().try_for_each(|it| {
            let [app, region, backend] = labels(it);
            series(&[app, region, backend, ("result", "success")], it.connections)?;
            series(&[app, region, backend, ("result", "failure")], it.failures)
        })
    })?;
    let help = "Milliseconds that connecting to a backend took, all together";
    families.counters("tidegate_edge_backend_connect_milliseconds", help, |series| {
        reports.iter().try_for_each(|it| series(&labels(it), (it.connect_seconds * 1e3) as u64))
    })?;
    let help = "Connections that ended because of their backend, by cause";
    families.counters("tidegate_edge_backend_lost", help, |series| {
        reports.iter().try_for_each(|it| {
            let [app, region, backend] = labels(it);
            series(&[app, region, backend, ("cause", "broken")], it.broken)?;
            series(&[app, region, backend, ("cause", "down")], it.closed_unhealthy)
        })
    })?;
    families.counters("tidegate_edge_backend_bytes", "Bytes that were passed on", |series| {
        reports.iter().try_for_each(|it| {
            let [app, region, backend] = labels(it);
            series(&[app, region, backend, ("direction", "to_backend")], it.bytes.0)?;
            series(&[app, region, backend, ("direction", "to_client")], it.bytes.1)
        })
    })
}
