//! Callers that ask nodes for decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_algorithms::limit::{Bucket, Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::random::{Random, Zipf};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::{Answer, Charge, Counters, Intent};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

const CALLERS: usize = 256;
/// How many keys there are, unless a case says otherwise.
pub(crate) const KEYS: u64 = 100_000;
/// How long a run is, unless a case says otherwise.
const SPAN: Duration = Duration::from_secs(2);

/// What answers.
pub(crate) type Node = Arc<Counters>;

/// Keys in the order in which they are asked for, and how far that has come.
#[derive(Clone)]
pub(crate) struct Load {
    keys: Arc<[u32]>,
    next: Arc<AtomicU64>,
    /// The nodes' time, which stands still between runs: what a node holds is as it left it.
    time: Duration,
    /// Of each key's token bucket, in a minute.
    limit: u64,
    span: Duration,
}

/// What a run found.
pub(crate) struct Run {
    pub(crate) decisions: u64,
    pub(crate) rate: f64,
    pub(crate) p99_ms: f64,
}

/// One of the callers.
struct Caller {
    node: Node,
    keys: Arc<[u32]>,
    next: Arc<AtomicU64>,
    /// The nodes' time when the run began.
    time: Duration,
    /// Between two requests, if they are paced.
    period: Option<Duration>,
    limit: u64,
    span: Duration,
    offset: Duration,
}

/// A million keys of so many.
pub(crate) fn draws(keys: u64, zipf: bool) -> Vec<u32> {
    let mut random = Random::seeded(1);
    let ranks = Zipf::new(keys, if zipf { 1.1 } else { 0.0 });
    (0..1_000_000).map(|_| u32::try_from(ranks.draw(&mut random)).expect("100,000 keys")).collect()
}

impl Load {
    pub(crate) fn new(keys: Vec<u32>) -> Self {
        Self { keys: keys.into(), next: Arc::default(), time: Duration::ZERO, limit: 1_000_000, span: SPAN }
    }

    /// The same, with so much a minute for each key.
    pub(crate) fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The same, with runs of this length.
    pub(crate) fn with_span(self, span: Duration) -> Self {
        Self { span, ..self }
    }

    /// For how long the nodes have been asked so far.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Asks for the length of a run: as fast as it goes, or at a rate.
    pub(crate) async fn run(&mut self, nodes: &[Node], rate: Option<f64>) -> Run {
        let period = rate.map(|rate| Duration::from_secs_f64(CALLERS as f64 / rate));
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for index in 0..CALLERS {
            let share = index as f64 / CALLERS as f64;
            let caller = Caller {
                node: Arc::clone(&nodes[index % nodes.len()]),
                keys: Arc::clone(&self.keys),
                next: Arc::clone(&self.next),
                time: self.time,
                period,
                limit: self.limit,
                span: self.span,
                offset: period.map_or(Duration::ZERO, |period| period.mul_f64(share)),
            };
            callers.spawn(caller.call());
        }
        let mut times = callers.join_all().await.concat();
        let elapsed = start.elapsed();
        self.time += elapsed;
        times.sort_unstable();
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(0);
        Run {
            decisions: times.len() as u64,
            rate: times.len() as f64 / elapsed.as_secs_f64(),
            p99_ms: f64::from(p99) / 1e6,
        }
    }
}

impl Caller {
    /// Nanoseconds of each decision.
    async fn call(self) -> Vec<u32> {
        let limit = Limit::TokenBucket(Bucket::new(self.limit, self.limit, 60 * SECOND));
        let start = Instant::now();
        let mut times = Vec::with_capacity(65_536);
        let mut answer = Answer::default();
        let mut planned = start + self.offset;
        let mut due = planned;
        while due.duration_since(start) < self.span {
            if self.period.is_some() {
                sleep_until(due).await;
                // The runtime's timers go by milliseconds; that is not the store's time.
                due = Instant::now();
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let key = self.keys[usize::try_from(number).expect("small") % self.keys.len()].to_be_bytes();
            let charges = [Charge {
                limit: &limit,
                key: &key,
                cost: 1,
                binding: true,
                on_failure: OnStoreFailure::Local,
            }];
            let elapsed = self.time + start.elapsed();
            let elapsed = u64::try_from(elapsed.as_nanos()).expect("some minutes");
            let now = Now::at(1_767_225_600 * SECOND + elapsed);
            let spend = Intent::Spend(PermitId(number));
            self.node.decide(now, &charges, spend, &mut answer).await.expect("the store answers");
            assert!(answer.degraded.is_none(), "the store itself answers");
            let after = Instant::now();
            times.push(u32::try_from(after.duration_since(due).as_nanos()).unwrap_or(u32::MAX));
            planned += self.period.unwrap_or_default();
            due = if self.period.is_some() { planned } else { after };
            tokio::task::consume_budget().await;
        }
        times
    }
}

/// Processor time that a process has used, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    /// Of a second, on every Linux.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    // Behind the name, which may hold anything: state is the 3rd field, user and system the 14th and 15th.
    let fields = stat.rsplit(") ").next().expect("a name in brackets").split(' ');
    fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / TICKS
}
