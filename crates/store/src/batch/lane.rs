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

use std::collections::HashMap;
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

/// Runs batches on one connection.
pub(crate) trait Executor: Send + Sync + 'static {
    /// Runs operations as one batch and returns what came of each, in order. `at` is the caller's
    /// time, if that decides.
    fn execute(
        &self,
        operations: &[Operation],
        at: Option<Now>,
    ) -> impl Future<Output = Vec<Result<Reply, Failure>>> + Send;
}

/// An operation and who waits for it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    /// Keys of a batch share a hash tag if the store is a Cluster: jobs of different tags go into
    /// different batches.
    pub(crate) tag: Option<u8>,
    /// The caller's time, if that decides: jobs of different times go into different batches.
    pub(crate) at: Option<Now>,
    pub(crate) reply: oneshot::Sender<Result<Reply, Failure>>,
}

/// The sending side.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    queue: mpsc::Sender<Job>,
}

impl Lane {
    /// Starts the task that sends. It ends when the lane is dropped.
    pub(crate) fn start(executor: impl Executor) -> Self {
        let (queue, jobs) = mpsc::channel(MAX_QUEUE);
        tokio::spawn(drain(jobs, Arc::new(executor)));
        Self { queue }
    }

    /// Queues an operation and waits for its answer.
    pub(crate) async fn call(
        &self,
        operation: Operation,
        tag: Option<u8>,
        at: Option<Now>,
    ) -> Result<Reply, Failure> {
        let (reply, answer) = oneshot::channel();
        self.queue
            .try_send(Job { operation, tag, at, reply })
            .map_err(|_| Failure::Unsent(format!("{MAX_QUEUE} calls wait for this connection")))?;
        answer.await.unwrap_or_else(|_| Err(Failure::Lost("the sending task ended".to_owned())))
    }
}

async fn drain(mut jobs: mpsc::Receiver<Job>, executor: Arc<impl Executor>) {
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    while let Some(first) = jobs.recv().await {
        // Invariant: the semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let mut charges = first.operation.charges.len();
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH && charges < MAX_BATCH_CHARGES {
            let Ok(job) = jobs.try_recv() else { break };
            charges += job.operation.charges.len();
            batch.push(job);
        }
        let executor = Arc::clone(&executor);
        tokio::spawn(async move {
            send(&executor, batch).await;
            drop(permit);
        });
    }
}

/// Sends what was drained, all its batches at once, and answers everyone.
async fn send(executor: &Arc<impl Executor>, drained: Vec<Job>) {
    let mut batches: HashMap<(Option<u8>, Option<Now>), Vec<Job>> = HashMap::new();
    for job in drained {
        if !job.reply.is_closed() {
            batches.entry((job.tag, job.at)).or_default().push(job);
        }
    }
    let mut batches = batches.into_iter();
    let last = batches.next();
    let others: Vec<_> = batches
        .map(|((_, at), jobs)| {
            let executor = Arc::clone(executor);
            tokio::spawn(async move { run(&*executor, jobs, at).await })
        })
        .collect();
    if let Some(((_, at), jobs)) = last {
        run(&**executor, jobs, at).await;
    }
    for other in others {
        // A task that panicked has dropped its jobs, and their callers are told so.
        other.await.unwrap_or_default();
    }
}

async fn run(executor: &impl Executor, jobs: Vec<Job>, at: Option<Now>) {
    let (operations, waiting): (Vec<_>, Vec<_>) =
        jobs.into_iter().map(|job| (job.operation, job.reply)).unzip();
    let answers = executor.execute(&operations, at).await;
    // Fewer answers than operations leave the rest to be told that their sender is gone.
    for (reply, answer) in waiting.into_iter().zip(answers) {
        // The caller may have given up meanwhile.
        reply.send(answer).unwrap_or_default();
    }
}
