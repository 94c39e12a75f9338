//! Callers that ask nodes for decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_algorithms::limit::{Bucket, Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::random::{Random, Zipf};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::{Answer, Charge, Counters, Intent};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

const CALLERS: usize = 256;
/// How many keys there are, unless a case says otherwise.
pub(crate) const KEYS: u64 = 100_000;
/// How long a run is, unless a case says otherwise.
const SPAN: Duration = Duration::from_secs(2);

/// How long a paced run's thread sleeps between what it asks: about 15 requests at 75,000 a second.
const PACE: Duration = Duration::from_micros(150);

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

/// One who asks.
struct Caller {
    node: Node,
    keys: Arc<[u32]>,
    next: Arc<AtomicU64>,
    limit: Limit,
    /// The nodes' time when the run began, and when that was.
    time: Duration,
    start: Instant,
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

    /// Asks for the length of a run, as fast as it goes.
    pub(crate) async fn run(&mut self, nodes: &[Node]) -> Run {
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for index in 0..CALLERS {
            callers.spawn(self.caller(&nodes[index % nodes.len()], start).call(self.span));
        }
        let times = callers.join_all().await.concat();
        self.found(start, times)
    }

    /// Asks so many times a second for the length of a run, whether or not answers come.
    #[expect(clippy::disallowed_methods, reason = "it waits for when the next requests are due")]
    pub(crate) async fn run_at(&mut self, rate: f64, node: &Node) -> Run {
        let start = Instant::now();
        let caller = Arc::new(self.caller(node, start));
        let (runtime, span) = (Handle::current(), self.span);
        // A thread of its own, because the runtime's timers go by milliseconds: what is due in one of
        // them would be asked at once.
        let asking = tokio::task::spawn_blocking(move || {
            let mut asked = Vec::new();
            while start.elapsed() < span {
                let by_now = (start.elapsed().as_secs_f64() * rate) as usize;
                asked.extend((asked.len()..by_now).map(|number| {
                    let due = start + Duration::from_secs_f64(number as f64 / rate);
                    let caller = Arc::clone(&caller);
                    runtime.spawn(async move { caller.ask(due, &mut Answer::default()).await.0 })
                }));
                std::thread::sleep(PACE);
            }
            asked
        });
        let mut times = Vec::new();
        for answer in asking.await.expect("the thread ends") {
            times.push(answer.await.expect("the store answers"));
        }
        self.found(start, times)
    }

    fn caller(&self, node: &Node, start: Instant) -> Caller {
        Caller {
            node: Arc::clone(node),
            keys: Arc::clone(&self.keys),
            next: Arc::clone(&self.next),
            limit: Limit::TokenBucket(Bucket::new(self.limit, self.limit, 60 * SECOND)),
            time: self.time,
            start,
        }
    }

    fn found(&mut self, start: Instant, mut times: Vec<u32>) -> Run {
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
    /// Nanoseconds of each decision, one after the other.
    async fn call(self, span: Duration) -> Vec<u32> {
        let mut times = Vec::with_capacity(65_536);
        let mut answer = Answer::default();
        let mut due = self.start;
        while due.duration_since(self.start) < span {
            let (took, after) = self.ask(due, &mut answer).await;
            times.push(took);
            due = after;
            tokio::task::consume_budget().await;
        }
        times
    }

    /// Asks for one decision. Returns the nanoseconds since it was due, and when it was there.
    async fn ask(&self, due: Instant, answer: &mut Answer) -> (u32, Instant) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let key = self.keys[usize::try_from(number).expect("small") % self.keys.len()].to_be_bytes();
        let charges = [Charge {
            limit: &self.limit,
            key: &key,
            cost: 1,
            binding: true,
            on_failure: OnStoreFailure::Local,
        }];
        let elapsed = u64::try_from((self.time + self.start.elapsed()).as_nanos()).expect("some minutes");
        let now = Now::at(1_767_225_600 * SECOND + elapsed);
        let spend = Intent::Spend(PermitId(number));
        self.node.decide(now, &charges, spend, answer).await.expect("the store answers");
        assert!(answer.degraded.is_none(), "the store itself answers");
        let after = Instant::now();
        (u32::try_from(after.duration_since(due).as_nanos()).unwrap_or(u32::MAX), after)
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
