//! The forwards that run, and how others take their place while the process serves.
//!
//! ```text
//!   configured ── gone, or another under its name? ── its tasks end: the last place is committed ──┐
//!                 as it was: goes on                                                               v
//!                 new ───────────────────────────────────────────────> tasks begin at the place of its name
//! ```
//!
//! One task does this, one change after the other, so two forwards of a name are never under way together and no line is
//! passed over. A batch that was under way when its forward ended is sent again by what follows under the name.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_log::Log;
use tidegate_net::drain::Stage;
use tidegate_net::runtime::Cores;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::partition::{ForwardEnd, Forwarder};
use super::{ForwardConfig, ForwardState, Topics};
use crate::intake::Intake;

/// The forwards of an intake.
#[derive(Debug)]
pub struct Forwards {
    wanted: watch::Sender<Arc<[ForwardConfig]>>,
    states: Mutex<Vec<Arc<ForwardState>>>,
    log: Arc<Log>,
}

/// A forward whose tasks run.
struct RunningForward {
    config: ForwardConfig,
    /// Closed when all of its tasks have ended.
    stop: watch::Sender<bool>,
}

impl Forwards {
    /// Forwards with distinct names, which [`start`] begins.
    #[must_use]
    pub fn new(configs: Vec<ForwardConfig>, log: &Arc<Log>) -> Self {
        let states = configs.iter().map(|config| Arc::new(ForwardState::new(config, log))).collect();
        let wanted = watch::Sender::new(configs.into());
        Self { wanted, states: Mutex::new(states), log: Arc::clone(log) }
    }

    /// Has others run in their place from now on; whether any differs.
    pub fn replace(&self, configs: Vec<ForwardConfig>) -> bool {
        self.wanted.send_if_modified(|wanted| {
            let is_other = **wanted != *configs;
            if is_other {
                *wanted = configs.into();
            }
            is_other
        })
    }

    /// What those have done that run.
    #[must_use]
    pub fn states(&self) -> Vec<Arc<ForwardState>> {
        self.states.lock().clone()
    }

    /// The state of a forward: that of its name, if there is one.
    fn state(&self, config: &ForwardConfig) -> Arc<ForwardState> {
        let known = self.states.lock().iter().find(|state| state.name() == config.name).cloned();
        known.unwrap_or_else(|| Arc::new(ForwardState::new(config, &self.log)))
    }

    /// Has those run that are configured, until the process drains: the tasks of partition `i` on the `i`th of `handles`.
    async fn follow(
        self: Arc<Self>,
        intake: Arc<Intake>,
        topics: Option<&'static dyn Topics>,
        handles: Vec<Handle>,
    ) {
        let (mut wanted, drain) = (self.wanted.subscribe(), intake.drain());
        let mut running = Vec::new();
        loop {
            let configs = wanted.borrow_and_update().clone();
            running = end(running, &configs).await;
            let states: Vec<_> = configs.iter().map(|config| self.state(config)).collect();
            for (config, state) in configs.iter().zip(&states) {
                if !running.iter().any(|it| it.config == *config) {
                    running.push(begin(&intake, topics, &handles, config, state));
                }
            }
            *self.states.lock() = states;
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = drain.reached(Stage::Draining) => return,
            }
        }
    }
}

/// Begins the tasks of a forward.
fn begin(
    intake: &Arc<Intake>,
    topics: Option<&'static dyn Topics>,
    handles: &[Handle],
    config: &ForwardConfig,
    state: &Arc<ForwardState>,
) -> RunningForward {
    let stop = watch::Sender::new(false);
    for (partition, handle) in (0..intake.log().partitions()).zip(handles) {
        let end = ForwardEnd { drain: intake.drain(), stop: stop.subscribe() };
        let forwarder = Forwarder::new(Arc::clone(intake), config.clone(), Arc::clone(state), partition, end);
        drop(handle.spawn(forwarder.run(topics)));
    }
    RunningForward { config: config.clone(), stop }
}

/// Ends those that are not wanted as they are, and waits for it; the others.
async fn end(running: Vec<RunningForward>, wanted: &[ForwardConfig]) -> Vec<RunningForward> {
    let (kept, gone): (Vec<_>, Vec<_>) = running.into_iter().partition(|it| wanted.contains(&it.config));
    for forward in &gone {
        forward.stop.send_replace(true);
    }
    for forward in gone {
        forward.stop.closed().await;
        tracing::info!(
            forward = forward.config.name,
            "a forward has ended: the configuration has another one, or none"
        );
    }
    kept
}

/// Begins to forward, until the process drains: partition `i` on core `i`. Forwards to Kafka need `topics`.
pub fn start(
    intake: &Arc<Intake>,
    forwards: &Arc<Forwards>,
    topics: Option<&'static dyn Topics>,
    cores: &Cores,
) {
    let partitions = 0..usize::from(intake.log().partitions());
    let handles = partitions.map(|partition| cores.handle(partition).clone()).collect();
    cores.spawn_on(0, Arc::clone(forwards).follow(Arc::clone(intake), topics, handles));
}
