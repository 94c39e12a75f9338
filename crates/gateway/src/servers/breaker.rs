//! A breaker that all requests of an upstream or a route share.
//!
//! While it is closed it admits every call by one pass, which is read without a lock. While no call that it judges has failed or was
//! slow, a success is counted on a line of few cores ([`STRIPES`]); all of these are added up before the next failure or slow call is
//! judged. So each judgement is of the calls that one lock for all would have judged, but for the order of those that end at once.
//!
//! The log has a line when it opens and when it closes: at most one of each in a while, which says how many were left out. A
//! failed trial has no line, since the breaker stays open.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::breaker::{Breaker, Change, MAX_CALLS, Outcome, Pass, Phase, Settings};
use tidegate_algorithms::time::Tick;
use tidegate_upstream::seldom::SeldomLine;

/// Lines that successes are counted on; threads take turns at them.
const STRIPES: usize = 16;
/// The lower half of a line counts, the upper half is of the pass whose calls it counts.
const COUNT: u64 = 0xffff_ffff;

/// Successes that the breaker has not been told of.
#[derive(Debug, Default)]
#[repr(align(128))]
struct UntoldSuccesses(AtomicU64);

impl UntoldSuccesses {
    /// Counts one more. More than a window can hold are not counted.
    fn add(&self, pass: Pass) {
        let tag = pass.number() & COUNT;
        let mut held = self.0.load(Relaxed);
        loop {
            let is_same = held >> 32 == tag;
            if is_same && held & COUNT >= u64::from(MAX_CALLS) {
                return;
            }
            let more = if is_same { held + 1 } else { (tag << 32) | 1 };
            match self.0.compare_exchange_weak(held, more, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) => held = other,
            }
        }
    }

    /// Takes those that are of `pass`.
    fn take(&self, pass: Pass) -> u32 {
        if self.0.load(Relaxed) == 0 {
            return 0;
        }
        let held = self.0.swap(0, Relaxed);
        let is_same = held >> 32 == pass.number() & COUNT;
        if is_same { u32::try_from(held & COUNT).unwrap_or(MAX_CALLS) } else { 0 }
    }
}

/// What calls read of the breaker without its lock.
#[derive(Debug, Default)]
#[repr(align(128))]
struct StandingPass {
    /// The number of the pass that all calls get, and 1 more; 0: it is not closed.
    pass: AtomicU64,
    /// Successes need not be told at once.
    is_untroubled: AtomicBool,
}

impl StandingPass {
    fn pass(&self) -> Option<Pass> {
        self.pass.load(Acquire).checked_sub(1).map(Pass::numbered)
    }

    fn set(&self, breaker: &Breaker) {
        let pass = breaker.standing_pass().map_or(0, |pass| pass.number() + 1);
        if self.pass.load(Relaxed) != pass {
            self.pass.store(pass, Release);
        }
        let is_untroubled = breaker.is_untroubled();
        if self.is_untroubled.load(Relaxed) != is_untroubled {
            self.is_untroubled.store(is_untroubled, Release);
        }
    }
}

/// The line that this thread counts on.
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = THREADS.fetch_add(1, Relaxed) % STRIPES;
    }
    OWN.with(|own| *own)
}

/// A breaker behind a lock, which is held for nanoseconds.
#[derive(Debug)]
pub(crate) struct SharedBreaker {
    state: Mutex<Breaker>,
    standing: StandingPass,
    /// Made with the first success.
    untold: OnceLock<Box<[UntoldSuccesses]>>,
    slow_after: u64,
    /// `upstream` or `route`, and its name.
    of: (&'static str, Box<str>),
    opened: SeldomLine,
    closed: SeldomLine,
}

/// What a breaker judges by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What it admits.
    pub phase: Phase,
    /// The calls that it judges: those in its window; open, those that opened it; half open, the trials that have ended.
    pub calls: u32,
    /// The calls among them that failed.
    pub failed: u32,
    /// Those that were slow.
    pub slow: u32,
    /// Nanoseconds until it lets one through; 0: it would now.
    pub wait: u64,
    /// The pause that it is in, or whose trials are under way, in nanoseconds; `None`: it is closed.
    pub pause: Option<u64>,
    /// The rule.
    pub settings: Settings,
}

