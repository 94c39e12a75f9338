//! Following what other nodes change, for as long as the process lives.
//!
//! ```text
//!   connect --> LISTEN --> catch up --> [a notification, or POLL] --.
//!      ^                      ^                                     |
//!      |                      `-------------------------------------'
//!      `-- pause, longer each time, cut at random <-- connection lost, no answer
//! ```
//!
//! Listening begins before catching up, so that no change falls between the two. Pauses are random
//! parts of what they could be: after an outage, or when fifty nodes restart, they do not all ask in
//! the same moment (fault 24).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::random::Random;
use tidegate_postgres::{Place, Session};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::database_error::{NAME, in_time, unavailable};
use crate::error::Error;
use crate::link::open;
use crate::messages::{CHANNEL, Messages, Told};
use crate::nodes::{self, KnownNode, NodeIdentity, NodeList};
use crate::presence::{self, NodesPresent};
use crate::rows;
use crate::snapshot::{Snapshot, publish};

/// Longest between two looks when nothing was heard.
const POLL: Duration = Duration::from_millis(800);
/// Looks between two at which nodes are there: three to six seconds, if nothing was heard.
const LOOKS_AT_NODES: u32 = 8;
/// Bounds of the pause before connecting again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Everything that is stored, asked for again and again for so long.
///
/// # Errors
/// [`Error::Unavailable`], [`Error::Newer`] or [`Error::Corrupt`].
pub(crate) async fn first(place: &Place, patience: Duration) -> Result<Snapshot, Error> {
    let mut pauses = RandomPauses::new();
    let mut last = None;
    let trying = async {
        loop {
            let outcome = in_time(async {
                let client = open(place, |_, _| {}).await?;
                rows::load(&client).await
            });
            let outcome = outcome.await;
            match outcome {
                Err(error @ (Error::Unavailable { .. } | Error::Late)) => last = Some(error),
                outcome => return outcome,
            }
            sleep(pauses.next()).await;
        }
    };
    match timeout(patience, trying).await {
        Ok(outcome) => outcome,
        Err(_) => Err(last.unwrap_or(Error::Late)),
    }
}

/// Whether the database has been heard of.
#[derive(Debug)]
pub(crate) struct Contact {
    /// It answers, as far as is known.
    pub(crate) is_reachable: AtomicBool,
    /// It has answered since the start.
    pub(crate) was_reached: AtomicBool,
    /// When it last did; `None`: not since the start.
    heard: Mutex<Option<Instant>>,
    /// The number of this node.
    pub(crate) node: u32,
    /// What the nodes say to each other.
    pub(crate) messages: Messages,
    /// The nodes that are there, while the database answers.
    present: Mutex<Option<NodesPresent>>,
    /// What this node says of itself, once it is said.
    identity: OnceLock<NodeIdentity>,
    /// The nodes by name, as they were when the database last answered.
    listed: Mutex<NodeList>,
    /// Whether another node has the name of this one.
    is_namesake: AtomicBool,
}

impl Contact {
    pub(crate) fn new(reached: bool, messages: Messages) -> Self {
        let (is_reachable, was_reached) = (AtomicBool::new(reached), AtomicBool::new(reached));
        let (node, heard) = (presence::draw(), Mutex::new(reached.then(Instant::now)));
        let (identity, listed, is_namesake) = (OnceLock::new(), Mutex::default(), AtomicBool::new(false));
        let present = Mutex::default();
        Self { is_reachable, was_reached, heard, node, messages, present, identity, listed, is_namesake }
    }

    /// For how long it has not answered; [`Duration::MAX`] if it has not since the start.
    pub(crate) fn silence(&self) -> Duration {
        let heard = *self.heard.lock();
        heard.map_or(Duration::MAX, |heard| heard.elapsed())
    }

    fn answered(&self, asked: Instant) {
        self.is_reachable.store(true, Ordering::Relaxed);
        self.was_reached.store(true, Ordering::Relaxed);
        *self.heard.lock() = Some(asked);
    }

    /// The nodes that are there; `None` while that is not known.
    pub(crate) fn present(&self) -> Option<NodesPresent> {
        self.present.lock().clone()
    }

    fn set_present(&self, present: Option<NodesPresent>) {
        *self.present.lock() = present;
    }

    /// Has this node be listed as this. What was said before stays.
    pub(crate) fn introduce(&self, identity: NodeIdentity) {
        self.identity.get_or_init(|| identity);
    }

    /// What this node says of itself.
    fn identity(&self) -> Option<&NodeIdentity> {
        self.identity.get()
    }

    /// The nodes by name.
    pub(crate) fn listed(&self) -> NodeList {
        let is_current = self.is_reachable.load(Ordering::Relaxed);
        NodeList { is_current, ..self.listed.lock().clone() }
    }

    fn set_listed(&self, nodes: Vec<KnownNode>) {
        let is_namesake = nodes.iter().any(|node| node.number == self.node && node.shares_name);
        if is_namesake && !self.is_namesake.load(Ordering::Relaxed) {
            let name = self.identity().map(|identity| identity.name.as_str());
            tracing::warn!(
                node = name,
                "another node that shares the database has the name of this one: give each a `node.name` of its own, \
                 unless one is just taking the other's place"
            );
        }
        self.is_namesake.store(is_namesake, Ordering::Relaxed);
        *self.listed.lock() = NodeList { nodes, is_current: true };
    }
}

