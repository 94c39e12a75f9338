//! A measured step in the form that is kept: condensed, serialisable, with what it says of itself.
//!
//! The load engine's [`Measurement`] holds full histograms (about 1 MB a step). A [`StepRecord`]
//! keeps percentiles, a histogram in 5 % buckets and the timeline, so that a report of a hundred
//! steps stays small, and every judge reads records only: one that was just measured and one that
//! was read from a report a year later are judged by the same code.
//!
//! Invariants: a timeline has at most [`MAX_BUCKETS`] buckets (neighbours are merged); a histogram
//! has at most one entry per 5 % of its range; all times are microseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::stats::{little, mean};

use crate::measurement::{
    AgentShare, Bucket, ErrorClass, GeneratorLoad, Latency, Loop, Measurement, ServerCloses, StepPlan,
};
use crate::threshold::Metric;

/// Most buckets that a record's timeline keeps.
pub const MAX_BUCKETS: usize = 600;
/// Width of a histogram bucket, as a factor.
const BUCKET_FACTOR: f64 = 1.05;

/// A latency distribution, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Smallest.
    pub min_us: u64,
    /// Median.
    pub p50_us: u64,
    /// 90th percentile.
    pub p90_us: u64,
    /// 95th percentile.
    pub p95_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Largest.
    pub max_us: u64,
    /// Pairs (upper end, samples), ascending, empty buckets left out; each at most 5 % wide.
    pub histogram: Vec<(u64, u64)>,
}

impl LatencySummary {
    /// Condenses a histogram.
    #[must_use]
    pub fn of(latency: &Latency) -> Self {
        if latency.is_empty() {
            return Self::default();
        }
        let mut histogram: Vec<(u64, u64)> = Vec::new();
        for step in latency.iter_recorded() {
            let upper = bucket_end(step.value_iterated_to());
            match histogram.last_mut() {
                Some(last) if last.0 == upper => last.1 += step.count_at_value(),
                _ => histogram.push((upper, step.count_at_value())),
            }
        }
        let at = |q: f64| latency.value_at_quantile(q);
        Self {
            count: latency.len(),
            mean_us: latency.mean(),
            min_us: latency.min(),
            p50_us: at(0.50),
            p90_us: at(0.90),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: latency.max(),
            histogram,
        }
    }

    /// Share of samples from `low_us` to `high_us`, 0 to 1, to the histogram's precision.
    #[must_use]
    pub fn share_between(&self, low_us: u64, high_us: u64) -> f64 {
        let inside: u64 =
            self.histogram.iter().filter(|(upper, _)| (low_us..=high_us).contains(upper)).map(|b| b.1).sum();
        if self.count == 0 { 0.0 } else { inside as f64 / self.count as f64 }
    }
}

/// The end of the 5 % bucket that holds `value`: a power of 1.05, at least 1 more than the one before.
fn bucket_end(value: u64) -> u64 {
    let value = value.max(1) as f64;
    let exponent = (value.ln() / BUCKET_FACTOR.ln() - 1e-9).ceil();
    BUCKET_FACTOR.powf(exponent).ceil() as u64
}

/// A mean rate with its uncertainty, from batch means over the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Per second.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Degrees of freedom behind the error; 0 when the step was too short to have any.
    pub dof: f64,
}

/// Why a step's figure is not given as the server's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Refusal {
    /// Gate (a): the generator was the limit.
    GeneratorBound {
        /// 99th percentile of its own send lag, in microseconds.
        send_lag_p99_us: u64,
        /// Its busiest thread's share of a core.
        busiest_thread: f64,
        /// Share of its threads' time spent waiting for a core.
        run_delay: f64,
    },
    /// Gate (b): rate x latency does not give the stated concurrency.
    LittlesLaw {
        /// The two sides.
        check: little::Check,
    },
    /// Gate (c): measured for less than the shortest step that gives an interval.
    TooShort {
        /// Measured seconds.
        seconds: f64,
    },
}