/// Leave to make one call. Dropped without an outcome, it counts for nothing and gives its trial back.
#[derive(Debug)]
pub(crate) struct BreakerAdmission<'a> {
    breaker: &'a SharedBreaker,
    pass: Option<Pass>,
}

impl SharedBreaker {
    /// The breaker of an `upstream` or a `route` of this name.
    pub(crate) fn new(settings: Settings, kind: &'static str, name: &str) -> Self {
        let (breaker, standing) = (Breaker::new(settings), StandingPass::default());
        standing.set(&breaker);
        Self {
            state: Mutex::new(breaker),
            standing,
            untold: OnceLock::new(),
            slow_after: settings.slow_after,
            of: (kind, name.into()),
            opened: SeldomLine::default(),
            closed: SeldomLine::default(),
        }
    }

    /// Leave to make a call, or the nanoseconds until one may be had.
    pub(crate) fn admit(&self, now: Tick) -> Result<BreakerAdmission<'_>, u64> {
        if let Some(pass) = self.standing.pass() {
            return Ok(BreakerAdmission { breaker: self, pass: Some(pass) });
        }
        let mut state = self.state();
        match state.admit(now) {
            Some(pass) => Ok(BreakerAdmission { breaker: self, pass: Some(pass) }),
            None => Err(state.wait(now)),
        }
    }

    /// Lets trials through, since a health check passed.
    pub(crate) fn end_pause(&self, now: Tick) {
        self.state().end_pause(now);
    }

    pub(crate) fn phase(&self) -> Phase {
        // Records ask it of each request: a closed breaker answers without its lock.
        if self.standing.pass().is_some() { Phase::Closed } else { self.state().phase() }
    }

    /// What it judges by now.
    pub(crate) fn seen(&self, now: Tick) -> Judged {
        let mut state = self.state();
        self.tell_successes(&mut state);
        let (calls, failed, slow) = state.recent(now);
        let (phase, wait, pause) = (state.phase(), state.wait(now), state.pause());
        Judged { phase, calls, failed, slow, wait, pause, settings: *state.settings() }
    }

    /// Has the log say what an operator must know of a change.
    fn tell(&self, change: Change, calls: u32, failed: u32, slow: u32, now: Tick) {
        let (kind, name) = (self.of.0, &*self.of.1);
        match change {
            Change::Opened => {
                if let Some(others) = self.opened.unsaid(now) {
                    tracing::warn!(
                        of = kind,
                        name,
                        calls,
                        failed,
                        slow,
                        others,
                        "a breaker is open: requests are refused until a trial succeeds"
                    );
                }
            }
            Change::Closed => {
                if let Some(others) = self.closed.unsaid(now) {
                    tracing::info!(
                        of = kind,
                        name,
                        others,
                        "a breaker is closed: requests are let through again"
                    );
                }
            }
            Change::Reopened => tracing::debug!(of = kind, name, "a breaker stays open: a trial failed"),
            Change::None => {}
        }
    }

    /// Counts a success that changes nothing else; false if it must be reported.
    fn counts_untold(&self, pass: Pass, outcome: Outcome) -> bool {
        let changes_nothing = !outcome.failed
            && outcome.took <= self.slow_after
            && self.standing.is_untroubled.load(Acquire)
            && self.standing.pass() == Some(pass);
        if changes_nothing {
            let lines = || (0..STRIPES).map(|_| UntoldSuccesses::default()).collect();
            self.untold.get_or_init(lines)[stripe()].add(pass);
        }
        changes_nothing
    }

    /// Tells the breaker the successes that it has not been told of.
    fn tell_successes(&self, state: &mut Breaker) {
        let Some(pass) = state.standing_pass() else { return };
        let untold = self.untold.get().map(|lines| &**lines).unwrap_or_default();
        let calls: u32 = untold.iter().map(|line| line.take(pass)).sum();
        state.succeeded(pass, calls);
    }

    fn state(&self) -> MutexGuard<'_, Breaker> {
        self.state.lock()
    }
}

