//! A step of load: what it was to do, and what it measured.
//!
//! The load engine (`load`) turns a [`StepPlan`] into a [`Measurement`]; everything that judges -
//! discovery of the knee, diagnosis, report, comparison - reads measurements only. So the judges
//! can be tested on recorded or simulated steps, without a socket.
//!
//! Two latencies are kept, because they answer different questions:
//! *response time* counts from the planned send (what a user waits), *service time* from the
//! actual send (what the server took). In a closed loop they are the same thing.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// How requests are released.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Loop {
    /// Each connection sends, waits for its reply, thinks, and sends again.
    Closed {
        /// Pause between a reply and the next request, in microseconds.
        think_us: u64,
    },
    /// Requests are due on a schedule, whether or not replies have come back.
    Open {
        /// Requests per second, > 0.
        rate: f64,
        /// Exponential gaps (true) or equal ones (false).
        poisson: bool,
    },
}

/// One step of load at one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Connections held open, 1 to 1,000,000 over all processes.
    pub connections: u32,
    /// Closed or open loop.
    #[serde(flatten)]
    pub discipline: Loop,
    /// Discarded time at the start, in milliseconds.
    pub warmup_ms: u64,
    /// Measured time, in milliseconds.
    pub measure_ms: u64,
    /// Stop early after this many requests in all (0: no such bound).
    pub max_requests: u64,
}

/// Why a request did not become a reply that counts as good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// ECONNREFUSED.
    Refused,
    /// ECONNRESET, EPIPE, or a close in mid-reply.
    Reset,
    /// No reply, or no connection, within the deadline.
    Timeout,
    /// EADDRNOTAVAIL: the client ran out of ports.
    AddressNotAvailable,
    /// EMFILE or ENFILE at the client.
    TooManyFiles,
    /// The peer's bytes were not the protocol.
    Protocol,
    /// A status that the scenario does not call good, and that is not a denial.
    BadStatus,
    /// A header or body check failed.
    FailedCheck,
    /// Any other error of the operating system.
    Other,
}

/// Counters over one bucket of the timeline (see [`Measurement::bucket_ms`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Replies that the scenario calls good.
    pub good: u64,
    /// Denials: 429, or a body that says so.
    pub denied: u64,
    /// Everything else that ended.
    pub errors: u64,
    /// Largest response time that ended in this bucket, in microseconds.
    pub max_us: u64,
    /// Sum of response times of good replies, in microseconds.
    pub sum_us: u64,
    /// Requests on the wire at the end of the bucket.
    pub in_flight: u64,
}

/// What the generator says of itself during the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorLoad {
    /// 99th percentile of (actual send - planned send) that was the generator's own doing, in
    /// microseconds: the connection was free, yet the send was late.
    pub send_lag_p99_us: u64,
    /// CPU seconds used by all generator threads.
    pub cpu_seconds: f64,
    /// Busiest generator thread's share of one core, 0 to 1.
    pub busiest_thread: f64,
    /// Time that generator threads were runnable but waiting for a core, in seconds
    /// (`/proc/self/task/*/schedstat`, second field).
    pub run_delay_seconds: f64,
    /// Generator threads over all processes.
    pub threads: u32,
}

/// What one agent had of a step whose load came from agents on other machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentShare {
    /// Its address.
    pub agent: String,
    /// Connections that it was to hold open.
    pub connections: u32,
    /// How far its civil clock is ahead of the coordinator's, in microseconds; below 0: it is behind.
    pub clock_ahead_us: i64,
    /// How wrong that may be, and so may the common start, in microseconds: half of the least round trip.
    pub clock_error_us: u64,
    /// How long after the common start it began, in microseconds.
    pub late_us: u64,
    /// Its good replies.
    pub good: u64,
    /// 99th percentile of their response times, in microseconds.
    pub p99_us: u64,
    /// Why it was lost, and its share is left out of the step; none: it stayed.
    pub lost: Option<String>,
}

impl AgentShare {
    /// The agent that stayed and whose replies took longest, by their 99th percentile.
    #[must_use]
    pub fn slowest(shares: &[Self]) -> Option<&Self> {
        shares.iter().filter(|share| share.lost.is_none()).max_by_key(|share| share.p99_us)
    }
}

