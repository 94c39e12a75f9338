//! A whole [`Measurement`] in a form that can be sent to another process, and the sum of several.
//!
//! Histograms are lists of (value in microseconds, count): exact, so that percentiles of the sum are
//! those of one process. (What is *kept* of a step is condensed: [`tidegate_judge::record`].)

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tidegate_judge::measurement::{
    Bucket, ErrorClass, GeneratorLoad, Latency, Measurement, ServerCloses, StepPlan, latency,
};

/// A measurement on its way to the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Transfer {
    plan: StepPlan,
    opening_seconds: f64,
    seconds: f64,
    established: u32,
    sent: u64,
    good: u64,
    denied: u64,
    errors: BTreeMap<ErrorClass, u64>,
    closes: ServerCloses,
    statuses: BTreeMap<u16, u64>,
    response: HistogramCounts,
    service: HistogramCounts,
    connect: HistogramCounts,
    handshake: HistogramCounts,
    first_byte: HistogramCounts,
    denied_response: HistogramCounts,
    mean_in_flight: f64,
    bytes_read: u64,
    bytes_written: u64,
    bucket_ms: u64,
    timeline: Vec<Bucket>,
    generator: GeneratorLoad,
}

/// (value in microseconds, count), values rising.
type HistogramCounts = Vec<(u64, u64)>;

fn counts(histogram: &Latency) -> HistogramCounts {
    histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
}

fn histogram(counts: &HistogramCounts) -> Latency {
    let mut histogram = latency();
    for &(value, count) in counts {
        histogram.saturating_record_n(value, count);
    }
    histogram
}

impl From<&Measurement> for Transfer {
    fn from(from: &Measurement) -> Self {
        Self {
            plan: from.plan.clone(),
            opening_seconds: from.opening_seconds,
            seconds: from.seconds,
            established: from.established,
            sent: from.sent,
            good: from.good,
            denied: from.denied,
            errors: from.errors.clone(),
            closes: from.closes,
            statuses: from.statuses.clone(),
            response: counts(&from.response),
            service: counts(&from.service),
            connect: counts(&from.connect),
            handshake: counts(&from.handshake),
            first_byte: counts(&from.first_byte),
            denied_response: counts(&from.denied_response),
            mean_in_flight: from.mean_in_flight,
            bytes_read: from.bytes_read,
            bytes_written: from.bytes_written,
            bucket_ms: from.bucket_ms,
            timeline: from.timeline.clone(),
            generator: from.generator,
        }
    }
}

impl From<Transfer> for Measurement {
    fn from(from: Transfer) -> Self {
        Self {
            response: histogram(&from.response),
            service: histogram(&from.service),
            connect: histogram(&from.connect),
            handshake: histogram(&from.handshake),
            first_byte: histogram(&from.first_byte),
            denied_response: histogram(&from.denied_response),
            plan: from.plan,
            opening_seconds: from.opening_seconds,
            seconds: from.seconds,
            established: from.established,
            sent: from.sent,
            good: from.good,
            denied: from.denied,
            errors: from.errors,
            closes: from.closes,
            statuses: from.statuses,
            mean_in_flight: from.mean_in_flight,
            bytes_read: from.bytes_read,
            bytes_written: from.bytes_written,
            bucket_ms: from.bucket_ms,
            timeline: from.timeline,
            generator: from.generator,
            agents: Vec::new(),
        }
    }
}

/// Adds `part`, measured at the same time by another process, to `sum`.
pub(super) fn add(sum: &mut Measurement, part: &Measurement) {
    sum.seconds = sum.seconds.max(part.seconds);
    sum.established += part.established;
    sum.sent += part.sent;
    sum.good += part.good;
    sum.denied += part.denied;
    for (class, count) in &part.errors {
        *sum.errors.entry(*class).or_default() += count;
    }
    sum.closes.add(&part.closes);
    for (status, count) in &part.statuses {
        *sum.statuses.entry(*status).or_default() += count;
    }
    for (into, from) in [
        (&mut sum.response, &part.response),
        (&mut sum.service, &part.service),
        (&mut sum.connect, &part.connect),
        (&mut sum.handshake, &part.handshake),
        (&mut sum.first_byte, &part.first_byte),
        (&mut sum.denied_response, &part.denied_response),
    ] {
        // Invariant: both were made by `latency`, so that their ranges are equal.
        into.add(from).expect("equal ranges");
    }
    sum.mean_in_flight += part.mean_in_flight;
    sum.bytes_read += part.bytes_read;
    sum.bytes_written += part.bytes_written;
    crate::load::add_timeline(&mut sum.timeline, &part.timeline);
    let (into, from) = (&mut sum.generator, &part.generator);
    into.send_lag_p99_us = into.send_lag_p99_us.max(from.send_lag_p99_us);
    into.cpu_seconds += from.cpu_seconds;
    into.busiest_thread = into.busiest_thread.max(from.busiest_thread);
    into.run_delay_seconds += from.run_delay_seconds;
    into.threads += from.threads;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_judge::measurement::Loop;

    fn measured(values: &[u64]) -> Measurement {
        let mut response = latency();
        values.iter().for_each(|&value| response.saturating_record(value));
        Measurement {
            plan: StepPlan {
                connections: 4,
                discipline: Loop::Open { rate: 10.0, poisson: true },
                warmup_ms: 1,
                measure_ms: 2,
                max_requests: 3,
            },
            opening_seconds: 0.5,
            seconds: 1.5,
            established: 4,
            sent: 10,
            good: values.len() as u64,
            denied: 1,
            errors: [(ErrorClass::TooManyFiles, 2)].into(),
            closes: ServerCloses { goaway: 1, idle: 2, repeated: 3 },
            statuses: [(200, 9)].into(),
            service: response.clone(),
            connect: latency(),
            handshake: latency(),
            first_byte: latency(),
            denied_response: latency(),
            response,
            mean_in_flight: 2.0,
            bytes_read: 1,
            bytes_written: 2,
            bucket_ms: 100,
            timeline: vec![Bucket { good: 5, ..Bucket::default() }],
            generator: GeneratorLoad { threads: 2, ..GeneratorLoad::default() },
            agents: Vec::new(),
        }
    }

    #[test]
    fn two_processes_add_up() {
        let (mut sum, part) = (measured(&[10, 20]), measured(&[30]));
        add(&mut sum, &part);
        assert_eq!((sum.good, sum.established, sum.errors[&ErrorClass::TooManyFiles]), (3, 8, 4));
        assert_eq!(sum.closes, ServerCloses { goaway: 2, idle: 4, repeated: 6 });
        assert_eq!((sum.response.len(), sum.response.max(), sum.seconds), (3, 30, 1.5));
        assert_eq!((sum.timeline[0].good, sum.generator.threads, sum.mean_in_flight), (10, 4, 4.0));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_on_the_way(values in prop::collection::vec(1u64..3_000_000_000, 0..50)) {
            let before = measured(&values);
            let json = serde_json::to_string(&Transfer::from(&before)).unwrap();
            let after = Measurement::from(serde_json::from_str::<Transfer>(&json).unwrap());
            prop_assert_eq!(&after.response, &before.response);
            prop_assert_eq!(Transfer::from(&after), Transfer::from(&before));
        }
    }
}
