//! The servers' numbers, whatever they speak.
//!
//! Connections are the same for all and told apart by the label `server`. Requests of HTTP and gRPC have
//! a route and a status; commands of RESP a name and an outcome, in families of their own, because a sum
//! over both would mean nothing. A route or command appears once it has been answered, so that an idle
//! server's page stays short.

use std::fmt;
use std::sync::Arc;

use tidegate_net::stats::{DURATION_BOUNDS, HandshakeFailure, RouteTotals, Stats, Totals};

use crate::{Families, Family};

/// The names by which a protocol's answers are told.
struct ProtocolWords {
    in_flight: &'static str,
    abandoned: &'static str,
    answered: &'static str,
    duration: &'static str,
    /// What [`RouteTotals::template`] is.
    what: &'static str,
    /// What a class is, and the classes' names.
    how: &'static str,
    classes: [&'static str; 5],
}

/// HTTP's, and gRPC's, which stands on it.
static HTTP: ProtocolWords = ProtocolWords {
    in_flight: "tidegate_http_requests_in_flight",
    abandoned: "tidegate_http_requests_abandoned",
    answered: "tidegate_http_requests",
    duration: "tidegate_http_request_duration_seconds",
    what: "route",
    how: "status",
    classes: ["1xx", "2xx", "3xx", "4xx", "5xx"],
};

/// RESP's: a command is answered, refused as wrong, or failed for want of its store.
static RESP: ProtocolWords = ProtocolWords {
    in_flight: "tidegate_resp_commands_in_flight",
    abandoned: "tidegate_resp_commands_abandoned",
    answered: "tidegate_resp_commands",
    duration: "tidegate_resp_command_duration_seconds",
    what: "command",
    how: "outcome",
    classes: ["other", "answered", "other", "refused", "failed"],
};

/// Every server of the process, by name.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    http: Vec<(&'static str, Arc<Stats>)>,
    resp: Vec<(&'static str, Arc<Stats>)>,
    streams: Vec<(&'static str, Arc<Stats>)>,
    /// Those that have no listener yet, or had none when the process started.
    absent: Vec<&'static str>,
}

impl Servers {
    /// Adds a server of HTTP or gRPC; its name becomes the label `server`.
    #[must_use]
    pub fn with(mut self, name: &'static str, stats: Arc<Stats>) -> Self {
        self.http.push((name, stats));
        self
    }

    /// Adds a server of RESP.
    #[must_use]
    pub fn with_resp(mut self, name: &'static str, stats: Arc<Stats>) -> Self {
        self.resp.push((name, stats));
        self
    }

    /// Adds a server that has connections and no requests.
    #[must_use]
    pub fn with_streams(mut self, name: &'static str, stats: Arc<Stats>) -> Self {
        self.streams.push((name, stats));
        self
    }

    /// Leaves the server of this name out until it has had a connection: it may never have a listener.
    #[must_use]
    pub fn once_used(mut self, name: &'static str) -> Self {
        self.absent.push(name);
        self
    }

    /// Whether the server of this name has had a connection, or has had a listener from the start.
    fn is_there(&self, name: &str, stats: &Stats) -> bool {
        !self.absent.contains(&name) || stats.totals().accepted > 0
    }

    /// What the server of this name has answered so far; `None` if there is none that answers anything.
    #[must_use]
    pub fn answered(&self, name: &str) -> Option<u64> {
        let is_it =
            |(known, stats): &&(&'static str, Arc<Stats>)| *known == name && self.is_there(name, stats);
        let (_, stats) = self.http.iter().chain(&self.resp).find(is_it)?;
        Some(stats.routes().iter().map(total).sum())
    }

    fn read(&self, servers: &[(&'static str, Arc<Stats>)]) -> Vec<ServerReading> {
        let read = |(name, stats): &(&'static str, Arc<Stats>)| ServerReading {
            server: name,
            totals: stats.totals(),
            routes: stats.routes().into_iter().filter(|route| total(route) > 0).collect(),
        };
        servers.iter().filter(|(name, stats)| self.is_there(name, stats)).map(read).collect()
    }
}

struct ServerReading {
    server: &'static str,
    totals: Totals,
    routes: Vec<RouteTotals>,
}

fn total(route: &RouteTotals) -> u64 {
    route.by_class.iter().sum()
}

impl Family for Servers {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let (http, resp, streams) = (self.read(&self.http), self.read(&self.resp), self.read(&self.streams));
        connections(families, &[&http, &resp, &streams])?;
        handshakes(families, &[&http, &resp, &streams])?;
        answers(families, &HTTP, &http)?;
        answers(families, &RESP, &resp)
    }
}

fn connections(families: &mut Families<'_>, servers: &[&[ServerReading]]) -> fmt::Result {
    families.gauges("tidegate_connections_open", "Connections open", |series| {
        servers.iter().copied().flatten().try_for_each(|it| series(&[("server", it.server)], it.totals.open))
    })?;
    families.counters("tidegate_connections_accepted", "Connections accepted", |series| {
        servers
            .iter()
            .copied()
            .flatten()
            .try_for_each(|it| series(&[("server", it.server)], it.totals.accepted))
    })?;
    families.counters(
        "tidegate_connections_cut",
        "Connections, and requests of HTTP/2, cut at a deadline, by its kind",
        |series| {
            servers.iter().copied().flatten().try_for_each(|it| {
                series(&[("server", it.server), ("deadline", "header")], it.totals.cut_header)?;
                series(&[("server", it.server), ("deadline", "idle")], it.totals.cut_idle)?;
                series(&[("server", it.server), ("deadline", "write")], it.totals.cut_write)
            })
        },
    )?;
    families.counters(
        "tidegate_connections_unproxied",
        "Connections closed because they had no PROXY header of a listed proxy",
        |series| {
            servers
                .iter()
                .copied()
                .flatten()
                .try_for_each(|it| series(&[("server", it.server)], it.totals.unproxied))
        },
    )?;
    families.counters(
        "tidegate_accept_pauses",
        "Times accepting paused at the connection limit",
        |series| {
            servers
                .iter()
                .copied()
                .flatten()
                .try_for_each(|it| series(&[("server", it.server)], it.totals.accept_paused))
        },
    )?;
    let help = "Connections accepted over the limit, for the operator's pages";
    families.counters("tidegate_connections_for_operation", help, |series| {
        let mut some = servers.iter().copied().flatten().filter(|it| it.totals.accepted_for_operation > 0);
        some.try_for_each(|it| series(&[("server", it.server)], it.totals.accepted_for_operation))
    })?;
    families.counters("tidegate_accept_errors", "Failures to accept, by cause", |series| {
        servers.iter().copied().flatten().try_for_each(|it| {
            series(&[("server", it.server), ("cause", "resources")], it.totals.accept_exhausted)?;
            series(&[("server", it.server), ("cause", "other")], it.totals.accept_failed)
        })
    })
}

/// A server appears once somebody has tried to shake hands with it.
fn handshakes(families: &mut Families<'_>, servers: &[&[ServerReading]]) -> fmt::Result {
    let servers = || servers.iter().flat_map(|servers| servers.iter());
    families.counters("tidegate_tls_handshakes", "TLS handshakes that succeeded", |series| {
        let mut some = servers().filter(|it| it.totals.handshakes > 0);
        some.try_for_each(|it| series(&[("server", it.server)], it.totals.handshakes))
    })?;
    let help = "TLS handshakes that failed, by reason";
    families.counters("tidegate_tls_handshake_failures", help, |series| {
        servers().try_for_each(|it| {
            for reason in HandshakeFailure::ALL {
                let count = it.totals.handshakes_failed[reason as usize];
                if count > 0 {
                    series(&[("server", it.server), ("reason", reason.name())], count)?;
                }
            }
            Ok(())
        })
    })
}

fn answers(families: &mut Families<'_>, words: &ProtocolWords, servers: &[ServerReading]) -> fmt::Result {
    if servers.is_empty() {
        return Ok(());
    }
    families.gauges(words.in_flight, "Requests or commands that are being answered", |series| {
        servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.in_flight))
    })?;
    families.counters(words.abandoned, "Not answered because the client had left", |series| {
        servers.iter().try_for_each(|it| series(&[("server", it.server)], it.totals.abandoned))
    })?;
    families.counters(words.answered, "Requests or commands that were answered", |series| {
        each_route(servers, |server, route| {
            words.classes.iter().zip(route.by_class).filter(|(_, count)| *count > 0).try_for_each(
                |(class, count)| {
                    series(&[("server", server), (words.what, &route.template), (words.how, class)], count)
                },
            )
        })
    })?;
    let help = "Time from the head of what was asked, or from a pipeline's arrival, to the answer";
    families.histograms(words.duration, help, |series| {
        each_route(servers, |server, route| {
            let bounds = DURATION_BOUNDS.iter().map(|nanos| seconds(*nanos)).chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(route.buckets).collect();
            series(&[("server", server), (words.what, &route.template)], seconds(route.nanos), &buckets)
        })
    })
}

fn each_route(
    servers: &[ServerReading],
    mut write: impl FnMut(&str, &RouteTotals) -> fmt::Result,
) -> fmt::Result {
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
    use crate::exposition::Exposition;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;
    use tidegate_net::stats::Route;

    #[test]
    fn the_page_has_the_servers_numbers() {
        let stats = Arc::new(Stats::new(2, &["other", "/v1/decisions"]));
        stats.core(0).requests.answered(Route::new(1), 200, Duration::from_millis(2));
        stats.core(1).requests.answered(Route::new(1), 429, Duration::from_micros(50));
        let mut metrics = Metrics::new();
        metrics.register(Servers::default().with("api", stats));
        let page = metrics.page(Exposition::OpenMetrics);
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

    #[test]
    fn a_server_that_may_never_have_a_listener_is_shown_once_it_had_a_connection() {
        let stats = Arc::new(Stats::new(1, &["other"]));
        let servers = Servers::default().with("grpc", Arc::clone(&stats)).once_used("grpc");
        let mut metrics = Metrics::new();
        metrics.register(servers.clone());
        assert!(!metrics.page(Exposition::OpenMetrics).contains("server=\"grpc\""));
        assert_eq!(servers.answered("grpc"), None);
        stats.core(0).connections.accepted.fetch_add(1, Relaxed);
        let page = metrics.page(Exposition::OpenMetrics);
        assert!(page.contains("tidegate_connections_accepted_total{server=\"grpc\"} 1\n"), "{page}");
        assert_eq!(servers.answered("grpc"), Some(0));
    }
}