/// Connections that the server ended between two requests, and requests that went out again for that. None of them is an
/// error: a server may do so at any time (RFC 9112, 9.3.1; RFC 9113, 6.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCloses {
    /// By a GOAWAY (HTTP/2).
    pub goaway: u64,
    /// By closing a kept connection, after a reply and without a byte of the next one.
    pub idle: u64,
    /// Requests that had been given to such a connection, and went out again on a new one with their planned start.
    pub repeated: u64,
}

impl ServerCloses {
    /// Whether the server ended no connection so.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the counts of another thread, process or step.
    pub fn add(&mut self, other: &Self) {
        self.goaway += other.goaway;
        self.idle += other.idle;
        self.repeated += other.repeated;
    }

    /// The counts as a clause, without its full stop.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "{} kept connections by closing them, {} by GOAWAY; {} requests were sent again",
            self.idle, self.goaway, self.repeated
        )
    }
}

/// A histogram in microseconds with 3 significant digits, 1 us to 1 hour.
pub type Latency = Histogram<u64>;

/// The result of one step.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// What was asked for.
    pub plan: StepPlan,
    /// From the beginning of the step to its first request, in seconds: its connections were opened.
    pub opening_seconds: f64,
    /// Measured wall time, in seconds, warm-up left out.
    pub seconds: f64,
    /// Connections that were really established at some moment of the measured time, the maximum.
    pub established: u32,
    /// Requests sent in the measured time.
    pub sent: u64,
    /// Replies that the scenario calls good.
    pub good: u64,
    /// Denials, apart from errors and from successes.
    pub denied: u64,
    /// Errors by class.
    pub errors: BTreeMap<ErrorClass, u64>,
    /// Connections that the server ended between two requests: no errors.
    pub closes: ServerCloses,
    /// Replies by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Response time of good replies, from the planned send.
    pub response: Latency,
    /// Service time of good replies, from the actual send.
    pub service: Latency,
    /// Time to connect, for connections that were made in the step.
    pub connect: Latency,
    /// Time from there to the end of the handshake (TLS), for the same connections.
    pub handshake: Latency,
    /// Time from the actual send to the first byte of the reply.
    pub first_byte: Latency,
    /// Response time of denials.
    pub denied_response: Latency,
    /// Mean number of requests in flight, integrated over the measured time.
    pub mean_in_flight: f64,
    /// Bytes read and written.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Length of a timeline bucket, in milliseconds.
    pub bucket_ms: u64,
    /// The step over time, warm-up left out.
    pub timeline: Vec<Bucket>,
    /// The generator's audit of itself.
    pub generator: GeneratorLoad,
    /// The agents that made the load; empty: this machine did.
    pub agents: Vec<AgentShare>,
}

impl Measurement {
    /// Of a step in which nothing has happened, in `seconds`; a bucket of its timeline is `bucket_ms` long.
    #[must_use]
    pub fn empty(plan: &StepPlan, seconds: f64, bucket_ms: u64) -> Self {
        Self {
            plan: plan.clone(),
            opening_seconds: 0.0,
            seconds,
            established: 0,
            sent: 0,
            good: 0,
            denied: 0,
            errors: BTreeMap::new(),
            closes: ServerCloses::default(),
            statuses: BTreeMap::new(),
            response: latency(),
            service: latency(),
            connect: latency(),
            handshake: latency(),
            first_byte: latency(),
            denied_response: latency(),
            mean_in_flight: 0.0,
            bytes_read: 0,
            bytes_written: 0,
            bucket_ms,
            timeline: Vec::new(),
            generator: GeneratorLoad::default(),
            agents: Vec::new(),
        }
    }

    /// Good replies per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.good as f64 / self.seconds } else { 0.0 }
    }

    /// Errors over everything that ended, 0 to 1. Denials are not errors.
    #[must_use]
    pub fn error_ratio(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        let ended = self.good + self.denied + errors;
        if ended == 0 { 0.0 } else { errors as f64 / ended as f64 }
    }
}

/// A new latency histogram with the crate's range and precision.
#[must_use]
pub fn latency() -> Latency {
    // Invariant: the bounds are constants that the constructor accepts.
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("1 us to 1 h at 3 digits is a valid range")
}

/// Something that can run steps: the load engine, or a simulated service in a test.
pub trait Bench {
    /// What can go wrong before or while a step runs.
    type Error;

    /// Runs one step to its end and says what it measured.
    ///
    /// # Errors
    /// Only when the step could not be run at all; failed requests are part of a measurement.
    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, Self::Error>;
}
