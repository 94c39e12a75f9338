//! The tasks of one accept loop's connections: those that are left when the drain is over are cut.
//!
//! A listener may drain while its process goes on, so that no end of the process cuts its connections. The tasks are kept
//! together because a connection that watched for the end of the drain itself would look for it at every wake.
//!
//! A task that has ended keeps its memory until it is forgotten. New connections forget a few each; a loop to which none
//! comes is swept ([`Tasks::sweep`]).

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::drain::{Drain, Stage};

/// Most tasks that a new connection forgets: few, since it waits for that.
const FORGOTTEN_AT_ONCE: usize = 8;
/// Most that are forgotten between two looks at other work.
const SWEPT_AT_ONCE: usize = 256;
/// How long the memory of ended tasks may stay.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// The tasks of one accept loop's connections. Dropping it cuts those that are left.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Starts the task of a connection on this thread's runtime.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        forget_ended(&mut tasks, FORGOTTEN_AT_ONCE);
        drop(tasks.spawn(task));
    }

    /// Forgets the tasks that have ended, every second, and never returns.
    pub async fn sweep(&self) {
        loop {
            sleep(SWEPT_EVERY).await;
            while forget_ended(&mut self.0.lock(), SWEPT_AT_ONCE) {
                yield_now().await;
            }
        }
    }

    /// Waits until all of them have ended, or `drain` is over: then the others are cut.
    pub async fn end(self, drain: &Drain) {
        let mut tasks = self.0.into_inner();
        tokio::select! {
            () = drain.reached(Stage::Stopped) => {}
            () = async { while tasks.join_next().await.is_some() {} } => {}
        }
    }
}

/// Forgets so many tasks that have ended; whether there may be more.
fn forget_ended(tasks: &mut JoinSet<()>, most: usize) -> bool {
    (0..most).all(|_| tasks.try_join_next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_that_ended_are_forgotten_though_no_connection_comes() {
        let tasks = Tasks::default();
        for _ in 0..1_000 {
            tasks.spawn(async {});
        }
        let is_empty = async {
            while !tasks.0.lock().is_empty() {
                yield_now().await;
            }
        };
        tokio::select! {
            () = tasks.sweep() => unreachable!("it never returns"),
            () = is_empty => {}
        }
    }
}
