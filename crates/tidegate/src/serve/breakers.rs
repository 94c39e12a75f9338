//! The breakers of this process: those of upstreams, and that of the counters' store.

use std::sync::Arc;

use tidegate_admin::api::{BreakerState, Breakers, Events};
use tidegate_algorithms::breaker::Phase;
use tidegate_limiter::engine::Engine;
use tidegate_net::drain::Drain;

use super::proxies::ServedGateway;

/// Whose breakers.
#[derive(Debug)]
struct ProcessBreakers {
    engine: Arc<Engine>,
    gateway: Arc<ServedGateway>,
}

/// Events of these breakers, until `drain` begins.
pub(super) fn events(engine: &Arc<Engine>, gateway: &Arc<ServedGateway>, drain: &Drain) -> Events {
    let breakers = ProcessBreakers { engine: engine.clone(), gateway: gateway.clone() };
    Events::new(Arc::new(breakers), drain.clone())
}

impl Breakers for ProcessBreakers {
    fn breakers(&self) -> Vec<BreakerState> {
        let upstreams = self.gateway.upstreams();
        let upstreams = upstreams.iter().filter_map(|upstream| {
            let state = word(upstream.breaker?);
            Some(BreakerState { of: "upstream", name: upstream.name.clone(), state })
        });
        let store = self.engine.counters().guard().map(|guard| {
            let state = if guard.stats().is_open { "open" } else { "closed" };
            BreakerState { of: "store", name: "counters".into(), state }
        });
        upstreams.chain(store).collect()
    }
}

/// The word for a breaker's phase, in events and metrics.
pub(super) fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Closed => "closed",
        Phase::Open => "open",
        Phase::HalfOpen => "half_open",
    }
}
