//! A process's life: start, ready, drain, stop. SIGTERM loses no request (fault 22).
//!
//! ```text
//!  Starting ─> Ready ─> Draining ──────> Closed ─────────> Sweeping ───────> Ending ──────────> Stopped
//!                       readiness falls, accept queues     idle connections   streams in        what is left
//!                       still accepting; emptied, then     are closed too     other protocols   is cut, and
//!                       replies say      listeners                            are told the end  counted
//!                       close            closed
//!                       |<-- grace -->|<- idle_linger ->|                   |<- last_words ->|
//!                                     |<---------------------- deadline -------------------->|
//! ```
//!
//! While draining, each reply carries `connection: close`, which is the one clean way to tell an HTTP/1.1 client to go
//! elsewhere: closing an idle connection at once would race with the request that its client is just sending. Only connections on
//! which nothing came for `idle_linger` are closed unasked. How a listener is closed without resetting anybody is in [`crate::accept`].
//!
//! A connection that goes on in another protocol, such as WebSocket, is never idle in that sense: it lives on beside the
//! process that takes new ones, to its own end or until `last_words` before the deadline. Then its service reads the
//! end of what the client says, and has the rest of the time to say its own.
//!
//! What no server can do alone: a client that connects after the listeners are closed is refused.
//! `grace` is the time in which a balancer notices the failing readiness probe and stops sending;
//! set it above period x threshold of the probe. Without a balancer, start the new process on the
//! same port first ([`crate::listen::ListenConfig::share_port`]), then drain the old one.
//!
//! A listener that is closed while the process goes on drains in the same way, by itself: it has a part of the process's
//! drain ([`Drain::part`]), which goes through the stages that the process goes through, and through those of its own.
//!
//! Deliberately absent: signals. The binary turns them into calls.

mod hold;
mod stage;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

pub use hold::Hold;
use hold::HoldKind;
pub use stage::Stage;

/// How long each part of a drain may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTiming {
    /// Accepting goes on for this long after readiness fell.
    pub grace: Duration,
    /// Connections without a request are left open for this long after the listeners closed.
    pub idle_linger: Duration,
    /// What still runs this long after the listeners closed is cut.
    pub deadline: Duration,
    /// Streams in other protocols are told the end this long before the deadline, and not before idle connections are
    /// closed.
    pub last_words: Duration,
}

impl DrainTiming {
    /// The default with another deadline. A tenth of it, from one second to five, is for last words.
    #[must_use]
    pub fn with_deadline(deadline: Duration) -> Self {
        let second = Duration::from_secs(1);
        let last_words = (deadline / 10).clamp(second, 5 * second);
        Self { grace: second, idle_linger: second, deadline, last_words }
    }
}

impl Default for DrainTiming {
    /// One second of grace (clients that reconnect on `connection: close` are still served, and a
    /// person who pressed Ctrl-C does not notice), one of lingering, a deadline of 30, three of them for last words.
    fn default() -> Self {
        Self::with_deadline(Duration::from_secs(30))
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut because the deadline passed.
    pub aborted: usize,
}

/// One process's lifecycle; clones share it.
#[derive(Clone, Debug)]
pub struct Drain {
    shared: Arc<DrainState>,
}

#[derive(Debug)]
struct DrainState {
    stage: AtomicU8,
    changes: watch::Sender<Stage>,
    sweeping: Notify,
    ending: Notify,
    listeners: AtomicUsize,
    connections: AtomicUsize,
    released: Notify,
    hands_on: AtomicBool,
    /// What this is a part of; it waits for what this waits for.
    whole: Option<Arc<Self>>,
    parts: Mutex<Vec<Weak<Self>>>,
}

impl DrainState {
    fn new(whole: Option<Arc<Self>>) -> Self {
        Self {
            stage: AtomicU8::new(Stage::Starting as u8),
            changes: watch::Sender::new(Stage::Starting),
            sweeping: Notify::new(),
            ending: Notify::new(),
            listeners: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            released: Notify::new(),
            hands_on: AtomicBool::new(false),
            whole,
            parts: Mutex::default(),
        }
    }

    fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    fn advance(&self, stage: Stage) {
        self.changes.send_if_modified(|current| {
            let forward = stage > *current;
            if forward {
                *current = stage;
                self.stage.store(stage as u8, Ordering::Relaxed);
            }
            forward
        });
        if stage >= Stage::Sweeping {
            self.sweeping.notify_waiters();
        }
        if stage >= Stage::Ending {
            self.ending.notify_waiters();
        }
        // After its own stage: a part that is made meanwhile is in the list, or has seen the stage.
        let parts: Vec<Arc<Self>> = self.parts.lock().iter().filter_map(Weak::upgrade).collect();
        parts.iter().for_each(|part| part.advance(stage));
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// A process that is starting.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::new(DrainState::new(None)) }
    }

    /// The drain of one listener: it goes through each stage that this one goes through, and may go on alone. This one
    /// waits for what the part waits for. Parts do not have parts of their own.
    #[must_use]
    pub fn part(&self) -> Self {
        let part = Arc::new(DrainState::new(Some(Arc::clone(&self.shared))));
        let mut parts = self.shared.parts.lock();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&part));
        drop(parts);
        part.advance(self.stage());
        Self { shared: part }
    }

    /// Has the accept loops leave their queues as they are when they end: another loop accepts from the same sockets.
    pub fn hand_on(&self) {
        self.shared.hands_on.store(true, Ordering::Release);
    }

    /// Whether another loop accepts from the same sockets.
    pub(crate) fn hands_on(&self) -> bool {
        self.shared.hands_on.load(Ordering::Acquire)
    }

    /// The present stage: one relaxed load, cheap enough for every request.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.shared.stage()
    }

    /// Whether replies should ask clients to go elsewhere.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.stage() >= Stage::Draining
    }

    /// Moves on to `stage`; a stage that was already passed is never returned to.
    pub fn advance(&self, stage: Stage) {
        self.shared.advance(stage);
    }

    /// Waits until `stage` or a later one is reached.
    pub async fn reached(&self, stage: Stage) {
        let mut changes = self.shared.changes.subscribe();
        let reached = changes.wait_for(|current| *current >= stage).await;
        debug_assert!(reached.is_ok(), "the sender lives as long as self");
    }

    /// Waits until idle connections are to be closed. Unlike [`Drain::reached`] its task is woken
    /// for nothing else, so that a connection may leave it unpolled until then. When it is over, the core
    /// has looked at its sockets since: what had come on the connection is there to be read.
    pub async fn sweeping(&self) {
        self.told(Stage::Sweeping, &self.shared.sweeping).await;
    }

    /// As [`Drain::sweeping`], until streams in other protocols are to be told the end.
    pub(crate) async fn ending(&self) {
        self.told(Stage::Ending, &self.shared.ending).await;
    }

    async fn told(&self, stage: Stage, notice: &Notify) {
        let mut notified = std::pin::pin!(notice.notified());
        notified.as_mut().enable();
        if self.stage() < stage {
            notified.await;
        }
        tokio::task::yield_now().await;
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Makes the drain wait for a connection.
    #[must_use]
    pub fn hold_connection(&self) -> Hold {
        Hold::new(&self.shared, HoldKind::Connection)
    }

    /// Makes the drain wait for an accept loop.
    #[must_use]
    pub fn hold_listener(&self) -> Hold {
        Hold::new(&self.shared, HoldKind::Listener)
    }

    /// Runs the drain to its end. A second call, or [`Drain::advance`] to [`Stage::Stopped`] from
    /// elsewhere (a second signal), ends the waiting at once.
    pub async fn run(&self, timing: DrainTiming) -> Drained {
        self.advance(Stage::Draining);
        tokio::select! {
            () = sleep(timing.grace) => {}
            () = self.reached(Stage::Stopped) => {}
        }
        self.advance(Stage::Closed);
        let closed = Instant::now();
        tokio::select! {
            () = self.wind_down(closed, timing) => {}
            () = self.reached(Stage::Stopped) => {}
        }
        let aborted = self.connections();
        self.advance(Stage::Stopped);
        Drained { aborted }
    }

    async fn wind_down(&self, closed: Instant, timing: DrainTiming) {
        let all_done = || self.shared.listeners.load(Ordering::Acquire) == 0 && self.connections() == 0;
        let deadline = closed + timing.deadline;
        let sweep = closed + timing.idle_linger;
        if timeout_at(sweep.min(deadline), self.until(all_done)).await.is_ok() {
            return;
        }
        self.advance(Stage::Sweeping);
        let end = closed + timing.deadline.saturating_sub(timing.last_words);
        if timeout_at(end, self.until(all_done)).await.is_ok() {
            return;
        }
        self.advance(Stage::Ending);
        let in_time = timeout_at(deadline, self.until(all_done)).await.is_ok();
        tracing::debug!(in_time, open = self.connections(), "drain has waited");
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let mut released = std::pin::pin!(self.shared.released.notified());
            released.as_mut().enable();
            if condition() {
                return;
            }
            released.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: DrainTiming = DrainTiming {
        grace: Duration::ZERO,
        idle_linger: Duration::from_millis(5),
        deadline: Duration::from_millis(20),
        last_words: Duration::from_millis(10),
    };

    #[tokio::test]
    async fn stages_only_go_forward() {
        let drain = Drain::new();
        assert_eq!(drain.stage(), Stage::Starting);
        drain.advance(Stage::Ready);
        drain.advance(Stage::Closed);
        drain.advance(Stage::Draining);
        assert_eq!(drain.stage(), Stage::Closed);
        drain.reached(Stage::Draining).await;
    }

    #[tokio::test]
    async fn nothing_open_ends_at_once_and_what_stays_is_counted() {
        let drain = Drain::new();
        assert_eq!(drain.run(FAST).await, Drained { aborted: 0 });
        assert_eq!(drain.stage(), Stage::Stopped);

        let drain = Drain::new();
        let _stuck = [drain.hold_connection(), drain.hold_connection()];
        assert_eq!(drain.run(FAST).await, Drained { aborted: 2 });
    }

    #[tokio::test]
    async fn the_drain_ends_when_the_last_connection_does() {
        let drain = Drain::new();
        let hold = drain.hold_connection();
        let patient = DrainTiming { deadline: Duration::from_secs(600), ..FAST };
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.run(patient).await }
        });
        drain.reached(Stage::Sweeping).await;
        drop(hold);
        assert_eq!(waiting.await.unwrap(), Drained { aborted: 0 });
    }

    #[tokio::test]
    async fn streams_are_told_the_end_before_the_deadline_and_behind_idle_connections() {
        let drain = Drain::new();
        let _stuck = drain.hold_connection();
        // All of the time is for last words, and yet idle connections come first.
        let timing = DrainTiming { deadline: Duration::from_secs(600), last_words: Duration::MAX, ..FAST };
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.run(timing).await }
        });
        drain.ending().await;
        assert_eq!(drain.stage(), Stage::Ending);
        drain.advance(Stage::Stopped);
        assert_eq!(waiting.await.unwrap(), Drained { aborted: 1 });
    }

    #[tokio::test]
    async fn a_part_drains_alone_and_the_whole_waits_for_it_and_takes_it_along() {
        let whole = Drain::new();
        whole.advance(Stage::Ready);
        let (one, other) = (whole.part(), whole.part());
        let hold = one.hold_connection();
        assert_eq!((one.stage(), one.connections(), whole.connections()), (Stage::Ready, 1, 1));
        assert_eq!(one.run(FAST).await, Drained { aborted: 1 });
        assert_eq!((whole.stage(), other.stage()), (Stage::Ready, Stage::Ready), "it is alone in this");
        let patient = DrainTiming { deadline: Duration::from_secs(600), ..FAST };
        let waiting = tokio::spawn({
            let whole = whole.clone();
            async move { whole.run(patient).await }
        });
        other.reached(Stage::Sweeping).await;
        drop(hold);
        assert_eq!(waiting.await.unwrap(), Drained { aborted: 0 });
        assert_eq!((other.stage(), whole.part().stage()), (Stage::Stopped, Stage::Stopped));
    }

    #[test]
    fn last_words_have_a_tenth_of_the_time_from_one_second_to_five() {
        for (deadline, last_words) in [(0, 1), (4, 1), (30, 3), (3_600, 5)] {
            let timing = DrainTiming::with_deadline(Duration::from_secs(deadline));
            assert_eq!(timing.last_words, Duration::from_secs(last_words), "{deadline} s");
        }
    }

    #[tokio::test]
    async fn a_second_signal_ends_the_wait() {
        let drain = Drain::new();
        let _stuck = drain.hold_connection();
        drain.advance(Stage::Stopped);
        let patient = DrainTiming { grace: Duration::from_secs(600), ..DrainTiming::default() };
        assert_eq!(drain.run(patient).await, Drained { aborted: 1 });
    }
}
