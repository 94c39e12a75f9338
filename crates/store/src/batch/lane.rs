//! A queue before a connection, which turns concurrent calls into batches by itself.
//!
//! ```text
//!   calls --try_send--> queue (bounded) --> [drain up to MAX_BATCH] --> one statement per slot
//!                                               ^                          |
//!                                               `---- a permit is free <---'   (IN_FLIGHT)
//! ```
//!
//! There is no timer: a lone call leaves at once, and while IN_FLIGHT batches are under way the
//! calls that arrive wait together and become the next batch. So the batch grows with the load.
//!
//! A call whose caller has gone (its deadline passed) before it was sent is dropped unsent.
//!
//! A batch fails as a whole, also where the state of a single counter is damaged. Nothing was charged
//! then, so it is taken apart into [`PARTS`], and these again, until the damaged counter is alone with
//! its error and all others are decided: at most three rounds for a full batch.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_algorithms::time::Now;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{Failure, Operation, Reply};

/// Most operations in one batch.
pub(crate) const MAX_BATCH: usize = 256;
/// Most charges in one batch.
const MAX_BATCH_CHARGES: usize = 4_096;
/// Most calls that wait before one connection.
const MAX_QUEUE: usize = 8_192;
/// Batches under way on one connection: one being decided while the next is on the wire.
const IN_FLIGHT: usize = 2;
/// How many parts a batch with a damaged counter becomes.
const PARTS: usize = 8;

/// Runs batches on one connection.
pub(crate) trait Executor: Send + Sync + 'static {
    /// Opens the connection and prepares all that batches need, if that is not done yet.
    fn open(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Runs operations as one batch and returns what came of each, in order. `at` is the caller's
    /// time, if that decides.
    fn execute(
        &self,
        operations: &[Operation],
        at: Option<Now>,
    ) -> impl Future<Output = Vec<Result<Reply, Failure>>> + Send;
}

/// What a lane is asked to do.
#[derive(Debug)]
enum LaneRequest {
    /// To open its connection.
    Open(oneshot::Sender<Result<(), Failure>>),
    /// To run an operation.
    Run(LaneJob),
}

/// An operation and who waits for it.
#[derive(Debug)]
struct LaneJob {
    operation: Operation,
    /// Keys of a batch share a hash tag if the store is a Cluster: jobs of different tags go into
    /// different batches.
    tag: Option<u8>,
    /// The caller's time, if that decides: jobs of different times go into different batches.
    at: Option<Now>,
    reply: oneshot::Sender<Result<Reply, Failure>>,
}

/// The sending side.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    queue: mpsc::Sender<LaneRequest>,
}

impl Lane {
    /// Starts the task that sends. It ends when the lane is dropped.
    pub(crate) fn start(executor: impl Executor) -> Self {
        let (queue, requests) = mpsc::channel(MAX_QUEUE);
        tokio::spawn(drain(requests, Arc::new(executor)));
        Self { queue }
    }

    /// Opens its connection now, and not with the first call.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(LaneRequest::Open(reply))?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Queues an operation and waits for its answer.
    pub(crate) async fn call(
        &self,
        operation: Operation,
        tag: Option<u8>,
        at: Option<Now>,
    ) -> Result<Reply, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(LaneRequest::Run(LaneJob { operation, tag, at, reply }))?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    fn send(&self, request: LaneRequest) -> Result<(), Failure> {
        let full = |_| Failure::Unsent(format!("{MAX_QUEUE} calls wait for this connection"));
        self.queue.try_send(request).map_err(full)
    }
}

/// Opens the connections of `lanes` at the same time.
///
/// # Errors
/// Of the first that cannot be opened.
pub(crate) async fn open_all(lanes: &[Lane]) -> Result<(), Failure> {
    let opening = lanes.iter().cloned().map(|lane| tokio::spawn(async move { lane.open().await }));
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap_or_else(|_| Err(ended()))?;
    }
    Ok(())
}

fn ended() -> Failure {
    Failure::Lost("the sending task ended".to_owned())
}

