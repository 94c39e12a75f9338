//! What the metrics page says of upstreams and their servers.

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{Families, Family};
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::limits::Limits;
use tidegate_gateway::service::Gateway;

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
