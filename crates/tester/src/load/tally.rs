//! The counts of one thread, and how the threads' counts become a [`Measurement`].
//!
//! A request belongs to the measured time by its *planned* send in an open loop (so that a request
//! that the server's stall made late still counts), by its end in a closed one. Requests in flight
//! are integrated over time from their sends and ends, not derived from latencies: Little's law can
//! then be checked against it.

use tidegate_judge::measurement::{
    Bucket, ErrorClass, Latency, Measurement, ServerCloses, StepPlan, latency,
};

use super::selfwatch::ThreadLoad;

/// All error classes, in the order of their counters.
pub(crate) const CLASSES: [ErrorClass; 9] = [
    ErrorClass::Refused,
    ErrorClass::Reset,
    ErrorClass::Timeout,
    ErrorClass::AddressNotAvailable,
    ErrorClass::TooManyFiles,
    ErrorClass::Protocol,
    ErrorClass::BadStatus,
    ErrorClass::FailedCheck,
    ErrorClass::Other,
];

/// Statuses above this are counted together with it.
const MAX_STATUS: usize = 999;
/// Buckets of a timeline, at most; beyond, the bucket is made longer.
const MAX_BUCKETS: u64 = 1_200;
const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

/// Length of a timeline bucket for a measured time, in milliseconds: 100, or more for long runs.
pub(crate) fn bucket_ms(measure_ms: u64) -> u64 {
    100 * measure_ms.div_ceil(100 * MAX_BUCKETS).max(1)
}

/// One thread's counts over one step. Times are nanoseconds since the engine's epoch.
pub(crate) struct Tally {
    start: u64,
    end: u64,
    bucket_ns: u64,
    pub(crate) sent: u64,
    pub(crate) good: u64,
    pub(crate) denied: u64,
    pub(crate) errors: [u64; CLASSES.len()],
    pub(crate) closes: ServerCloses,
    statuses: Vec<u64>,
    response: Latency,
    service: Latency,
    connect: Latency,
    handshake: Latency,
    first_byte: Latency,
    denied_response: Latency,
    lag: Latency,
    bytes_read: u64,
    bytes_written: u64,
    timeline: Vec<Bucket>,
    in_flight: u64,
    integral: u128,
    integrated_to: u64,
    alive: u32,
    alive_max: u32,
    load_at_start: ThreadLoad,
    load: ThreadLoad,
}

/// A reply's moments, in nanoseconds since the engine's epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) planned: u64,
    pub(crate) sent: u64,
    pub(crate) first_byte: u64,
    pub(crate) ended: u64,
}

impl Tally {
    /// Counts for a step whose beginning is not known yet.
    pub(crate) fn new(plan: &StepPlan) -> Self {
        let bucket_ns = bucket_ms(plan.measure_ms) * MILLI;
        let buckets = (plan.measure_ms * MILLI).div_ceil(bucket_ns);
        Self {
            start: u64::MAX,
            end: u64::MAX,
            bucket_ns,
            sent: 0,
            good: 0,
            denied: 0,
            errors: [0; CLASSES.len()],
            closes: ServerCloses::default(),
            statuses: vec![0; MAX_STATUS + 1],
            response: latency(),
            service: latency(),
            connect: latency(),
            handshake: latency(),
            first_byte: latency(),
            denied_response: latency(),
            lag: latency(),
            bytes_read: 0,
            bytes_written: 0,
            timeline: Vec::with_capacity(usize::try_from(buckets).unwrap_or(0) + 64),
            in_flight: 0,
            integral: 0,
            integrated_to: u64::MAX,
            alive: 0,
            alive_max: 0,
            load_at_start: ThreadLoad::default(),
            load: ThreadLoad::default(),
        }
    }

    /// The measured time will begin at `start`.
    pub(crate) fn start_at(&mut self, start: u64) {
        self.start = start;
        self.integrated_to = start;
    }

