//! Where the listeners of the nodes are, told among those that share the configuration, so that each answers for all.
//!
//! A node tells the others now and then, and when one of them asks, which it does when it starts. It says that it goes when its
//! drain begins, or when its last listener is gone. Listeners that come and go are in what it tells next.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Control;
use tidegate_edge::pops::Pop;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::runtime::Cores;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;

use super::ServedEdge;

/// How often a node says where it is.
const EVERY: Duration = Duration::from_secs(5);

/// The message of a node that does not know yet where the others are.
const WHO_IS_THERE: &str = "pops?";

/// Tells the other nodes where the listeners in `region` are: at the addresses `advertised`, or else at their own. Hears where
/// those of the others are.
pub(super) fn share(
    (control, drain, cores): (&Control, &Drain, &Cores),
    (region, advertised): (&Arc<str>, Vec<IpAddr>),
    served: &Arc<ServedEdge>,
) {
    let Some(mut heard) = control.heard() else { return };
    let (edge, pops) = (Arc::clone(&served.edge), served.pops.clone());
    let addresses = edge.addresses(&advertised);
    if addresses.is_empty() && !served.listeners().is_empty() {
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
        let tell = |own: &mut Pop| {
            let addresses = edge.addresses(&advertised);
            let was_there = !std::mem::replace(&mut own.addresses, addresses).is_empty();
            if was_there || !own.addresses.is_empty() {
                control.tell(own.to_string());
            }
        };
        loop {
            let message = tokio::select! {
                message = heard.recv() => message,
                _ = ticks.tick() => {
                    tell(&mut own);
                    if let Some(present) = control.nodes_present() {
                        pops.forget_absent(&present, edge.clock().tick());
                    }
                    continue;
                }
                () = &mut draining => break,
            };
            match message {
                Ok(message) if *message == *WHO_IS_THERE => tell(&mut own),
                Ok(message) => {
                    if let Ok(pop) = message.parse() {
                        pops.hear(pop, edge.clock().tick());
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