/// One step, condensed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// What was asked for.
    pub plan: StepPlan,
    /// Seconds in which its connections were opened, before its first request.
    #[serde(default)]
    pub opening_seconds: f64,
    /// Measured seconds, warm-up left out.
    pub seconds: f64,
    /// Most connections established at one time.
    pub established: u32,
    /// Requests sent.
    pub sent: u64,
    /// Good replies.
    pub good: u64,
    /// Denials.
    pub denied: u64,
    /// Errors by class.
    pub errors: BTreeMap<ErrorClass, u64>,
    /// What the server ended between two requests; not there when that was nothing.
    #[serde(default, skip_serializing_if = "ServerCloses::is_none")]
    pub closes: ServerCloses,
    /// Replies by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Good replies per second.
    pub throughput: Rate,
    /// From the planned send.
    pub response: LatencySummary,
    /// From the actual send.
    pub service: LatencySummary,
    /// Time to connect.
    pub connect: LatencySummary,
    /// From there to the end of the handshake (TLS); no samples without one.
    #[serde(default)]
    pub handshake: LatencySummary,
    /// Time to the first byte.
    pub first_byte: LatencySummary,
    /// Response time of denials.
    pub denied_response: LatencySummary,
    /// Mean requests in flight.
    pub mean_in_flight: f64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Length of a bucket, in milliseconds.
    pub bucket_ms: u64,
    /// The step over time, in whole buckets.
    pub timeline: Vec<Bucket>,
    /// The generator's audit of itself.
    pub generator: GeneratorLoad,
    /// The agents that made the load, those that were lost among them; empty: one machine did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentShare>,
    /// Rate x latency against the stated concurrency (closed loop) or the counted one (open loop).
    pub little: little::Check,
    /// Why the figure is not the server's; empty when it is.
    pub refusals: Vec<Refusal>,
}

impl StepRecord {
    /// Condenses a measurement. Refusals are added by `discover::gates`.
    #[must_use]
    pub fn of(measurement: &Measurement) -> Self {
        let m = measurement;
        let (bucket_ms, timeline) = merged(m.bucket_ms, whole_buckets(m));
        Self {
            plan: m.plan.clone(),
            opening_seconds: m.opening_seconds,
            seconds: m.seconds,
            established: m.established,
            sent: m.sent,
            good: m.good,
            denied: m.denied,
            errors: m.errors.clone(),
            closes: m.closes,
            statuses: m.statuses.clone(),
            throughput: rate(m),
            response: LatencySummary::of(&m.response),
            service: LatencySummary::of(&m.service),
            connect: LatencySummary::of(&m.connect),
            handshake: LatencySummary::of(&m.handshake),
            first_byte: LatencySummary::of(&m.first_byte),
            denied_response: LatencySummary::of(&m.denied_response),
            mean_in_flight: m.mean_in_flight,
            bytes_read: m.bytes_read,
            bytes_written: m.bytes_written,
            bucket_ms,
            timeline,
            generator: m.generator,
            agents: m.agents.clone(),
            little: law(m),
            refusals: Vec::new(),
        }
    }

    /// The load level: connections in a closed loop, requests per second in an open one.
    #[must_use]
    pub fn load(&self) -> f64 {
        match self.plan.discipline {
            Loop::Closed { .. } => f64::from(self.plan.connections),
            Loop::Open { rate, .. } => rate,
        }
    }

    /// Errors of every class.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Everything that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.good + self.denied + self.error_count()
    }

    /// Errors over everything that ended.
    #[must_use]
    pub fn error_ratio(&self) -> f64 {
        ratio(self.error_count(), self.ended())
    }

    /// Denials over everything that ended.
    #[must_use]
    pub fn denied_ratio(&self) -> f64 {
        ratio(self.denied, self.ended())
    }

    /// Errors of one class.
    #[must_use]
    pub fn errors_of(&self, class: ErrorClass) -> u64 {
        self.errors.get(&class).copied().unwrap_or(0)
    }

    /// Whether the generator was the limit.
    #[must_use]
    pub fn generator_bound(&self) -> bool {
        self.refusals.iter().any(|r| matches!(r, Refusal::GeneratorBound { .. }))
    }

    /// Whether the figure may stand as the server's. A short step may, with its gate reported.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.refusals.iter().all(|r| matches!(r, Refusal::TooShort { .. }))
    }

    /// The figure that a threshold looks at, in the metric's unit; no number when the step has none.
    #[must_use]
    pub fn figure(&self, metric: Metric) -> f64 {
        let time = |us: f64| if self.response.count == 0 { f64::NAN } else { us };
        match metric {
            Metric::P50 => time(self.response.p50_us as f64),
            Metric::P90 => time(self.response.p90_us as f64),
            Metric::P95 => time(self.response.p95_us as f64),
            Metric::P99 => time(self.response.p99_us as f64),
            Metric::P999 => time(self.response.p999_us as f64),
            Metric::Mean => time(self.response.mean_us),
            Metric::Max => time(self.response.max_us as f64),
            // Of nothing that ended there is no share: a service that never replies is not free of errors.
            Metric::Errors | Metric::Denied if self.ended() == 0 => f64::NAN,
            Metric::Errors => self.error_ratio(),
            Metric::Denied => self.denied_ratio(),
            Metric::Throughput => self.throughput.mean,
        }
    }

    /// Good replies per second in each bucket.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.timeline.iter().map(|b| b.good as f64 * 1_000.0 / self.bucket_ms.max(1) as f64).collect()
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn rate(m: &Measurement) -> Rate {
    let series: Vec<f64> =
        whole_buckets(m).iter().map(|b| b.good as f64 * 1_000.0 / m.bucket_ms.max(1) as f64).collect();
    // The counted mean is exact; the buckets say how far it can be trusted.
    match mean::batch_means(&series) {
        Some(estimate) => Rate { mean: m.throughput(), error: estimate.error, dof: estimate.dof },
        None => Rate { mean: m.throughput(), error: 0.0, dof: 0.0 },
    }
}

