//! Metrics of what each route's requests and each server of an upstream do: how many, how long, how many bytes.
//!
//! Bounds: [`tidegate_gateway::flow::MAX_APART`] routes and as many servers are counted apart, and all others together, so that the
//! page keeps its size (fault 53). Names come from the configuration, never from clients.

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{Families, Family};
use tidegate_gateway::flow::{FlowTotals, RouteFlow, ServerFlow, TIME_BOUNDS};
use tidegate_gateway::service::Gateway;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What is counted of routes and servers. It is to be the last one of its page: where that is full, nothing else is cut.
#[derive(Debug)]
pub(super) struct FlowMetrics(pub(super) Arc<Gateway>);

impl Family for FlowMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let routes = self.0.route_flows();
        of_routes(&routes.iter().map(labelled_route).collect::<Vec<_>>(), families)?;
        let servers = self.0.server_flows();
        of_servers(&servers.iter().map(labelled_server).collect::<Vec<_>>(), families)
    }
}

/// Labels of a route or a server, and what was counted of it.
type Labelled<'a, const N: usize> = ([(&'a str, &'a str); N], FlowTotals);

fn labelled_route(flow: &RouteFlow) -> Labelled<'_, 1> {
    ([("route", &*flow.route)], flow.totals)
}

fn labelled_server(flow: &ServerFlow) -> Labelled<'_, 2> {
    ([("upstream", &*flow.upstream), ("server", flow.server.as_str())], flow.totals)
}

fn of_routes(routes: &[Labelled<'_, 1>], families: &mut Families<'_>) -> fmt::Result {
    let help = "Requests of a route by the class of the status that they were answered with";
    families.counters("tidegate_route_requests", help, |series| {
        routes.iter().try_for_each(|([route], totals)| {
            by_class(totals, |status, count| series(&[*route, ("status", status)], count))
        })
    })?;
    let help = "Time from the head of a route's request to the head of its reply";
    families.histograms("tidegate_route_request_duration_seconds", help, |series| {
        routes.iter().try_for_each(|(route, totals)| series(route, seconds(totals.nanos), &buckets(totals)))
    })?;
    let help = "Bytes of a route's bodies that clients sent, and that servers did";
    families.counters("tidegate_route_body_bytes", help, |series| {
        routes.iter().try_for_each(|([route], totals)| {
            series(&[*route, ("of", "request")], totals.request_bytes)?;
            series(&[*route, ("of", "reply")], totals.reply_bytes)
        })
    })?;
    let help = "Requests of a route whose limits were asked";
    families.counters("tidegate_route_limited_requests", help, |series| {
        routes.iter().try_for_each(|(route, totals)| series(route, totals.limited))
    })?;
    let help = "Requests of a route that a used-up limit denied";
    families.counters("tidegate_route_denied_requests", help, |series| {
        routes.iter().try_for_each(|(route, totals)| series(route, totals.denied))
    })?;
    let help = "Microseconds in which a route's requests waited for what their limits say";
    families.counters("tidegate_route_limit_microseconds", help, |series| {
        routes.iter().try_for_each(|(route, totals)| series(route, totals.limit_nanos / 1_000))
    })
}

fn of_servers(servers: &[Labelled<'_, 2>], families: &mut Families<'_>) -> fmt::Result {
    let help = "Replies of a server by the class of their status";
    families.counters("tidegate_upstream_replies", help, |series| {
        servers.iter().try_for_each(|([upstream, server], totals)| {
            by_class(totals, |status, count| series(&[*upstream, *server, ("status", status)], count))
        })
    })?;
    let help = "Time to the head of a server's reply, without what its client took to send the request";
    families.histograms("tidegate_upstream_reply_duration_seconds", help, |series| {
        servers
            .iter()
            .try_for_each(|(server, totals)| series(server, seconds(totals.nanos), &buckets(totals)))
    })?;
    let help = "Bytes of bodies that a server was sent, and that it sent";
    families.counters("tidegate_upstream_body_bytes", help, |series| {
        servers.iter().try_for_each(|([upstream, server], totals)| {
            series(&[*upstream, *server, ("of", "request")], totals.request_bytes)?;
            series(&[*upstream, *server, ("of", "reply")], totals.reply_bytes)
        })
    })?;
    let help = "Connections that requests to a server went on: opened for one, or reused";
    families.counters("tidegate_upstream_connections", help, |series| {
        servers.iter().try_for_each(|([upstream, server], totals)| {
            series(&[*upstream, *server, ("how", "opened")], totals.opened)?;
            series(&[*upstream, *server, ("how", "reused")], totals.reused)
        })
    })
}

/// Gives `write` each class of status that was there.
fn by_class(totals: &FlowTotals, mut write: impl FnMut(&str, u64) -> fmt::Result) -> fmt::Result {
    let mut classes = CLASSES.into_iter().zip(totals.by_class).filter(|(_, count)| *count > 0);
    classes.try_for_each(|(class, count)| write(class, count))
}

fn buckets(totals: &FlowTotals) -> Vec<(f64, u64)> {
    let bounds = TIME_BOUNDS.iter().map(|nanos| seconds(*nanos)).chain([f64::INFINITY]);
    bounds.zip(totals.buckets).collect()
}

/// Exact for the bounds, and for sums to within 1 part in 2^53.
fn seconds(nanos: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a metric's value is a double")]
    let nanos = nanos as f64;
    nanos / 1e9
}
