//! The HTTP servers' numbers.
//!
//! A route appears once it has answered a request, so that an idle server's page stays short.

use std::fmt;
use std::sync::Arc;

use tidegate_net::stats::{DURATION_BOUNDS, RouteTotals, Stats, Totals};

use crate::{Families, Family};

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Every HTTP server of the process, by name.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    servers: Vec<(&'static str, Arc<Stats>)>,
}

impl Servers {
    /// Adds a server; its name becomes the label `server`.
    #[must_use]
    pub fn with(mut self, name: &'static str, stats: Arc<Stats>) -> Self {
        self.servers.push((name, stats));
        self
    }

    fn read(&self) -> Vec<Reading> {
        let read = |(name, stats): &(&'static str, Arc<Stats>)| Reading {
            server: name,
            totals: stats.totals(),
            routes: stats.routes().into_iter().filter(|route| total(route) > 0).collect(),
        };
        self.servers.iter().map(read).collect()
    }
}

struct Reading {
    server: &'static str,
    totals: Totals,
    routes: Vec<RouteTotals>,
}

fn total(route: &RouteTotals) -> u64 {
    route.by_class.iter().sum()
}

impl Family for Servers {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let servers = self.read();
        connections(families, &servers)?;
        requests(families, &servers)
    }
}

fn connections(families: &mut Families<'_>, servers: &[Reading]) -> fmt::Result {
    families.gauges("tidegate_connections_open", "Connections open", |series| {
        servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.open))
    })?;
    families.counters("tidegate_connections_accepted", "Connections accepted", |series| {
        servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.accepted))
    })?;
    families.counters(
        "tidegate_connections_cut",
        "Connections cut at a deadline, by its kind",
        |series| {
            servers.iter().try_for_each(|it| {
                series(&[("server", it.server), ("deadline", "header")], it.totals.cut_header)?;
                series(&[("server", it.server), ("deadline", "idle")], it.totals.cut_idle)?;
                series(&[("server", it.server), ("deadline", "write")], it.totals.cut_write)
            })
        },
    )?;
    families.counters(
        "tidegate_accept_pauses",
        "Times accepting paused at the connection limit",
        |series| servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.accept_paused)),
    )?;
    families.counters("tidegate_accept_errors", "Failures to accept, by cause", |series| {
        servers.iter().try_for_each(|it| {
            series(&[("server", it.server), ("cause", "resources")], it.totals.accept_exhausted)?;
            series(&[("server", it.server), ("cause", "other")], it.totals.accept_failed)
        })
    })
}

fn requests(families: &mut Families<'_>, servers: &[Reading]) -> fmt::Result {
    families.gauges("tidegate_http_requests_in_flight", "Requests being answered", |series| {
        servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.in_flight))
    })?;
    let help = "Requests whose client left before the answer";
    families.counters("tidegate_http_requests_abandoned", help, |series| {
        servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.abandoned))
    })?;
    families.counters("tidegate_http_requests", "Requests answered", |series| {
        each_route(servers, |server, route| {
            CLASSES.iter().zip(route.by_class).filter(|(_, count)| *count > 0).try_for_each(
                |(class, count)| {
                    series(&[("server", server), ("route", route.template), ("status", class)], count)
                },
            )
        })
    })?;
    let help = "Time from a request's head to its reply's";
    families.histograms("tidegate_http_request_duration_seconds", help, |series| {
        each_route(servers, |server, route| {
            let bounds = DURATION_BOUNDS.iter().map(|nanos| seconds(*nanos)).chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(route.buckets).collect();
            series(&[("server", server), ("route", route.template)], seconds(route.nanos), &buckets)
        })
    })
}

fn each_route(servers: &[Reading], mut write: impl FnMut(&str, &RouteTotals) -> fmt::Result) -> fmt::Result {
    servers.iter().try_for_each(|it| it.routes.iter().try_for_each(|route| write(it.server, route)))
}

/// Exact for the bounds, and for sums to within 1 part in 2^53.
fn seconds(nanos: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a metric's value is a double")]
    let nanos = nanos as f64;
    nanos / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;
    use std::time::Duration;
    use tidegate_net::stats::Route;

    #[test]
    fn the_page_has_the_servers_numbers() {
        let stats = Arc::new(Stats::new(2, &["other", "/v1/decisions"]));
        stats.core(0).answered(Route::new(1), 200, Duration::from_millis(2));
        stats.core(1).answered(Route::new(1), 429, Duration::from_micros(50));
        let mut metrics = Metrics::new();
        metrics.register(Servers::default().with("api", stats));
        let page = metrics.page();
        for line in [
            r#"tidegate_http_requests_total{server="api",route="/v1/decisions",status="2xx"} 1"#,
            r#"tidegate_http_requests_total{server="api",route="/v1/decisions",status="4xx"} 1"#,
            r#"tidegate_http_request_duration_seconds_sum{server="api",route="/v1/decisions"} 0.00205"#,
            r#"tidegate_http_request_duration_seconds_count{server="api",route="/v1/decisions"} 2"#,
            r#"tidegate_http_request_duration_seconds_bucket{le="0.0025",server="api",route="/v1/decisions"} 2"#,
            r#"tidegate_http_request_duration_seconds_bucket{le="+Inf",server="api",route="/v1/decisions"} 2"#,
            r#"tidegate_connections_open{server="api"} 0"#,
        ] {
            assert!(page.lines().any(|printed| printed == line), "{line}\nis not in\n{page}");
        }
        assert!(!page.contains("other\",status"), "a route that answered nothing is not shown");
    }
}
