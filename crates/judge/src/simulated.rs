//! A simulated service, which exists only as a queue: the judges are tested on it, since the truth about it is known.
//!
//! ```text
//!   generator (n threads) --rtt/2--> [admission] -> FIFO -> c workers --rtt/2--> reply
//!                                                           stalls, drift, noise
//! ```
//!
//! One heap of connections ordered by when each is next free drives both loops: the links have a
//! constant delay and the queue is first come first served, so requests can be handled in the order
//! of their sends and each one's whole life is known when it is sent. Beside each measurement the
//! simulation writes the kernel's and the server's evidence as a real machine would show it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;

use tidegate_algorithms::random::Random;

use crate::measurement::{
    Bench, Bucket, ErrorClass, GeneratorLoad, Latency, Loop, Measurement, StepPlan, latency,
};

const BUCKET_US: u64 = 100_000;

/// A planted service and the client that calls it.
#[derive(Clone, Debug)]
pub struct Service {
    /// Decides everything random.
    pub seed: u64,
    /// Requests served at one time.
    pub workers: u32,
    /// Time of one request at a worker.
    pub service_us: f64,
    /// Relative spread of service times: 0 fixed, 1 exponential.
    pub spread: f64,
    /// Growth of the service time with the square of the connections (USL's kappa).
    pub coherency: f64,
    /// Round trip.
    pub rtt_us: f64,
    /// Waiting or served requests above which the answer is a denial.
    pub admit: Option<u32>,
    /// Every period, all workers stop for a length: (period, length).
    pub stall_us: Option<(f64, f64)>,
    /// Growth of the service time per second of running, as a ratio.
    pub drift: f64,
    /// Threads of the generator.
    pub generator_threads: u32,
    /// CPU time of one request at the generator.
    pub generator_us: f64,
    /// Connections that the client's ports allow.
    pub ports: u32,
    /// Connections that the client's descriptors allow.
    pub client_descriptors: u32,
    /// Connections that the server's descriptors allow.
    pub server_descriptors: u32,
    /// Connections made at once that the accept queue holds.
    pub backlog: u32,
    /// Longest time to a reply.
    pub timeout_us: f64,
    /// Virtual time since the start of the run.
    pub clock_us: f64,
    runs: u64,
}

impl Service {
    /// `workers` workers with a fixed service time, on a loopback without other limits.
    #[must_use]
    pub fn new(workers: u32, service_us: f64) -> Self {
        Self {
            seed: 1,
            workers,
            service_us,
            spread: 0.0,
            coherency: 0.0,
            rtt_us: 50.0,
            admit: None,
            stall_us: None,
            drift: 0.0,
            generator_threads: 2,
            generator_us: 5.0,
            ports: u32::MAX,
            client_descriptors: u32::MAX,
            server_descriptors: u32::MAX,
            backlog: u32::MAX,
            timeout_us: 10_000_000.0,
            clock_us: 0.0,
            runs: 0,
        }
    }

    /// The same with another seed.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Requests per second that the workers can serve at most.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        f64::from(self.workers) * 1e6 / self.service_us
    }

    fn work(&self, random: &mut Random, plan: &StepPlan, at_us: f64) -> f64 {
        let n = f64::from(plan.connections);
        let slower = 1.0 + self.coherency * n * (n - 1.0) + self.drift * (self.clock_us + at_us) / 1e6;
        let noise =
            if self.spread > 0.0 { 1.0 - self.spread + self.spread * random.exponential() } else { 1.0 };
        self.service_us * slower * noise
    }

    /// When work begun at `start` ends, with the stalls in between.
    fn end_of(&self, start: f64, mut work: f64) -> f64 {
        let Some((period, length)) = self.stall_us else { return start + work };
        let mut now = start;
        loop {
            let phase = (self.clock_us + now) % period;
            // The extra microsecond keeps rounding from standing still at an edge.
            if phase < length {
                now += length - phase + 1.0;
                continue;
            }
            if phase + work <= period {
                return now + work;
            }
            work -= period - phase;
            now += period - phase + 1.0;
        }
    }
}

/// One connection, ordered by when it may send next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    nanos: u64,
    id: u32,
}

/// One request's times in microseconds, and its fate.
struct Life {
    planned: f64,
    at: f64,
    sent: f64,
    reply: f64,
    denied: bool,
}

struct StepTally {
    from: f64,
    to: f64,
    m: Measurement,
    lags: Latency,
    in_flight_us: f64,
}

