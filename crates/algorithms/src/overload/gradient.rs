//! How many requests an upstream can take at once, found by how long they take.
//!
//! ```text
//!   window of samples ──> mean ── little was under way: what a request takes without a queue (the base)
//!                          |
//!                          `──── otherwise: limit x (1.5 x base / mean, from 0.5 to 1) + its square root, a part of the way
//! ```
//!
//! A server that has reached its knee answers later with each further request, and no more of them. While the mean stays
//! within half again the base, the limit grows by its square root a window; beyond that it shrinks by the ratio. So some
//! queue is always there, by which a knee that moved up is found. The idea is that of Netflix's Gradient2 and of Envoy's
//! adaptive concurrency, the base is between theirs. A long-term mean (Gradient2) follows an overload that lasts until it
//! seems normal. The least time of all sees quick replies only, where an upstream has quick and slow ones. Envoy lowers the
//! limit to 3 from time to time; a quarter of the limit is enough, and costs an upstream with a limit of 100 far less.
//!
//! The base is the first mean. Then it goes half the way to each mean that was measured with little under way. Lower means with
//! more under way move nothing: quick replies beside slow ones fill a window of their own.
//!
//! The base may be wrong: after a stream of cheap requests, or since the server changed. A queue that is halved takes half as
//! long. Where half of what was under way takes as long as all of it did, that mean becomes the base; so it does where a few
//! requests take longer than they would one after another.
//!
//! Invariants: a probe lasts [`PROBE`] at most, whoever is answered; the limit is always from `least` to `most`; a limit that was not asked for does not grow; samples of requests
//! that began before the window count for nothing, since another limit held.
//!
//! A limit that holds nobody back makes no probes: what it measured would be the queue that is there all the same. Its base is measured
//! while little is under way of itself.
//!
//! Over 400 lines because the tests stand beside the state that they look into.

use crate::time::{SECOND, Tick};

/// A window lasts so long, in nanoseconds, and until it has [`SAMPLES`].
pub const WINDOW: u64 = SECOND / 5;
/// Samples that a mean is made of, at least.
pub const SAMPLES: u32 = 20;
/// Nanoseconds after which the base is measured again, at a quarter of the limit.
pub const REMEASURE: u64 = 30 * SECOND;
/// The same after a first mean that may have been of a queue.
pub const CONFIRM: u64 = 2 * SECOND;
/// Nanoseconds that this takes at most. Of servers that take longer anyway it would see nothing.
pub const PROBE: u64 = SECOND;
/// Samples that are enough for it.
pub const FEW: u32 = 5;

/// The limit that an upstream begins with.
const FIRST: u32 = 20;
/// What a mean may be of the base before it is a sign of a queue.
const TOLERANCE: f64 = 1.5;
/// How much of the way to the new limit is gone in one window.
const STEP: f64 = 0.3;
/// The part of the limit that counts as little.
const LITTLE: f64 = 0.25;
/// The limit at which even the strongest gradient is made up for by the growth.
const LOW: f64 = 4.0;

/// Between what the limit stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientSettings {
    /// The lowest limit, at least 1.
    pub least: u32,
    /// The highest limit.
    pub most: u32,
}

impl Default for GradientSettings {
    fn default() -> Self {
        Self { least: 3, most: 1_000 }
    }
}

/// The limit, and what it is made of.
#[derive(Clone, Debug)]
pub struct Gradient {
    settings: GradientSettings,
    limit: f64,
    /// Nanoseconds that a request takes without a queue, once that was seen.
    base: Option<f64>,
    /// The base is the first mean of all.
    is_first: bool,
    /// When it is to be measured again.
    due: Tick,
    /// Since when the window measures the base.
    probe: Option<Tick>,
    /// Whether the base is measured at a quarter of the limit.
    probes: bool,
    /// The longest mean since the limit shrinks, and the most that were under way.
    peak: Option<(f64, u32)>,
    window: GradientWindow,
}

#[derive(Clone, Copy, Debug, Default)]
struct GradientWindow {
    since: Option<Tick>,
    sum: f64,
    samples: u32,
    most: u32,
}

impl Gradient {
    /// A gradient that has seen nothing.
    #[must_use]
    pub fn new(settings: GradientSettings) -> Self {
        let limit = f64::from(FIRST).clamp(f64::from(settings.least), f64::from(settings.most));
        let (base, is_first, due, probe, peak) = (None, false, Tick(0), None, None);
        Self {
            settings,
            limit,
            base,
            is_first,
            due,
            probe,
            probes: true,
            peak,
            window: GradientWindow::default(),
        }
    }

