//! Verdicts of health checks, told among nodes that check the same backends.
//!
//! ```text
//!   a check changes a verdict --tell--> the other nodes --heard--> they check that backend now,
//!                                                                 and one result that agrees is enough
//! ```
//!
//! A verdict is never taken over: a node that cannot reach a backend would take it out for all. It brings the next check
//! of the others forward, and stands for the results before it that rise or fall ask for. So if the backend is at fault,
//! all nodes follow within a moment; if one node's network is, the others do not.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::balance::eligibility::Thresholds;
use tidegate_algorithms::random::Random;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// By how much an interval is shorter or longer, at random: checks of many nodes do not fall together.
const JITTER: f64 = 0.2;

/// Longest pause before a check that another node's verdict asks for; random, so that a backend is not asked by all
/// nodes at once.
const PROMPT: Duration = Duration::from_millis(500);

/// What the checks of one backend say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Which backend, as all nodes call it.
    pub subject: &'a str,
    /// Whether it may be used.
    pub is_up: bool,
}

/// The verdicts of a process and of those that it hears. Clones share it.
#[derive(Clone, Default)]
pub struct Verdicts(Arc<VerdictBoard>);

#[derive(Default)]
struct VerdictBoard {
    /// What was last heard of each backend that is checked here.
    watched: Mutex<HashMap<Arc<str>, watch::Sender<bool>>>,
    tell: OnceLock<Box<Tell>>,
}

/// What tells the other nodes.
type Tell = dyn Fn(Verdict<'_>) + Send + Sync;

impl fmt::Debug for Verdicts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Verdicts").finish_non_exhaustive()
    }
}

impl Verdicts {
    /// Has the other nodes told by `tell` from now on, once in a process's life. It must not block.
    pub fn tell_by(&self, tell: impl Fn(Verdict<'_>) + Send + Sync + 'static) {
        let is_first = self.0.tell.set(Box::new(tell)).is_ok();
        debug_assert!(is_first, "there is one way to the other nodes");
    }

    /// Takes another node's verdict. A verdict on a backend that is not checked here is ignored.
    pub fn hear(&self, verdict: Verdict<'_>) {
        if let Some(watched) = self.watched().get(verdict.subject) {
            watched.send_replace(verdict.is_up);
        }
    }

    /// For who checks a backend, while it does.
    #[must_use]
    pub fn watch(&self, subject: String) -> Watched {
        let subject: Arc<str> = subject.into();
        let heard = self.watched().entry(Arc::clone(&subject)).or_default().subscribe();
        Watched { verdicts: self.clone(), subject, heard }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<Arc<str>, watch::Sender<bool>>> {
        // Each change of the map is whole.
        self.0.watched.lock()
    }
}

/// A checker of a backend.
#[derive(Debug)]
pub struct Watched {
    verdicts: Verdicts,
    subject: Arc<str>,
    heard: watch::Receiver<bool>,
}

impl Watched {
    /// Waits until the next check is due: about `interval`, or less if another node's verdict has changed, which is
    /// returned then.
    pub async fn pause(&mut self, interval: Duration, random: &mut Random) -> Option<bool> {
        let due = Instant::now() + interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.unit());
        match timeout_at(due, self.heard.changed()).await {
            Ok(Ok(())) => {
                let until_due = due.saturating_duration_since(Instant::now());
                sleep(PROMPT.min(until_due).mul_f64(random.unit())).await;
                Some(*self.heard.borrow_and_update())
            }
            // Invariant: the sender goes with its last receiver.
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Tells the other nodes that the verdict has changed here.
    pub fn tell(&self, is_up: bool) {
        if let Some(tell) = self.verdicts.0.tell.get() {
            tell(Verdict { subject: &self.subject, is_up });
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watched = self.verdicts.watched();
        if watched.get(&self.subject).is_some_and(|sender| sender.receiver_count() <= 1) {
            watched.remove(&self.subject);
        }
    }
}

/// How many results change the verdict: one, where another node has found what this one finds.
#[must_use]
pub fn needed(thresholds: Thresholds, passed: bool, told: Option<bool>) -> Thresholds {
    if told == Some(passed) { Thresholds { rise: 1, fall: 1 } } else { thresholds }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn another_nodes_verdict_brings_the_next_check_forward_and_one_that_agrees_is_enough() {
        let (verdicts, mut random) = (Verdicts::default(), Random::seeded(1));
        let mut watched = verdicts.watch("edge a".into());
        verdicts.hear(Verdict { subject: "edge b", is_up: false });
        let short = Duration::from_millis(10);
        assert_eq!(watched.pause(short, &mut random).await, None, "it is another backend's");
        verdicts.hear(Verdict { subject: "edge a", is_up: false });
        assert_eq!(watched.pause(HOUR, &mut random).await, Some(false));
        let thresholds = Thresholds { rise: 2, fall: 3 };
        assert_eq!(needed(thresholds, false, Some(false)), Thresholds { rise: 1, fall: 1 });
        assert_eq!(needed(thresholds, true, Some(false)), thresholds, "this node finds something else");
        assert_eq!(needed(thresholds, false, None), thresholds);
    }

    #[tokio::test]
    async fn a_verdict_that_is_heard_during_a_check_is_not_lost_and_nothing_is_kept_afterwards() {
        let (verdicts, mut random) = (Verdicts::default(), Random::seeded(2));
        let (mut one, other) = (verdicts.watch("edge a".into()), verdicts.watch("edge a".into()));
        verdicts.hear(Verdict { subject: "edge a", is_up: true });
        drop(other);
        assert_eq!(one.pause(HOUR, &mut random).await, Some(true));
        drop(one);
        assert!(verdicts.watched().is_empty());
    }
}
