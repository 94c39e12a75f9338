//! One thread and one reactor per core.
//!
//! Each core runs its own single-threaded runtime: a connection lives on the core that accepted
//! it, its tasks never move, and no queue is shared. On two cores this serves about a tenth more
//! requests than one work-stealing runtime (`docs/decisions/`), at the price that one slow task
//! delays only, but certainly, its own core: nothing here may block.
//!
//! Before it asks the kernel for new events, a core lets whoever else is runnable on its processor go
//! first (`sched_yield`; nothing if nobody is). A client or proxy on the same machine otherwise waits
//! for the scheduler's next tick to read the replies that are ready for it: the 99th percentile at 64
//! connections beside a load generator was 8.0 ms without and 2.1 ms with it, at the same throughput
//! (decision 0006; `cargo xtask bench decisions-default` measures it as it is).

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// The running cores. Dropping it leaves them running until the process ends; see [`Cores::stop`].
#[derive(Debug)]
pub struct Cores {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Cores {
    /// Starts `count` threads named `tidegate-0` and so on.
    ///
    /// # Errors
    /// When the operating system gives no more threads or descriptors.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let stop = watch::Sender::new(false);
        let mut cores = Self { handles: Vec::new(), threads: Vec::new(), stop };
        for index in 0..count.get() {
            let mut builder = Builder::new_current_thread();
            let runtime = builder.enable_io().enable_time().on_thread_park(std::thread::yield_now).build()?;
            cores.handles.push(runtime.handle().clone());
            let mut stop = cores.stop.subscribe();
            let run = move || {
                // An error means that the sender is gone, which is a reason to stop too.
                drop(runtime.block_on(stop.wait_for(|stop| *stop)));
                runtime.shutdown_background();
            };
            cores.threads.push(std::thread::Builder::new().name(format!("tidegate-{index}")).spawn(run)?);
        }
        Ok(cores)
    }

    /// How many cores run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// The runtime of core `index`, which wraps around.
    #[must_use]
    pub fn handle(&self, index: usize) -> &Handle {
        &self.handles[index % self.handles.len()]
    }

    /// Starts a task on core `index`, which wraps around.
    pub fn spawn_on<F>(&self, index: usize, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(self.handle(index).spawn(task));
    }

    /// A way to ask from outside whether every core still runs its tasks.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse { handles: self.handles.clone() }
    }

    /// Drops every task that still runs and waits for the threads.
    pub fn stop(self) {
        self.stop.send_replace(true);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a core's thread ended in a panic");
            }
        }
    }
}

/// See [`Cores::pulse`].
#[derive(Clone, Debug)]
pub struct Pulse {
    handles: Vec<Handle>,
}

impl Pulse {
    /// Returns when each core, one after the other, has run a task; never if one is stuck.
    pub async fn beat(&self) {
        for handle in &self.handles {
            if handle.spawn(async {}).await.is_err() {
                // The core has stopped for good.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The number of cores that this process may use, at least 1. It obeys CPU affinity and cgroup
/// quotas.
#[must_use]
pub fn available_cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn tasks_run_on_the_core_they_were_given_and_end_with_it() {
        let cores = Cores::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let (sender, receiver) = sync_channel(2);
        for index in 0..2 {
            let sender = sender.clone();
            cores.spawn_on(index, async move {
                let name = std::thread::current().name().map(str::to_owned);
                sender.send(name).unwrap();
                std::future::pending::<()>().await;
                drop(sender);
            });
        }
        drop(sender);
        cores.handle(0).block_on(cores.pulse().beat());
        let mut names = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        names.sort();
        assert_eq!(names.map(Option::unwrap), ["tidegate-0", "tidegate-1"]);
        cores.stop();
        assert!(receiver.recv().is_err(), "the pending tasks were dropped");
    }
}
