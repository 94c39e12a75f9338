//! Following the file: a good change is taken over while serving, a bad one changes nothing.
//!
//! The file is looked at once a second (time of change, size, inode: an editor that replaces the
//! file changes the inode). It is read when two looks in a row see the same, so that a file which
//! is being written is left alone. SIGHUP reads it at once. Polling instead of inotify: it works
//! on every file system, through renames and mounted volumes, and costs one `stat` a second.
//!
//! A file may be good and still not go with the policies that are stored: the caller's `apply` has
//! the last word, and only what it took over becomes the [`State`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::policy;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::file_stamp::{Stamp, stamp};
use super::{Loaded, Mistakes, Source};

/// Time between two looks at the file.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Most mistakes of a refused file that the log shows, a line each.
const MAX_SHOWN: usize = 32;

/// What is served, and how the last reload went.
#[derive(Clone, Debug)]
pub struct State {
    /// The last good configuration.
    pub loaded: Arc<Loaded>,
    /// What is wrong with the file as it is now; `None` if it is what is served.
    pub refused: Option<Arc<Mistakes>>,
    /// Reloads that were taken over.
    pub applied_total: u64,
    /// Reloads that were refused.
    pub refused_total: u64,
}

impl State {
    /// The state at start.
    #[must_use]
    pub fn new(loaded: Loaded) -> Self {
        Self { loaded: Arc::new(loaded), refused: None, applied_total: 0, refused_total: 0 }
    }

    fn take(&mut self, outcome: Result<Loaded, Mistakes>) {
        match outcome {
            Ok(loaded) => {
                tracing::info!("configuration loaded again");
                for warning in loaded.warnings.iter().filter(|new| !self.loaded.warnings.contains(new)) {
                    tracing::warn!("{warning}");
                }
                self.applied_total += 1;
                self.refused = None;
                self.loaded = Arc::new(loaded);
            }
            Err(mistakes) => {
                let count = mistakes.count();
                for line in mistakes.to_string().lines().take(MAX_SHOWN) {
                    tracing::error!("configuration refused, the old one stays: {line}");
                }
                if count > MAX_SHOWN {
                    tracing::error!(count, "configuration refused: `tidegate check` shows all mistakes");
                }
                self.refused_total += 1;
                self.refused = Some(Arc::new(mistakes));
            }
        }
    }
}

/// Decides when what changes on the disk is read again.
#[derive(Debug)]
pub(crate) struct Change<S> {
    read: S,
    seen: S,
}

impl<S: Clone + PartialEq> Change<S> {
    /// What is there now has just been read.
    pub(crate) fn new(now: S) -> Self {
        Self { read: now.clone(), seen: now }
    }

    /// Whether what is there now is not what was read, and the same as at the last look.
    pub(crate) fn has_settled(&mut self, now: S) -> bool {
        let settled = now == self.seen;
        self.seen = now;
        settled && self.seen != self.read
    }

    /// What is there now is about to be read. Said before reading, so that a change in between is
    /// seen by the next look.
    pub(crate) fn reading(&mut self, now: S) {
        self.read = now;
    }
}

/// Decides when to read the file again.
#[derive(Debug)]
pub struct Reloader {
    source: Source,
    change: Change<Stamp>,
}

impl Reloader {
    /// Loads the configuration for the first time.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn start(source: Source) -> Result<(Self, Loaded), Mistakes> {
        let change = Change::new(source_stamp(&source));
        let loaded = source.load()?;
        Ok((Self { source, change }, loaded))
    }

    /// Looks at the file. Reads it if it has changed since it was read, and not since the last look.
    pub fn poll(&mut self) -> Option<Result<Loaded, Mistakes>> {
        self.change.has_settled(source_stamp(&self.source)).then(|| self.reload())
    }

    /// Reads the file now.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn reload(&mut self) -> Result<Loaded, Mistakes> {
        self.change.reading(source_stamp(&self.source));
        self.source.load()
    }
}

fn source_stamp(source: &Source) -> Stamp {
    source.path.as_deref().and_then(stamp)
}

/// Follows the file until every receiver of `state` is gone. `apply` puts a good configuration in
/// force, or says why it cannot be.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
pub async fn follow(
    mut reloader: Reloader,
    state: watch::Sender<State>,
    every: Duration,
    mut apply: impl AsyncFnMut(&Loaded) -> Result<(), Vec<policy::Mistake>>,
) -> io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = tokio::select! {
            _ = hangups.recv() => true,
            _ = ticks.tick() => false,
            () = state.closed() => return Ok(()),
        };
        let read = move || {
            let outcome = if now { Some(reloader.reload()) } else { reloader.poll() };
            (reloader, outcome)
        };
        let outcome;
        (reloader, outcome) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
        let Some(mut outcome) = outcome else { continue };
        if let Ok(loaded) = &outcome
            && let Err(found) = apply(loaded).await
        {
            outcome =
                Err(Mistakes::together(loaded.file_name(), found, |path| loaded.origin_of_refused(path)));
        }
        state.send_modify(|state| state.take(outcome));
    }
}
