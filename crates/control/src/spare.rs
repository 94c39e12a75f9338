//! The connection of the last change, kept for the next one.
//!
//! Connecting costs several round trips and a process at the server: writers that come one after the
//! other would spend most of their time on it. Fifty nodes that seldom change anything hold no idle
//! connection, because one that nobody used for [`UNUSED`] is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_postgres::Session;
use tokio::time::sleep;

/// A connection is closed after it was not used for this long, or at most twice as long.
const UNUSED: Duration = Duration::from_secs(5);

/// At most one idle connection.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    idle: Mutex<Option<Session>>,
    was_used: AtomicBool,
}

impl Spare {
    /// The idle connection, unless the server has closed it.
    pub(crate) fn take(&self) -> Option<Session> {
        let session = self.idle.lock().take();
        session.filter(|session| !session.is_closed())
    }

    /// Keeps a connection on which nothing is under way, in place of the one that is kept.
    pub(crate) fn keep(&self, session: Session) {
        self.was_used.store(true, Ordering::Relaxed);
        *self.idle.lock() = Some(session);
    }

    /// Closes the idle connection when nobody uses it, until it is aborted.
    pub(crate) async fn close_unused(&self) {
        loop {
            sleep(UNUSED).await;
            if !self.was_used.swap(false, Ordering::Relaxed) {
                drop(self.take());
            }
        }
    }
}