/// Publishes every change, and sends what waits in `told`, until it is aborted.
pub(crate) async fn follow(
    place: Place,
    newest: watch::Sender<Arc<Snapshot>>,
    contact: Arc<Contact>,
    mut told: mpsc::Receiver<Told>,
) {
    let mut pauses = RandomPauses::new();
    loop {
        follow_one_connection(&place, &newest, &contact, &mut pauses, &mut told).await;
        contact.is_reachable.store(false, Ordering::Relaxed);
        contact.set_present(None);
        sleep(pauses.next()).await;
    }
}

/// Returns when the connection is of no more use.
async fn follow_one_connection(
    place: &Place,
    newest: &watch::Sender<Arc<Snapshot>>,
    contact: &Arc<Contact>,
    pauses: &mut RandomPauses,
    told: &mut mpsc::Receiver<Told>,
) {
    let heard = Arc::new(Notify::new());
    let (ring, listener) = (Arc::clone(&heard), Arc::clone(contact));
    let listening = async {
        let notified = move |channel: &str, payload: &str| match channel {
            CHANNEL => listener.messages.arrived(payload, listener.node),
            _ => ring.notify_one(),
        };
        let client = open(place, notified).await?;
        client.batch_execute(&format!("LISTEN {NAME}; LISTEN {CHANNEL}")).await.map_err(unavailable)?;
        presence::announce(&client, contact.node).await?;
        Ok(client)
    };
    let Ok(client) = in_time(listening).await else { return };
    let mut is_introduced = false;
    for look in 0_u32.. {
        // What is stored after this moment may be missing from the answer.
        let (known, asked) = (newest.borrow().clone(), Instant::now());
        let Ok(later) = in_time(rows::later(&client, &known)).await else { return };
        if let Some(later) = later {
            publish(newest, known.revision(), later);
        }
        contact.answered(asked);
        let is_new = !is_introduced && contact.identity().is_some();
        if is_new || look % LOOKS_AT_NODES == 0 {
            let Ok(present) = in_time(presence::present(&client)).await else { return };
            contact.set_present(Some(present));
            is_introduced = contact.identity().is_some();
            let Ok(()) = list_nodes(&client, contact).await else { return };
        }
        pauses.reset();
        let next_look = Instant::now() + pauses.poll();
        loop {
            tokio::select! {
                // Either says the same: look.
                () = heard.notified() => break,
                () = sleep_until(next_look) => break,
                Some(first) = told.recv() => {
                    let sending = contact.messages.send(&client, contact.node, first, told);
                    let Ok(()) = in_time(sending).await else { return };
                }
            }
        }
    }
}

/// Says who this node is, once that is known, and who the others are. Without the names, all else goes on.
///
/// # Errors
/// [`Error::Late`].
async fn list_nodes(client: &Session, contact: &Contact) -> Result<(), Error> {
    let listing = async {
        if let Some(identity) = contact.identity() {
            nodes::keep(client, contact.node, identity).await?;
        }
        nodes::list(client).await
    };
    match in_time(listing).await {
        Ok(nodes) => contact.set_listed(nodes),
        Err(Error::Late) => return Err(Error::Late),
        Err(error) => tracing::debug!(%error, "the nodes cannot be listed by name"),
    }
    Ok(())
}

/// Random waits.
struct RandomPauses {
    random: Random,
    longest: Duration,
}

impl RandomPauses {
    fn new() -> Self {
        Self { random: Random::seeded(RandomState::new().hash_one(0)), longest: FIRST_PAUSE }
    }

    fn reset(&mut self) {
        self.longest = FIRST_PAUSE;
    }

    /// A random part of a pause that doubles.
    fn next(&mut self) -> Duration {
        let pause = self.longest.mul_f64(self.random.unit());
        self.longest = (self.longest * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Between half of [`POLL`] and all of it.
    fn poll(&mut self) -> Duration {
        POLL.mul_f64(0.5 + self.random.unit() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_24_pauses_differ_between_nodes_and_stay_in_their_bounds() {
        let mut nodes: Vec<_> = (0..50).map(|_| RandomPauses::new()).collect();
        for round in 0..8_u32 {
            let bound = (FIRST_PAUSE * 2_u32.pow(round)).min(LONGEST_PAUSE);
            let mut pauses: Vec<_> = nodes.iter_mut().map(RandomPauses::next).collect();
            pauses.sort();
            pauses.dedup();
            assert!(pauses.len() > 45, "{} of 50 differ", pauses.len());
            assert!(pauses.iter().all(|pause| *pause <= bound));
            assert!(pauses[pauses.len() - 1] - pauses[0] > bound / 2, "spread over the pause");
        }
        assert!(nodes.iter_mut().all(|node| (POLL / 2..=POLL).contains(&node.poll())));
    }
}