    /// The measured time begins: connections stay, everything else starts from here.
    pub(crate) fn begin(&mut self) {
        self.alive_max = self.alive;
        self.load_at_start = ThreadLoad::read();
    }

    /// The measured time is over at `now`; returns its length in nanoseconds.
    pub(crate) fn finish(&mut self, now: u64) -> u64 {
        let now = now.max(self.start);
        self.integrate(now);
        self.end = now;
        self.load = ThreadLoad::read().since(self.load_at_start);
        self.end - self.start
    }

    /// Whether `at` lies at or after the beginning of the measured time.
    pub(crate) fn counts(&self, at: u64) -> bool {
        at >= self.start
    }

    pub(crate) fn connect_took(&mut self, took: u64) {
        self.connect.saturating_record(took / MICRO);
    }

    pub(crate) fn handshake_took(&mut self, took: u64) {
        self.handshake.saturating_record((took / MICRO).max(1));
    }

    /// One more connection takes requests.
    pub(crate) fn connected(&mut self) {
        self.alive += 1;
        self.alive_max = self.alive_max.max(self.alive);
    }

    pub(crate) fn disconnected(&mut self) {
        self.alive = self.alive.saturating_sub(1);
    }

    pub(crate) fn alive(&self) -> u32 {
        self.alive
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A request went out. `late_by`: how late it was by this generator's own doing.
    pub(crate) fn sent(&mut self, now: u64, counted: bool, bytes: usize, late_by: u64) {
        self.integrate(now);
        self.in_flight += 1;
        if counted {
            self.sent += 1;
            self.bytes_written += bytes as u64;
            self.lag.saturating_record(late_by / MICRO);
        }
    }

    /// A request went out again, on another connection: it is in flight again, and counted as sent before.
    pub(crate) fn sent_again(&mut self, now: u64, counted: bool, bytes: usize) {
        self.integrate(now);
        self.in_flight += 1;
        if counted {
            self.bytes_written += bytes as u64;
        }
    }

    pub(crate) fn received(&mut self, now: u64, bytes: usize) {
        if now >= self.start {
            self.bytes_read += bytes as u64;
        }
    }

    /// A request left the wire, whatever became of it.
    pub(crate) fn landed(&mut self, now: u64) {
        self.integrate(now);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    pub(crate) fn status(&mut self, status: u16) {
        if status > 0 {
            self.statuses[usize::from(status).min(MAX_STATUS)] += 1;
        }
    }

    pub(crate) fn good(&mut self, at: Moments) {
        let response = (at.ended.saturating_sub(at.planned) / MICRO).max(1);
        self.good += 1;
        self.response.saturating_record(response);
        self.service.saturating_record((at.ended.saturating_sub(at.sent) / MICRO).max(1));
        self.first_byte.saturating_record((at.first_byte.saturating_sub(at.sent) / MICRO).max(1));
        let bucket = self.bucket(at.ended);
        bucket.good += 1;
        bucket.sum_us += response;
        bucket.max_us = bucket.max_us.max(response);
    }

    pub(crate) fn denied(&mut self, at: Moments) {
        let response = (at.ended.saturating_sub(at.planned) / MICRO).max(1);
        self.denied += 1;
        self.denied_response.saturating_record(response);
        let bucket = self.bucket(at.ended);
        bucket.denied += 1;
        bucket.max_us = bucket.max_us.max(response);
    }

    pub(crate) fn failed(&mut self, now: u64, class: ErrorClass) {
        self.errors[class as usize] += 1;
        if now >= self.start {
            self.bucket(now).errors += 1;
        }
    }

    /// Adds the time since the last change, weighted by the requests in flight.
    fn integrate(&mut self, now: u64) {
        let now = now.min(self.end);
        if now > self.integrated_to {
            if self.in_flight > 0 {
                self.integral += u128::from(self.in_flight) * u128::from(now - self.integrated_to);
            }
            self.fill(now);
            self.integrated_to = now;
        }
    }

    /// Notes the requests in flight at the end of every bucket up to `now`.
    fn fill(&mut self, now: u64) {
        let reached = usize::try_from((now - self.start) / self.bucket_ns).unwrap_or(usize::MAX);
        while self.timeline.len() < reached.min(MAX_BUCKETS as usize * 2) {
            self.timeline.push(Bucket::default());
        }
        let last = usize::try_from((self.integrated_to - self.start) / self.bucket_ns).unwrap_or(usize::MAX);
        for bucket in self.timeline.iter_mut().take(reached).skip(last) {
            bucket.in_flight = self.in_flight;
        }
    }

    fn bucket(&mut self, at: u64) -> &mut Bucket {
        let index = usize::try_from(at.saturating_sub(self.start) / self.bucket_ns).unwrap_or(usize::MAX);
        let index = index.min(MAX_BUCKETS as usize * 2 - 1);
        if self.timeline.len() <= index {
            self.timeline.resize(index + 1, Bucket::default());
        }
        &mut self.timeline[index]
    }
}

/// Adds up the threads of a step.
pub(crate) fn measurement(plan: &StepPlan, tallies: &[Tally]) -> Measurement {
    let seconds = tallies.iter().map(|tally| tally.end - tally.start).max().unwrap_or(0) as f64 / 1e9;
    let mut sum = Measurement::empty(plan, seconds, bucket_ms(plan.measure_ms));
    sum.generator.threads = u32::try_from(tallies.len()).unwrap_or(u32::MAX);
    let mut lag = latency();
    for tally in tallies {
        sum.established += tally.alive_max;
        sum.sent += tally.sent;
        sum.good += tally.good;
        sum.denied += tally.denied;
        sum.closes.add(&tally.closes);
        for (class, &count) in CLASSES.iter().zip(&tally.errors).filter(|(_, count)| **count > 0) {
            *sum.errors.entry(*class).or_default() += count;
        }
        for (status, &count) in tally.statuses.iter().enumerate().filter(|(_, count)| **count > 0) {
            *sum.statuses.entry(status as u16).or_default() += count;
        }
        for (into, from) in [
            (&mut sum.response, &tally.response),
            (&mut sum.service, &tally.service),
            (&mut sum.connect, &tally.connect),
            (&mut sum.handshake, &tally.handshake),
            (&mut sum.first_byte, &tally.first_byte),
            (&mut sum.denied_response, &tally.denied_response),
            (&mut lag, &tally.lag),
        ] {
            // Invariant: both were made by `latency`, so that their ranges are equal.
            into.add(from).expect("equal ranges");
        }
        let own_seconds = (tally.end - tally.start) as f64 / 1e9;
        if own_seconds > 0.0 {
            sum.mean_in_flight += tally.integral as f64 / 1e9 / own_seconds;
            let share = tally.load.cpu_ns as f64 / 1e9 / own_seconds;
            sum.generator.busiest_thread = sum.generator.busiest_thread.max(share.min(1.0));
        }
        sum.bytes_read += tally.bytes_read;
        sum.bytes_written += tally.bytes_written;
        sum.generator.cpu_seconds += tally.load.cpu_ns as f64 / 1e9;
        sum.generator.run_delay_seconds += tally.load.run_delay_ns as f64 / 1e9;
        add_timeline(&mut sum.timeline, &tally.timeline);
    }
    sum.generator.send_lag_p99_us = lag.value_at_quantile(0.99);
    sum
}

/// Adds one timeline to another, bucket by bucket.
pub(crate) fn add_timeline(sum: &mut Vec<Bucket>, part: &[Bucket]) {
    if sum.len() < part.len() {
        sum.resize(part.len(), Bucket::default());
    }
    for (into, from) in sum.iter_mut().zip(part) {
        into.good += from.good;
        into.denied += from.denied;
        into.errors += from.errors;
        into.max_us = into.max_us.max(from.max_us);
        into.sum_us += from.sum_us;
        into.in_flight += from.in_flight;
    }
}