impl BreakerAdmission<'_> {
    /// Reports how the call ended.
    pub(crate) fn ended(mut self, outcome: Outcome, now: Tick) -> Change {
        match self.pass.take() {
            Some(pass) if self.breaker.counts_untold(pass, outcome) => Change::None,
            Some(pass) => {
                let mut state = self.breaker.state();
                self.breaker.tell_successes(&mut state);
                let change = state.report(pass, outcome, now);
                self.breaker.standing.set(&state);
                if change != Change::None {
                    let (calls, failed, slow) = state.recent(now);
                    drop(state);
                    self.breaker.tell(change, calls, failed, slow, now);
                }
                change
            }
            None => Change::None,
        }
    }
}

impl Drop for BreakerAdmission<'_> {
    fn drop(&mut self) {
        // What a closed breaker has admitted takes no place of others.
        if let Some(pass) = self.pass.take().filter(|pass| self.breaker.standing.pass() != Some(*pass)) {
            self.breaker.state().cancel(pass);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::breaker::Window;
    use tidegate_algorithms::random::Random;

    use super::*;

    #[test]
    fn a_shared_breaker_judges_as_one_behind_a_lock_does() {
        let mut changes = 0;
        for seed in 0..300 {
            let window = if seed % 3 == 0 { Window::Span(1_000) } else { Window::Calls(20) };
            let settings = Settings {
                window,
                minimum_calls: 5,
                slow_after: 100,
                first_pause: 20,
                pause: 100,
                trials: 2,
                ..Settings::default()
            };
            let (shared, mut one) = (SharedBreaker::new(settings, "route", "a"), Breaker::new(settings));
            let mut random = Random::seeded(seed);
            for at in 0..600 {
                let now = Tick(at * 10);
                // Good times and bad ones take turns.
                let bad = if at / 100 % 2 == 0 { 0.02 } else { 0.6 };
                let outcome = Outcome { failed: random.unit() < bad, took: random.below(104) };
                let (admitted, pass) = (shared.admit(now), one.admit(now));
                assert_eq!(admitted.is_ok(), pass.is_some(), "seed {seed} at {at}");
                let (Ok(admitted), Some(pass)) = (admitted, pass) else { continue };
                if random.unit() < 0.05 {
                    drop(admitted);
                    one.cancel(pass);
                    continue;
                }
                let change = one.report(pass, outcome, now);
                assert_eq!(admitted.ended(outcome, now), change, "seed {seed} at {at}");
                assert_eq!(shared.phase(), one.phase());
                changes += u32::from(change != Change::None);
                if at % 7 == 0 {
                    let Judged { calls, failed, slow, .. } = shared.seen(now);
                    assert_eq!((calls, failed, slow), one.recent(now), "seed {seed} at {at}");
                }
            }
        }
        assert!(changes > 300, "{changes}");
    }

    #[test]
    fn no_success_of_any_thread_is_lost_before_a_failure_is_judged() {
        let settings = Settings { window: Window::Calls(1_000), ..Settings::default() };
        let shared = SharedBreaker::new(settings, "upstream", "a");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let admitted = shared.admit(Tick(1)).expect("it is closed");
                        admitted.ended(Outcome::success(1), Tick(1));
                    }
                });
            }
        });
        shared.admit(Tick(2)).expect("it is closed").ended(Outcome::failure(1), Tick(2));
        let Judged { calls, failed, .. } = shared.seen(Tick(2));
        assert_eq!((calls, failed), (401, 1));
    }
}