impl Bench for Service {
    type Error = Infallible;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, Infallible> {
        self.runs += 1;
        let mut random = Random::seeded(self.seed.wrapping_mul(1_000_003).wrapping_add(self.runs));
        let from = plan.warmup_ms as f64 * 1e3;
        let to = from + plan.measure_ms as f64 * 1e3;
        let usable = plan.connections.min(self.ports).min(self.client_descriptors);
        let mut tally = StepTally::new(plan, from, to, usable.min(self.server_descriptors));
        self.connect(plan, usable, &mut tally);
        self.requests(plan, usable, &mut random, &mut tally);
        self.clock_us += to;
        Ok(tally.finish(self))
    }
}

impl Service {
    /// Connections beyond the backlog come back after 1, 3 and 7 s; beyond the ports they fail.
    fn connect(&self, plan: &StepPlan, usable: u32, tally: &mut StepTally) {
        let tries = (plan.measure_ms / 100).max(1);
        for (limit, class) in [
            (self.ports, ErrorClass::AddressNotAvailable),
            (self.client_descriptors, ErrorClass::TooManyFiles),
        ] {
            let missing = u64::from(plan.connections.saturating_sub(limit));
            if missing > 0 {
                *tally.m.errors.entry(class).or_default() += missing * tries;
            }
        }
        for id in 0..usable {
            let us = self.rtt_us + self.late_us(id);
            tally.m.connect.saturating_record(us.max(1.0) as u64);
        }
        let hung = u64::from(usable.saturating_sub(self.server_descriptors));
        if hung > 0 {
            let waits = (plan.measure_ms as f64 * 1e3 / self.timeout_us).ceil() as u64;
            *tally.m.errors.entry(ErrorClass::Timeout).or_default() += hung * waits.max(1);
        }
    }

    fn late_us(&self, id: u32) -> f64 {
        let round = (id / self.backlog.max(1)).min(3);
        [0.0, 1e6, 3e6, 7e6][round as usize]
    }

    fn requests(&self, plan: &StepPlan, usable: u32, random: &mut Random, tally: &mut StepTally) {
        let live = usable.min(self.server_descriptors);
        let mut free: BinaryHeap<Reverse<Free>> = (0..live)
            .map(|id| Reverse(Free { nanos: (self.late_us(id) * 1e3) as u64 + u64::from(id) * 97, id }))
            .collect();
        let mut workers: BinaryHeap<Reverse<u64>> = (0..self.workers).map(|_| Reverse(0)).collect();
        let mut generators = vec![0.0_f64; self.generator_threads.max(1) as usize];
        let mut inside: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        let mut due = 0.0;
        while let Some(Reverse(next)) = free.pop() {
            let ready = next.nanos as f64 / 1e3;
            let planned = match plan.discipline {
                Loop::Closed { .. } => ready,
                Loop::Open { rate, poisson } => {
                    due += if poisson { 1e6 / rate * random.exponential() } else { 1e6 / rate };
                    due
                }
            };
            let at = planned.max(ready);
            if at >= tally.to {
                break;
            }
            let slot = &mut generators[next.id as usize % self.generator_threads.max(1) as usize];
            let sent = slot.max(at) + self.generator_us;
            *slot = sent;
            let arrival = sent + self.rtt_us / 2.0;
            while inside.peek().is_some_and(|Reverse(t)| (*t as f64) < arrival * 1e3) {
                inside.pop();
            }
            let denied = self.admit.is_some_and(|most| inside.len() >= most as usize);
            let end = if denied {
                arrival + 2_000.0
            } else {
                let Some(Reverse(idle)) = workers.pop() else { break };
                let end = self.end_of(arrival.max(idle as f64 / 1e3), self.work(random, plan, arrival));
                workers.push(Reverse((end * 1e3) as u64));
                inside.push(Reverse((end * 1e3) as u64));
                end
            };
            let reply = end + self.rtt_us / 2.0;
            let life = Life { planned, at, sent, reply, denied };
            let back = tally.record(&life, self.timeout_us);
            let think = if let Loop::Closed { think_us } = plan.discipline { think_us as f64 } else { 0.0 };
            free.push(Reverse(Free { nanos: ((back + think) * 1e3) as u64, id: next.id }));
        }
    }
}

