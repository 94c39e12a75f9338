//! Where the listeners of the nodes are, told among those that share the configuration, so that each answers for all.
//!
//! A node tells the others now and then, and when one of them asks, which it does when it begins to listen. It says that it goes
//! when its drain begins.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Control;
use tidegate_edge::pops::{Pop, Pops};
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::runtime::Cores;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;

/// How often a node says where it is.
const EVERY: Duration = Duration::from_secs(5);

/// The message of a node that does not know yet where the others are.
const WHO_IS_THERE: &str = "pops?";

/// Tells the other nodes that there are listeners in `region`, and hears where theirs are.
pub(super) fn share(
    (control, drain, clock, cores): (&Control, &Drain, Clock, &Cores),
    (region, addresses): (&Arc<str>, Vec<IpAddr>),
    pops: Pops,
) {
    let Some(mut heard) = control.heard() else { return };
    if addresses.is_empty() {
        tracing::info!(
            "names of the region {region} have no address of this node, whose listeners are on every address of its machine: say \
             in edge.advertise at which addresses clients reach it"
        );
    }
    let (control, drain) = (control.clone(), drain.clone());
    let mut own = Pop { node: control.node(), region: (&**region).into(), addresses };
    cores.spawn_on(0, async move {
        let mut draining = std::pin::pin!(drain.reached(Stage::Draining));
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        control.tell(WHO_IS_THERE.to_owned());
        loop {
            let message = tokio::select! {
                message = heard.recv() => message,
                _ = ticks.tick() => {
                    control.tell(own.to_string());
                    if let Some(present) = control.nodes_present() {
                        pops.forget_absent(&present, clock.tick());
                    }
                    continue;
                }
                () = &mut draining => break,
            };
            match message {
                Ok(message) if *message == *WHO_IS_THERE => control.tell(own.to_string()),
                Ok(message) => {
                    if let Ok(pop) = message.parse() {
                        pops.hear(pop, clock.tick());
                    }
                }
                // What was missed is said again.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
        own.addresses.clear();
        control.tell(own.to_string());
    });
}
