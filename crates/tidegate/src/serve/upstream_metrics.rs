//! Metrics of upstreams, their servers, and routes.

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{Families, Family};
use tidegate_algorithms::breaker::Phase;
use tidegate_algorithms::time::SECOND;
use tidegate_gateway::analytics::{Analytics, MAX_SERIES};
use tidegate_gateway::service::{
    Gateway, HedgeStats, MAX_COMPRESSED_AT_ONCE, MAX_MIRRORED_AT_ONCE, MirrorStats, UpstreamCertificate,
    UpstreamStatus,
};
use tidegate_gateway::shed::{MAX_HELD, Priority, SheddingStats};
use tidegate_net::clock::wall;

use super::breakers::word;

/// What is known of each upstream and server. Their names come from the configuration, which bounds them.
#[derive(Debug)]
pub(super) struct UpstreamMetrics(pub(super) Arc<Gateway>);

impl Family for UpstreamMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let upstreams = self.0.upstreams();
        let servers = || {
            upstreams.iter().flat_map(|upstream| {
                upstream.servers.iter().map(|(server, status)| (&*upstream.name, server.as_str(), status))
            })
        };
        mirrors(&self.0.mirrors(), families)?;
        hedges(&self.0.hedges(), families)?;
        self.0.analytics().map_or(Ok(()), |analytics| counted(analytics, families))?;
        if let Some(shedder) = self.0.shedder() {
            shedding(&shedder.stats(), families)?;
        }
        adaptive(&upstreams, families)?;
        certificates(&self.0.certificates(), families)?;
        let help = "Requests by how they would end under the candidate configuration: the same, or in which way differently; \
            it begins at 0 with each candidate";
        families.counters("tidegate_candidate_requests", help, |series| {
            let counts = self.0.candidate_counts();
            counts.iter().try_for_each(|(difference, count)| series(&[("difference", difference)], *count))
        })?;
        let compression = self.0.compression();
        let help = "Replies that were to be compressed: those without room passed as they were";
        families.counters("tidegate_gateway_compressed_replies", help, |series| {
            series(&[("result", "compressed")], compression.compressed)?;
            series(&[("result", "no_room")], compression.no_room)
        })?;
        let help = "Streamed replies that are being compressed";
        families.gauge("tidegate_gateway_compressing", help, compression.at_once as u64)?;
        let help = "Most streamed replies that may be compressed at once";
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
        let help = "Attempts at a server, by how they ended; repeat: it had closed a kept connection, and was sent the request again";
        families.counters("tidegate_upstream_attempts", help, |series| {
            servers().try_for_each(|(upstream, server, status)| {
                let labels = |result| [("upstream", upstream), ("server", server), ("result", result)];
                series(&labels("success"), status.successes)?;
                series(&labels("failure"), status.failures)?;
                series(&labels("repeat"), status.repeats)
            })
        })?;
        breakers(&upstreams, &self.0.route_breakers(), families)
    }
}

/// The certificates that servers are shown.
fn certificates(shown: &[UpstreamCertificate], families: &mut Families<'_>) -> fmt::Result {
    let help = "Seconds for which the certificate that the servers of an upstream are shown is still good; 0: it has ended";
    families.gauges("tidegate_upstream_certificate_seconds_left", help, |series| {
        let now = wall().0 / SECOND;
        shown.iter().try_for_each(|it| {
            let left = it.certificate.validity.not_after.saturating_sub(now);
            series(&[("upstream", &*it.upstream)], left)
        })
    })?;
    let help = "1 if the present content of the files of the certificate that servers are shown is in force, 0 if it was refused";
    families.gauges("tidegate_upstream_certificate_last_reload_successful", help, |series| {
        shown.iter().try_for_each(|it| series(&[("upstream", &*it.upstream)], u64::from(!it.is_refused)))
    })
}

/// The breakers of upstreams and of routes.
fn breakers(
    upstreams: &[UpstreamStatus],
    routes: &[(Arc<str>, Phase)],
    families: &mut Families<'_>,
) -> fmt::Result {
    const PHASES: [Phase; 3] = [Phase::Closed, Phase::Open, Phase::HalfOpen];
    let help = "1 for what an upstream's breaker is now";
    families.gauges("tidegate_upstream_breaker", help, |series| {
        upstreams.iter().filter_map(|upstream| Some((&upstream.name, upstream.breaker?))).try_for_each(
            |(upstream, phase)| {
                PHASES.into_iter().try_for_each(|state| {
                    series(&[("upstream", &**upstream), ("state", word(state))], u64::from(phase == state))
                })
            },
        )
    })?;
    let help = "1 for the present state of a route's breaker, of routes with a breaker";
    families.gauges("tidegate_route_breaker", help, |series| {
        routes.iter().try_for_each(|(route, phase)| {
            PHASES.into_iter().try_for_each(|state| {
                series(&[("route", &**route), ("state", word(state))], u64::from(*phase == state))
            })
        })
    })
}