impl StepTally {
    fn new(plan: &StepPlan, from: f64, to: f64, established: u32) -> Self {
        let buckets = ((to - from) / BUCKET_US as f64).ceil() as usize;
        let empty = Measurement::empty(plan, (to - from) / 1e6, BUCKET_US / 1_000);
        let m = Measurement { established, timeline: vec![Bucket::default(); buckets], ..empty };
        Self { from, to, m, lags: latency(), in_flight_us: 0.0 }
    }

    /// Counts one request and says when its connection is free again.
    fn record(&mut self, life: &Life, timeout: f64) -> f64 {
        let Life { planned, at, sent, reply, denied } = *life;
        let late = reply - sent > timeout;
        let back = if late { sent + timeout } else { reply };
        self.in_flight_us += (back.min(self.to) - sent.max(self.from)).max(0.0);
        if (self.from..self.to).contains(&sent) {
            self.m.sent += 1;
            self.lags.saturating_record((sent - at).max(1.0) as u64);
        }
        if !(self.from..self.to).contains(&back) {
            return back;
        }
        let response = (back - planned).max(1.0) as u64;
        let bucket = &mut self.m.timeline[((back - self.from) / BUCKET_US as f64) as usize];
        bucket.max_us = bucket.max_us.max(response);
        if late {
            bucket.errors += 1;
            *self.m.errors.entry(ErrorClass::Timeout).or_default() += 1;
        } else if denied {
            bucket.denied += 1;
            self.m.denied += 1;
            *self.m.statuses.entry(429).or_default() += 1;
            self.m.denied_response.saturating_record(response);
        } else {
            bucket.good += 1;
            bucket.sum_us += response;
            self.m.good += 1;
            *self.m.statuses.entry(200).or_default() += 1;
            self.m.response.saturating_record(response);
            self.m.service.saturating_record((back - sent).max(1.0) as u64);
            self.m.first_byte.saturating_record((back - sent).max(1.0) as u64);
        }
        back
    }

    fn finish(mut self, service: &Service) -> Measurement {
        let window = self.to - self.from;
        self.m.mean_in_flight = self.in_flight_us / window;
        let share =
            self.m.sent as f64 * service.generator_us / f64::from(service.generator_threads.max(1)) / window;
        self.m.generator = GeneratorLoad {
            send_lag_p99_us: self.lags.value_at_quantile(0.99).saturating_sub(service.generator_us as u64),
            cpu_seconds: self.m.sent as f64 * service.generator_us / 1e6,
            busiest_thread: share.min(1.0),
            run_delay_seconds: 0.0,
            threads: service.generator_threads,
        };
        self.m
    }
}

/// A closed step of `connections` for 5 s after 1 s of warm-up.
#[must_use]
pub fn closed(connections: u32) -> StepPlan {
    StepPlan {
        connections,
        discipline: Loop::Closed { think_us: 0 },
        warmup_ms: 1_000,
        measure_ms: 5_000,
        max_requests: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulation_has_the_rate_that_queueing_gives() {
        let run = |n: u32| Service::new(8, 10_000.0).run(&closed(n)).unwrap();
        assert!((run(4).throughput() - 4.0 / 0.010_055).abs() < 4.0);
        let full = run(64);
        assert!((full.throughput() - 800.0).abs() < 5.0, "{}", full.throughput());
        assert!((full.response.mean() - 80_000.0).abs() < 1_000.0, "{}", full.response.mean());
        assert!((full.mean_in_flight - 64.0).abs() < 1.0);
    }

    /// A server that stands still for 1 s in a 10 s open-loop run at 1,000/s on 50 connections has p90 219 ms, p99
    /// 932 ms and a maximum of 1,010 ms.
    #[test]
    fn a_frozen_server_shows_in_the_response_time() {
        let mut service = Service::new(50, 10_000.0);
        service.stall_us = Some((10_000_000.0, 1_000_000.0));
        let plan = StepPlan {
            connections: 50,
            discipline: Loop::Open { rate: 1_000.0, poisson: false },
            warmup_ms: 0,
            measure_ms: 10_000,
            max_requests: 0,
        };
        let found = service.run(&plan).unwrap();
        let at = |q| found.response.value_at_quantile(q) as f64 / 1e3;
        assert!((at(0.90) - 219.0).abs() < 15.0, "{}", at(0.90));
        assert!((at(0.99) - 932.0).abs() < 28.0, "{}", at(0.99));
        assert!((at(1.0) - 1_010.0).abs() < 30.0, "{}", at(1.0));
        assert!(found.service.value_at_quantile(0.90) < 12_000);
    }
}
