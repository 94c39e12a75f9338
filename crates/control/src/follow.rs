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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_algorithms::random::Random;
use tidegate_postgres::Place;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::link::{NAME, in_time, open, unavailable};
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
    let mut pauses = Pauses::new();
    let mut last = None;
    let trying = async {
        loop {
            let outcome = in_time(async {
                let client = open(place, || {}).await?;
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
    /// The number of this node.
    pub(crate) node: u32,
    /// The nodes that are there, while the database answers.
    present: Mutex<Option<NodesPresent>>,
}

impl Contact {
    pub(crate) fn new(reached: bool) -> Self {
        let (is_reachable, was_reached) = (AtomicBool::new(reached), AtomicBool::new(reached));
        Self { is_reachable, was_reached, node: presence::draw(), present: Mutex::default() }
    }

    /// The nodes that are there; `None` while that is not known.
    pub(crate) fn present(&self) -> Option<NodesPresent> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_present(&self, present: Option<NodesPresent>) {
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = present;
    }
}

/// Publishes every change until it is aborted.
pub(crate) async fn follow(place: Place, newest: watch::Sender<Arc<Snapshot>>, contact: Arc<Contact>) {
    let mut pauses = Pauses::new();
    loop {
        follow_one_connection(&place, &newest, &contact, &mut pauses).await;
        contact.is_reachable.store(false, Ordering::Relaxed);
        contact.set_present(None);
        sleep(pauses.next()).await;
    }
}

/// Returns when the connection is of no more use.
async fn follow_one_connection(
    place: &Place,
    newest: &watch::Sender<Arc<Snapshot>>,
    contact: &Contact,
    pauses: &mut Pauses,
) {
    let heard = Arc::new(Notify::new());
    let ring = Arc::clone(&heard);
    let listening = async {
        let client = open(place, move || ring.notify_one()).await?;
        client.batch_execute(&format!("LISTEN {NAME}")).await.map_err(unavailable)?;
        presence::announce(&client, contact.node).await?;
        Ok(client)
    };
    let Ok(client) = in_time(listening).await else { return };
    for look in 0_u32.. {
        let known = newest.borrow().clone();
        let Ok(later) = in_time(rows::later(&client, &known)).await else { return };
        contact.is_reachable.store(true, Ordering::Relaxed);
        contact.was_reached.store(true, Ordering::Relaxed);
        if let Some(later) = later {
            publish(newest, known.revision(), later);
        }
        if look % LOOKS_AT_NODES == 0 {
            let Ok(present) = in_time(presence::present(&client)).await else { return };
            contact.set_present(Some(present));
        }
        pauses.reset();
        // Either says the same: look.
        timeout(pauses.poll(), heard.notified()).await.unwrap_or_default();
    }
}

/// Random waits.
struct Pauses {
    random: Random,
    longest: Duration,
}

impl Pauses {
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
        let mut nodes: Vec<_> = (0..50).map(|_| Pauses::new()).collect();
        for round in 0..8_u32 {
            let bound = (FIRST_PAUSE * 2_u32.pow(round)).min(LONGEST_PAUSE);
            let mut pauses: Vec<_> = nodes.iter_mut().map(Pauses::next).collect();
            pauses.sort();
            pauses.dedup();
            assert!(pauses.len() > 45, "{} of 50 differ", pauses.len());
            assert!(pauses.iter().all(|pause| *pause <= bound));
            assert!(pauses[pauses.len() - 1] - pauses[0] > bound / 2, "spread over the pause");
        }
        assert!(nodes.iter_mut().all(|node| (POLL / 2..=POLL).contains(&node.poll())));
    }
}