    /// The same that makes probes, or makes none, since it holds nobody back.
    #[must_use]
    pub fn with_probes(self, probes: bool) -> Self {
        Self { probes, probe: None, ..self }
    }

    /// The requests that may be under way now.
    #[must_use]
    pub fn limit(&self, now: Tick) -> u32 {
        let is_probe = self.probe.is_some_and(|begun| now.since(begun) < PROBE);
        let limit = if is_probe { self.limit * LITTLE } else { self.limit };
        // In the range of the settings, which are whole.
        (limit as u32).clamp(self.settings.least, self.settings.most)
    }

    /// Nanoseconds that a request takes without a queue; 0: not known yet.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base.unwrap_or(0.0) as u64
    }

    /// A request was answered after `took` nanoseconds of its server; `under_way` were at most, while it was.
    pub fn sample(&mut self, took: u64, under_way: u32, now: Tick) {
        let since = *self.window.since.get_or_insert(Tick(now.0.saturating_sub(took)));
        if now.since(since) >= took {
            self.window.sum += took as f64;
            self.window.samples += 1;
            self.window.most = self.window.most.max(under_way);
        }
        let is_over = self.probe.is_some_and(|begun| now.since(begun) >= PROBE);
        let enough = if self.probe.is_some() { FEW } else { SAMPLES };
        if self.window.samples >= enough && now.since(since) >= WINDOW {
            let GradientWindow { sum, samples, most, .. } = std::mem::take(&mut self.window);
            self.window.since = Some(now);
            self.look(sum / f64::from(samples), most, now);
        } else if is_over {
            // It has seen too little, and what it saw was held up by others.
            (self.probe, self.due) = (None, Tick(now.0.saturating_add(REMEASURE)));
        }
    }

    /// What a window says.
    fn look(&mut self, mean: f64, most: u32, now: Tick) {
        let is_little = f64::from(most) <= (self.limit * LITTLE).max(1.0);
        let in_a_while = |nanoseconds| Tick(now.0.saturating_add(nanoseconds));
        let Some(base) = self.base else {
            (self.base, self.is_first, self.due) = (Some(mean), !is_little, in_a_while(CONFIRM));
            return;
        };
        if self.probe.is_some() || is_little {
            self.base = Some(if self.is_first { mean } else { f64::midpoint(base, mean) });
            (self.is_first, self.due, self.probe, self.peak) = (false, in_a_while(REMEASURE), None, None);
            return;
        }
        if self.is_wrong(base, mean, most) {
            (self.base, self.due, self.peak) = (Some(mean), in_a_while(REMEASURE), None);
        } else if self.probes && now >= self.due && base < PROBE as f64 {
            (self.probe, self.peak) = (Some(now), None);
        } else {
            self.adjust(base, mean, most);
        }
    }

    /// Whether what takes so long cannot be a queue.
    fn is_wrong(&self, base: f64, mean: f64, most: u32) -> bool {
        if mean <= TOLERANCE * base {
            return false;
        }
        let many = f64::from(most);
        let is_low = self.limit < 2.0 * LOW.max(f64::from(self.settings.least));
        // Half of a queue takes half as long, and what is no queue as long as before: between the two is the root.
        let has_stayed = self.peak.is_some_and(|(peak, at)| {
            many * 2.0 <= f64::from(at) && mean > peak * (many / f64::from(at)).sqrt()
        });
        has_stayed || (is_low && mean > TOLERANCE * base * many)
    }

    /// Moves the limit by the ratio of base and mean.
    fn adjust(&mut self, base: f64, mean: f64, most: u32) {
        let gradient = (TOLERANCE * base / mean.max(1.0)).clamp(0.5, 1.0);
        if gradient == 1.0 && f64::from(most) * 2.0 < self.limit {
            self.peak = None;
            return;
        }
        let target = self.limit * gradient + self.limit.sqrt();
        let (longest, at) = self.peak.unwrap_or((mean, most));
        self.peak = (target < self.limit).then(|| (longest.max(mean), at.max(most)));
        let (least, most) = (f64::from(self.settings.least), f64::from(self.settings.most));
        self.limit = (self.limit + STEP * (target - self.limit)).clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    const MS: u64 = SECOND / 1_000;

    /// A server with `workers`, each of which takes from half to one and a half of `service`, and clients that want
    /// `wanted` requests under way at any time.
    struct Simulated {
        workers: usize,
        service: u64,
        wanted: u32,
        random: Random,
        gradient: Gradient,
        now: u64,
        waiting: VecDeque<(u64, u32)>,
        /// When each ends, when it began, and how many were under way.
        served: BinaryHeap<Reverse<(u64, u64, u32)>>,
        done: u64,
    }

    impl Simulated {
        fn new(workers: usize, service: u64, wanted: u32, seed: u64) -> Self {
            let gradient = Gradient::new(GradientSettings::default());
            let (now, done) = (SECOND, 0);
            let (waiting, served) = (VecDeque::new(), BinaryHeap::new());
            let random = Random::seeded(seed);
            Self { workers, service, wanted, random, gradient, now, waiting, served, done }
        }

        fn limit(&self) -> u32 {
            self.gradient.limit(Tick(self.now))
        }

        fn under_way(&self) -> u32 {
            u32::try_from(self.waiting.len() + self.served.len()).unwrap()
        }

        fn run(&mut self, seconds: u64) {
            let end = self.now + seconds * SECOND;
            while self.now < end {
                while self.under_way() < self.limit().min(self.wanted) {
                    let many = self.under_way() + 1;
                    self.waiting.push_back((self.now, many));
                }
                while self.served.len() < self.workers {
                    let Some((begun, many)) = self.waiting.pop_front() else { break };
                    let took = (self.service as f64 * (0.5 + self.random.unit())) as u64;
                    self.served.push(Reverse((self.now + took, begun, many)));
                }
                let Reverse((ended, begun, many)) = self.served.pop().unwrap();
                self.now = ended;
                self.done += 1;
                self.gradient.sample(ended - begun, many, Tick(ended));
            }
        }
    }

    #[test]
    fn finds_the_knee_of_a_server_and_stays_beside_it() {
        for (workers, service) in [(4, 10 * MS), (20, 5 * MS), (50, 20 * MS), (200, 50 * MS)] {
            let mut it = Simulated::new(workers, service, 1_000, 7);
            it.run(90);
            let knee = workers as f64;
            let mut limits = Vec::new();
            let before = it.done;
            for _ in 0..60 {
                it.run(1);
                limits.push(it.limit());
            }
            let goodput = (it.done - before) as f64 / 60.0 / (knee * SECOND as f64 / service as f64);
            limits.sort_unstable();
            let median = f64::from(limits[30]);
            assert!(goodput > 0.97, "{workers}: {goodput} of what it can do");
            assert!(median >= knee && median <= 1.8 * knee + 2.0 * knee.sqrt(), "{workers}: {limits:?}");
        }
    }

    #[test]
    fn follows_a_server_that_loses_capacity_and_gets_it_back() {
        let mut it = Simulated::new(60, 10 * MS, 1_000, 3);
        it.run(60);
        let wide = it.limit();
        it.workers = 15;
        it.run(90);
        let narrow = it.limit();
        assert!(wide >= 60 && narrow < 45, "{wide} {narrow}");
        it.workers = 60;
        it.run(90);
        assert!(it.limit() >= 60, "{}", it.limit());
    }

    #[test]
    fn a_limit_that_nobody_reaches_does_not_grow() {
        let mut it = Simulated::new(1_000, 10 * MS, 6, 5);
        it.run(60);
        assert_eq!(it.limit(), FIRST);
    }

    /// Clients of a server without a bound that repeat, each with the time that its requests take; who is refused comes
    /// again after 100 ms. Returns replies, refusals and the lowest limit.
    fn repeating(gradient: &mut Gradient, clients: &[u64], from: u64, seconds: u64) -> (u64, u64, u32) {
        let mut events: BinaryHeap<_> =
            (0..clients.len()).map(|it| Reverse((from + it as u64 * MS, it, None))).collect();
        let (mut under_way, mut replies, mut refusals, mut lowest) = (0, 0, 0, u32::MAX);
        while let Some(Reverse((now, client, ended))) = events.pop() {
            if let Some((begun, many)) = ended {
                under_way -= 1;
                replies += 1;
                gradient.sample(now - begun, many, Tick(now));
            }
            let limit = gradient.limit(Tick(now));
            lowest = lowest.min(limit);
            if now >= from + seconds * SECOND {
                continue;
            }
            if under_way < limit {
                under_way += 1;
                events.push(Reverse((now + clients[client], client, Some((now, under_way)))));
            } else {
                refusals += 1;
                events.push(Reverse((now + 100 * MS, client, None)));
            }
        }
        (replies, refusals, lowest)
    }

    #[test]
    fn a_server_that_always_takes_long_is_not_held_at_a_quarter() {
        let mut gradient = Gradient::new(GradientSettings::default());
        assert_eq!(repeating(&mut gradient, &[2 * SECOND; 15], SECOND, 120), (900, 0, 20));
        // A measurement that is just possible is made, for a second at most in thirty.
        let mut gradient = Gradient::new(GradientSettings::default());
        let (replies, refusals, _) = repeating(&mut gradient, &[900 * MS; 15], SECOND, 120);
        assert!(replies > 1_800 && refusals < 5 * 120, "{replies} {refusals}");
    }

    #[test]
    fn a_probe_ends_in_time_though_nobody_is_answered() {
        let mut gradient = Gradient::new(GradientSettings::default());
        let mut now = SECOND;
        while gradient.probe.is_none() {
            now += 50 * MS;
            gradient.sample(50 * MS, 20, Tick(now));
            assert!(now < 60 * SECOND, "there is a probe");
        }
        assert!(gradient.limit(Tick(now + PROBE - 1)) < FIRST / 2);
        assert!(gradient.limit(Tick(now + PROBE)) >= FIRST);
    }

    /// As many as want to are under way. With probes their queue would be taken for what a request takes.
    #[test]
    fn a_limit_that_holds_nobody_back_is_not_wrong_about_a_queue_that_stays() {
        let mut gradient = Gradient::new(GradientSettings::default()).with_probes(false);
        let mut now = SECOND;
        for _ in 0..100 {
            now += 10 * MS;
            gradient.sample(10 * MS, 1, Tick(now));
        }
        assert_eq!((gradient.base(), gradient.limit(Tick(now))), (10 * MS, FIRST));
        for _ in 0..120_000 {
            now += MS;
            gradient.sample(200 * MS, 200, Tick(now));
        }
        assert_eq!(gradient.base(), 10 * MS);
        assert!(gradient.limit(Tick(now)) < 8, "{}", gradient.limit(Tick(now)));
    }

    #[test]
    fn a_stream_of_cheap_requests_does_not_make_an_outage_of_slow_ones() {
        let slow = [300 * MS; 30];
        let mixed: Vec<u64> = slow.iter().copied().chain([MS]).collect();
        for between in [&[MS][..], &mixed, &[MS; 12]] {
            let mut gradient = Gradient::new(GradientSettings::default());
            repeating(&mut gradient, &slow, SECOND, 60);
            let before = gradient.limit(Tick(61 * SECOND));
            repeating(&mut gradient, between, 62 * SECOND, 20);
            let known = gradient.base();
            let (replies, refusals, lowest) = repeating(&mut gradient, &slow, 90 * SECOND, 16);
            let of_all = replies as f64 / (16.0 * 30.0 / 0.3);
            assert!(of_all > 0.65 && lowest >= 4, "{before} {known}: {of_all} {refusals} {lowest}");
        }
    }

    #[test]
    fn a_server_that_is_overloaded_from_the_start_or_loses_most_of_itself_gets_less() {
        for seed in 0..20 {
            let mut it = Simulated::new(5, 20 * MS, 1_000, seed);
            it.run(20);
            assert!(it.limit() <= 25, "{seed}: {}", it.limit());
            let mut it = Simulated::new(100, 20 * MS, 1_000, seed);
            it.run(60);
            it.workers = 10;
            it.run(25);
            assert!(it.limit() <= 50, "{seed}: {}", it.limit());
        }
    }

    proptest! {
        /// Whatever is measured, the limit stays in its range.
        #[test]
        fn the_limit_stays_in_its_range(
            samples in prop::collection::vec((0_u64..10 * SECOND, 0_u32..2_000, 0_u64..SECOND), 1..600),
            least in 1_u32..50, more in 0_u32..500,
        ) {
            let mut gradient = Gradient::new(GradientSettings { least, most: least + more });
            let mut now = SECOND;
            for (took, under_way, passed) in samples {
                now += passed;
                gradient.sample(took, under_way, Tick(now));
                prop_assert!((least..=least + more).contains(&gradient.limit(Tick(now))));
            }
        }
    }
}