/// What is counted of requests, and where that waits.
fn counted(analytics: &Analytics, families: &mut Families<'_>) -> fmt::Result {
    let stats = analytics.stats();
    let help = "Combinations of route, key, server and status in the last minute that has requests";
    families.gauge("tidegate_analytics_series", help, stats.series as u64)?;
    let help = "Most combinations that are counted apart";
    families.gauge("tidegate_analytics_series_max", help, MAX_SERIES as u64)?;
    let help = "Requests that are counted as others, since there was no room to count them apart";
    families.counter("tidegate_analytics_others", help, stats.others)?;
    let help = "Requests that are counted and not stored yet";
    families.gauge("tidegate_analytics_waiting_requests", help, stats.waiting)?;
    let help = "Requests whose counts were dropped, since the store was away for too long";
    families.counter("tidegate_analytics_lost_requests", help, stats.lost)
}

/// What is refused because this process cannot keep up.
fn shedding(stats: &SheddingStats, families: &mut Families<'_>) -> fmt::Result {
    let help = "Requests refused because this process could not keep up, by the priority of their route";
    families.counters("tidegate_gateway_shed_requests", help, |series| {
        Priority::ALL.into_iter().try_for_each(|priority| {
            series(&[("priority", priority.word())], stats.refused[priority as usize])
        })
    })?;
    let help = "How many of a hundred requests of a priority are refused now, by the core that refuses most";
    families.gauges("tidegate_gateway_shed_percent", help, |series| {
        Priority::ALL.into_iter().try_for_each(|priority| {
            let percent = (priority.refused(stats.level) * 100.0).round();
            series(&[("priority", priority.word())], percent as u64)
        })
    })?;
    let help = "How late the latest core begins work that is ready, at least, in its last tenth of a second";
    families.gauge("tidegate_gateway_core_delay_microseconds", help, stats.delay / 1_000)?;
    let help = "Refusals of requests that were shed, held back before they are sent";
    families.gauge("tidegate_gateway_held_refusals", help, stats.held as u64)?;
    let help = "Most refusals that are held back; further ones are sent at once";
    families.gauge("tidegate_gateway_held_refusals_max", help, MAX_HELD as u64)
}

/// The limits that are found by how long replies take.
fn adaptive(upstreams: &[UpstreamStatus], families: &mut Families<'_>) -> fmt::Result {
    let limits = || upstreams.iter().filter_map(|it| Some((&*it.name, it.adaptive?)));
    let help = "Requests that may wait for an upstream's servers at once, by its adaptive limit";
    families.gauges("tidegate_upstream_adaptive_limit", help, |series| {
        limits().try_for_each(|(name, it)| series(&[("upstream", name)], u64::from(it.limit)))
    })?;
    let help = "Requests that wait for an upstream's servers under its adaptive limit";
    families.gauges("tidegate_upstream_adaptive_requests", help, |series| {
        limits().try_for_each(|(name, it)| series(&[("upstream", name)], u64::from(it.under_way)))
    })?;
    let help = "Microseconds that a reply of an upstream takes without a queue; 0: not known yet";
    families.gauges("tidegate_upstream_adaptive_base_microseconds", help, |series| {
        limits().try_for_each(|(name, it)| series(&[("upstream", name)], it.base / 1_000))
    })?;
    let help = "Requests that an upstream's adaptive limit had no room for";
    families.counters("tidegate_upstream_adaptive_refused", help, |series| {
        limits().try_for_each(|(name, it)| series(&[("upstream", name)], it.refused))
    })?;
    let help =
        "Requests that an upstream's adaptive limit in shadow had no room for, and let in all the same";
    families.counters("tidegate_upstream_adaptive_shadow_refused", help, |series| {
        limits().try_for_each(|(name, it)| series(&[("upstream", name)], it.shadow_refused))
    })
}

/// What became of second attempts, by the routes that have them.
fn hedges(hedges: &[HedgeStats], families: &mut Families<'_>) -> fmt::Result {
    let help = "Requests that were late at their first server: the second server's reply won, it lost, or there was no second attempt";
    families.counters("tidegate_hedged_requests", help, |series| {
        hedges.iter().try_for_each(|it| {
            let labels = |result| [("route", &*it.route), ("result", result)];
            series(&labels("won"), it.won)?;
            series(&labels("lost"), it.lost)?;
            series(&labels("refused"), it.refused)
        })
    })?;
    let help = "Microseconds after which a second server is asked; 0: not known yet";
    families.gauges("tidegate_hedge_after_microseconds", help, |series| {
        hedges.iter().try_for_each(|it| series(&[("route", &*it.route)], it.after))
    })
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
    families.gauge(
        "tidegate_mirror_in_flight_max",
        "Most copies under way for a route",
        MAX_MIRRORED_AT_ONCE as u64,
    )
}
