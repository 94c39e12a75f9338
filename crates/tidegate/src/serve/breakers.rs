//! The breakers of this process: those of upstreams and of routes, and that of the counters' store.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_admin::api::{BreakerState, Breakers, Events, JudgedBreakers};
use tidegate_algorithms::breaker::{Phase, Window};
use tidegate_algorithms::time::SECOND;
use tidegate_gateway::service::{BreakerOf, BreakerStatus, Gateway};
use tidegate_limiter::engine::Engine;
use tidegate_net::drain::Drain;

const MILLISECOND: u64 = 1_000_000;

/// Whose breakers.
#[derive(Debug)]
struct ProcessBreakers {
    engine: Arc<Engine>,
    gateway: Arc<Gateway>,
}

/// Events of these breakers, until `drain` begins.
pub(super) fn events(engine: &Arc<Engine>, gateway: &Arc<Gateway>, drain: &Drain) -> Events {
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
        let routes = self.gateway.route_breakers().into_iter();
        let routes = routes.map(|(name, phase)| BreakerState { of: "route", name, state: word(phase) });
        let store = self.engine.counters().guard().map(|guard| {
            let state = if guard.stats().is_open { "open" } else { "closed" };
            BreakerState { of: "store", name: "counters".into(), state }
        });
        upstreams.chain(routes).chain(store).collect()
    }
}

/// The gateway's, with what they judge by.
#[derive(Debug)]
pub(super) struct GatewayBreakers(pub(super) Arc<Gateway>);

impl JudgedBreakers for GatewayBreakers {
    fn judged(&self) -> Value {
        json!({ "breakers": self.0.breakers().iter().map(shown).collect::<Vec<_>>() })
    }
}

fn shown(BreakerStatus { of, name, judged }: &BreakerStatus) -> Value {
    let rule = &judged.settings;
    let mut shown = json!({
        "of": match of {
            BreakerOf::Upstream => "upstream",
            BreakerOf::Route => "route",
        },
        "name": name,
        "state": word(judged.phase),
        "calls": judged.calls,
        "failed": judged.failed,
        "slow": judged.slow,
        "retry_ms": judged.wait.div_ceil(MILLISECOND),
        "minimum_calls": rule.minimum_calls,
        "failure_percent": rule.failure_percent,
        "slow_percent": rule.slow_percent,
        "slow_ms": rule.slow_after / MILLISECOND,
        "first_open_seconds": rule.first_pause as f64 / SECOND as f64,
        "open_seconds": rule.pause as f64 / SECOND as f64,
        "trials": rule.trials,
    });
    if let Some(pause) = judged.pause {
        shown["pause_seconds"] = (pause as f64 / SECOND as f64).into();
    }
    match rule.window {
        Window::Calls(calls) => shown["window_calls"] = calls.into(),
        Window::Span(nanos) => shown["window_seconds"] = (nanos as f64 / SECOND as f64).into(),
    }
    shown
}

/// The word for a breaker's phase, in events and metrics.
pub(super) fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Closed => "closed",
        Phase::Open => "open",
        Phase::HalfOpen => "half_open",
    }
}
