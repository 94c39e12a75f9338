//! What the metrics page says of upstreams and their servers.

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{Families, Family};
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::analytics::MAX_SERIES;
use tidegate_gateway::limits::Limits;
use tidegate_gateway::service::{Gateway, MAX_COMPRESSED_AT_ONCE, MAX_MIRRORED_AT_ONCE, MirrorStats};

use super::breakers::word;

/// What is known of each upstream and server. Their names come from the configuration, which bounds them.
#[derive(Debug)]
pub(super) struct UpstreamMetrics<L>(pub(super) Arc<Gateway<L>>);

impl<L: Limits> Family for UpstreamMetrics<L> {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let upstreams = self.0.upstreams();
        let servers = || {
            upstreams.iter().flat_map(|upstream| {
                upstream.servers.iter().map(|(server, status)| (&*upstream.name, server.as_str(), status))
            })
        };
        mirrors(&self.0.mirrors(), families)?;
        if let Some(analytics) = self.0.analytics() {
            let stats = analytics.stats();
            let help = "Combinations of route, key, server and status in the minute under way";
            families.gauge("tidegate_analytics_series", help, stats.series as u64)?;
            let help = "Most of these";
            families.gauge("tidegate_analytics_series_max", help, MAX_SERIES as u64)?;
            let help = "Requests that there was no room to tell apart: they are counted as others";
            families.counter("tidegate_analytics_others", help, stats.others)?;
        }
        let compression = self.0.compression();
        let help = "Replies that were to be compressed: those without room passed as they were";
        families.counters("tidegate_gateway_compressed_replies", help, |series| {
            series(&[("result", "compressed")], compression.compressed)?;
            series(&[("result", "no_room")], compression.no_room)
        })?;
        let help = "Streamed replies that are being compressed";
        families.gauge("tidegate_gateway_compressing", help, compression.at_once as u64)?;
        let help = "Most of these";
        families.gauge("tidegate_gateway_compressing_max", help, MAX_COMPRESSED_AT_ONCE as u64)?;
        let help = "1 while health checks let a server be used";
        families.gauges("tidegate_upstream_server_up", help, |series| {
            servers().try_for_each(|(upstream, server, status)| {
                series(&[("upstream", upstream), ("server", server)], u64::from(status.is_up))
            })
        })?;
        let help = "1 while failed requests have taken a server out";
        families.gauges("tidegate_upstream_server_ejected", help, |series| {
            servers().try_for_each(|(upstream, server, status)| {
                series(&[("upstream", upstream), ("server", server)], u64::from(status.is_ejected))
            })
        })?;
        let help = "Requests that a server carries";
        families.gauges("tidegate_upstream_requests_in_flight", help, |series| {
            servers().try_for_each(|(upstream, server, status)| {
                series(&[("upstream", upstream), ("server", server)], u64::from(status.in_flight))
            })
        })?;
        let help = "Attempts at a server, by how they ended";
        families.counters("tidegate_upstream_attempts", help, |series| {
            servers().try_for_each(|(upstream, server, status)| {
                let labels = |result| [("upstream", upstream), ("server", server), ("result", result)];
                series(&labels("success"), status.successes)?;
                series(&labels("failure"), status.failures)
            })
        })?;
        let help = "1 for what an upstream's breaker is now";
        families.gauges("tidegate_upstream_breaker", help, |series| {
            const PHASES: [Phase; 3] = [Phase::Closed, Phase::Open, Phase::HalfOpen];
            upstreams.iter().try_for_each(|upstream| {
                let Some(phase) = upstream.breaker else { return Ok(()) };
                PHASES.into_iter().try_for_each(|state| {
                    let labels = [("upstream", &*upstream.name), ("state", word(state))];
                    series(&labels, u64::from(phase == state))
                })
            })
        })
    }
}

/// What became of copies of requests, by the routes that have copies.
fn mirrors(mirrors: &[MirrorStats], families: &mut Families<'_>) -> fmt::Result {
    let help = "Copies of requests for a second upstream, by what came of them: same_status and other_status are \
        answered, with the first upstream's status or another";
    families.counters("tidegate_mirror_requests", help, |series| {
        mirrors.iter().try_for_each(|it| {
            let labels = |result| [("route", &*it.route), ("result", result)];
            series(&labels("same_status"), it.same_status)?;
            series(&labels("other_status"), it.other_status)?;
            series(&labels("failed"), it.failed)?;
            series(&labels("dropped"), it.dropped)?;
            series(&labels("skipped"), it.skipped)
        })
    })?;
    let help = "Microseconds up to the heads of replies, of requests that both upstreams have answered";
    families.counters("tidegate_mirror_microseconds", help, |series| {
        mirrors.iter().try_for_each(|it| {
            series(&[("route", &*it.route), ("upstream", "first")], it.first_took)?;
            series(&[("route", &*it.route), ("upstream", "second")], it.second_took)
        })
    })?;
    families.gauges("tidegate_mirror_in_flight", "Copies under way", |series| {
        mirrors.iter().try_for_each(|it| series(&[("route", &*it.route)], it.at_once as u64))
    })?;
    families.gauge("tidegate_mirror_in_flight_max", "Most of these for a route", MAX_MIRRORED_AT_ONCE as u64)
}