async fn drain(mut requests: mpsc::Receiver<LaneRequest>, executor: Arc<impl Executor>) {
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    while let Some(first) = requests.recv().await {
        // Invariant: the semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let (mut charges, mut batch) = (0, Vec::new());
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                LaneRequest::Open(reply) => {
                    let executor = Arc::clone(&executor);
                    // The caller may have given up meanwhile.
                    tokio::spawn(async move { reply.send(executor.open().await).unwrap_or_default() });
                }
                LaneRequest::Run(job) => {
                    charges += job.operation.charges.len();
                    batch.push(job);
                }
            }
            let is_full = batch.len() >= MAX_BATCH || charges >= MAX_BATCH_CHARGES;
            next = if is_full { None } else { requests.try_recv().ok() };
        }
        let executor = Arc::clone(&executor);
        tokio::spawn(async move {
            send(&executor, batch).await;
            drop(permit);
        });
    }
}

/// Sends what was drained, all its batches at once, and answers everyone.
async fn send(executor: &Arc<impl Executor>, drained: Vec<LaneJob>) {
    let mut batches: HashMap<(Option<u8>, Option<Now>), Vec<LaneJob>> = HashMap::new();
    for job in drained {
        if !job.reply.is_closed() {
            batches.entry((job.tag, job.at)).or_default().push(job);
        }
    }
    side_by_side(executor, batches.into_iter().map(|((_, at), jobs)| (jobs, at)).collect()).await;
}

/// Runs batches at the same time; the last one here, since there is seldom another.
async fn side_by_side(executor: &Arc<impl Executor>, mut batches: Vec<(Vec<LaneJob>, Option<Now>)>) {
    let Some((jobs, at)) = batches.pop() else { return };
    let others: Vec<_> = batches
        .into_iter()
        .map(|(jobs, at)| {
            let executor = Arc::clone(executor);
            tokio::spawn(async move { run(&executor, jobs, at).await })
        })
        .collect();
    run(executor, jobs, at).await;
    for other in others {
        // A task that panicked has dropped its jobs, and their callers are told so.
        other.await.unwrap_or_default();
    }
}

/// Runs a batch; in a box, since a batch with a damaged counter runs its parts.
fn run<E: Executor>(
    executor: &Arc<E>,
    jobs: Vec<LaneJob>,
    at: Option<Now>,
) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    Box::pin(async move {
        let suspects = decide(&**executor, jobs, at).await;
        if !suspects.is_empty() {
            side_by_side(executor, apart(suspects, at)).await;
        }
    })
}

/// Decides a batch and answers all its calls but those of a part with a damaged counter. These are returned.
async fn decide(executor: &impl Executor, jobs: Vec<LaneJob>, at: Option<Now>) -> Vec<LaneJob> {
    let alone = jobs.len() == 1;
    let (operations, waiting): (Vec<_>, Vec<_>) =
        jobs.into_iter().map(|job| (job.operation, (job.tag, job.reply))).unzip();
    let answers = executor.execute(&operations, at).await;
    let mut suspects = Vec::new();
    // Fewer answers than operations leave the rest to be told that their sender is gone.
    for ((operation, (tag, reply)), answer) in operations.into_iter().zip(waiting).zip(answers) {
        let answer = match answer {
            Err(Failure::Unreadable(_)) if !alone => {
                suspects.push(LaneJob { operation, tag, at, reply });
                continue;
            }
            Err(Failure::Unreadable(why)) => Err(Failure::Unreadable(named(&why, &operation))),
            answer => answer,
        };
        // The caller may have given up meanwhile.
        reply.send(answer).unwrap_or_default();
    }
    suspects
}

/// Jobs in [`PARTS`], in their order.
fn apart(mut jobs: Vec<LaneJob>, at: Option<Now>) -> Vec<(Vec<LaneJob>, Option<Now>)> {
    let size = jobs.len().div_ceil(PARTS);
    let mut parts = Vec::with_capacity(PARTS);
    while !jobs.is_empty() {
        let rest = jobs.split_off(size.min(jobs.len()));
        parts.push((std::mem::replace(&mut jobs, rest), at));
    }
    parts
}

/// What is wrong, with the counters that it may be wrong with, by the names that they have in the store.
fn named(why: &str, operation: &Operation) -> String {
    let keys: Vec<_> = operation.charges.iter().map(|one| one.key.escape_ascii().to_string()).collect();
    format!("{why} (counters: {})", keys.join(", "))
}
