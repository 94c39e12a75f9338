//! The tasks of one accept loop's connections: those that are left when the drain is over are cut.
//!
//! A listener may drain while its process goes on, so that no end of the process cuts its connections. The tasks are kept
//! together because a connection that watched for the end of the drain itself would look for it at every wake.

use std::future::Future;

use tokio::task::JoinSet;

use crate::drain::{Drain, Stage};

/// The tasks of one accept loop's connections. Dropping it cuts those that are left.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    /// Starts the task of a connection on this thread's runtime, and forgets those that have ended.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.0.try_join_next().is_some() {}
        drop(self.0.spawn(task));
    }

    /// Waits until all of them have ended, or `drain` is over: then the others are cut.
    pub async fn end(mut self, drain: &Drain) {
        tokio::select! {
            () = drain.reached(Stage::Stopped) => {}
            () = async { while self.0.join_next().await.is_some() {} } => {}
        }
    }
}