fn law(m: &Measurement) -> little::Check {
    let seconds = m.seconds.max(1e-9);
    let busy = |latency: &Latency, count: u64| count as f64 * latency.mean() / 1e6;
    match m.plan.discipline {
        Loop::Closed { think_us } => {
            let ended = (m.good + m.denied) as f64;
            let total = busy(&m.response, m.good) + busy(&m.denied_response, m.denied);
            let latency = if ended > 0.0 { total / ended } else { 0.0 };
            little::check(ended / seconds, latency, think_us as f64 / 1e6, f64::from(m.plan.connections))
        }
        Loop::Open { .. } => {
            let total = busy(&m.service, m.good) + busy(&m.denied_response, m.denied);
            little::check(total / seconds, 1.0, 0.0, m.mean_in_flight)
        }
    }
}

/// The timeline without its last bucket when the step ended within that: a rate over a few
/// milliseconds would look like a stall.
fn whole_buckets(m: &Measurement) -> &[Bucket] {
    // Half a millisecond of tolerance: a step of 2 s that measured 1.9997 s has its twenty buckets.
    let whole = ((m.seconds * 1e3 + 0.5) / m.bucket_ms.max(1) as f64).floor() as usize;
    &m.timeline[..m.timeline.len().min(whole.max(1))]
}

fn merged(bucket_ms: u64, timeline: &[Bucket]) -> (u64, Vec<Bucket>) {
    let group = timeline.len().div_ceil(MAX_BUCKETS).max(1);
    let join = |part: &[Bucket]| {
        part.iter().fold(Bucket::default(), |sum, b| Bucket {
            good: sum.good + b.good,
            denied: sum.denied + b.denied,
            errors: sum.errors + b.errors,
            max_us: sum.max_us.max(b.max_us),
            sum_us: sum.sum_us + b.sum_us,
            in_flight: b.in_flight,
        })
    };
    (bucket_ms * group as u64, timeline.chunks(group).map(join).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Bench, latency};
    use crate::simulated::{Service, closed};
    use proptest::prelude::*;

    #[test]
    fn a_long_timeline_is_merged_without_losing_a_count() {
        let timeline: Vec<Bucket> = (0..1_801).map(|i| Bucket { good: i, ..Bucket::default() }).collect();
        let (ms, kept) = merged(100, &timeline);
        assert_eq!((ms, kept.len()), (400, 451));
        assert_eq!(kept.iter().map(|b| b.good).sum::<u64>(), (0..1_801).sum::<u64>());
    }

    #[test]
    fn a_bucket_that_the_step_did_not_fill_is_no_stall() {
        let mut m = Service::new(4, 10_000.0).run(&closed(4)).unwrap();
        m.seconds = 5.004;
        m.timeline.push(Bucket { good: 1, ..Bucket::default() });
        let record = StepRecord::of(&m);
        assert_eq!(record.timeline.len(), 50);
        assert!(record.throughput.error < 3.0, "{:?}", record.throughput);
    }

    proptest! {
        #[test]
        fn condensing_keeps_every_sample_within_its_bucket(values in prop::collection::vec(1_u64..10_000_000, 1..300)) {
            let mut full = latency();
            values.iter().for_each(|&v| full.record(v).unwrap());
            let kept = LatencySummary::of(&full);
            prop_assert_eq!(kept.histogram.iter().map(|b| b.1).sum::<u64>(), values.len() as u64);
            prop_assert!(kept.histogram.windows(2).all(|w| w[0].0 < w[1].0));
            let largest = *values.iter().max().unwrap() as f64;
            let end = kept.histogram.last().unwrap().0 as f64;
            prop_assert!(end >= largest && end <= largest * 1.06 + 2.0, "{} for {}", end, largest);
        }
    }
}
