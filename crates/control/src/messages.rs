//! Short messages among the nodes that share a database. Nobody keeps them.
//!
//! ```text
//!   tell --> queue --> the follower's connection --pg_notify--> every other node's follower --> heard
//! ```
//!
//! They go over the connection that each node follows changes by. While it is lost nothing is heard, and what has waited for
//! [`NEWS`] is dropped: a message is of use while it is new. So nothing may depend on one; it can only make something
//! happen earlier. Behind a proxy that gives one connection to many clients none arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_postgres::Session;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use crate::database_error::unavailable;
use crate::error::Error;

/// The channel's name in the database.
pub(crate) const CHANNEL: &str = "tidegate_messages";

/// Longest message, in bytes. PostgreSQL takes payloads below 8,000.
pub const MAX_MESSAGE_BYTES: usize = 4_096;

/// Most messages that wait to be sent; of those that have arrived, most that a slow reader finds.
pub const MAX_MESSAGES: usize = 1_024;

/// How long a message may wait to be sent.
const NEWS: Duration = Duration::from_secs(10);

/// Most messages that go in one statement.
const AT_ONCE: usize = 64;

/// Messages of other nodes, oldest first. A reader that falls behind by [`MAX_MESSAGES`] misses the oldest.
pub type Heard = broadcast::Receiver<Arc<str>>;

/// How many messages there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageStats {
    /// Sent to the other nodes.
    pub sent: u64,
    /// Heard from them.
    pub heard: u64,
    /// Not sent: too long, too many at once, or the database was away.
    pub dropped: u64,
}

/// A message, and when it was told.
#[derive(Debug)]
pub(crate) struct Told {
    message: String,
    at: Instant,
}

/// What is said and heard by a node.
#[derive(Debug)]
pub(crate) struct Messages {
    queue: mpsc::Sender<Told>,
    pub(crate) heard: broadcast::Sender<Arc<str>>,
    sent: AtomicU64,
    arrived: AtomicU64,
    dropped: AtomicU64,
}

/// The messages of a node, and those that wait to be sent.
pub(crate) fn outbox() -> (Messages, mpsc::Receiver<Told>) {
    let (queue, waiting) = mpsc::channel(MAX_MESSAGES);
    let (heard, _) = broadcast::channel(MAX_MESSAGES);
    let (sent, arrived, dropped) = Default::default();
    (Messages { queue, heard, sent, arrived, dropped }, waiting)
}

impl Messages {
    pub(crate) fn tell(&self, message: String) {
        let is_long = message.len() > MAX_MESSAGE_BYTES;
        if is_long || self.queue.try_send(Told { message, at: Instant::now() }).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> MessageStats {
        MessageStats {
            sent: self.sent.load(Relaxed),
            heard: self.arrived.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }

    /// Takes a payload of [`CHANNEL`]. The server also sends a node its own.
    pub(crate) fn arrived(&self, payload: &str, own: u32) {
        let Some((node, message)) = payload.split_once(' ') else { return };
        if node.parse() == Ok(own) {
            return;
        }
        self.arrived.fetch_add(1, Relaxed);
        // Nobody may be listening.
        drop(self.heard.send(message.into()));
    }

    /// Sends `first` and what waits behind it, as far as it is new.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) async fn send(
        &self,
        session: &Session,
        own: u32,
        first: Told,
        waiting: &mut mpsc::Receiver<Told>,
    ) -> Result<(), Error> {
        let mut payloads = Vec::new();
        let mut next = Some(first);
        while let Some(Told { message, at }) = next {
            if at.elapsed() < NEWS {
                payloads.push(format!("{own} {message}"));
            } else {
                self.dropped.fetch_add(1, Relaxed);
            }
            next = if payloads.len() < AT_ONCE { waiting.try_recv().ok() } else { None };
        }
        let statement = "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message";
        session.query(statement, &[&CHANNEL, &payloads]).await.map_err(unavailable)?;
        self.sent.fetch_add(payloads.len() as u64, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_sent_is_dropped_and_counted() {
        let (messages, mut waiting) = outbox();
        messages.tell("x".repeat(MAX_MESSAGE_BYTES + 1));
        assert_eq!(messages.stats().dropped, 1, "too long");
        for number in 0..=MAX_MESSAGES {
            messages.tell(number.to_string());
        }
        assert_eq!(messages.stats().dropped, 2, "one too many");
        assert_eq!(waiting.try_recv().unwrap().message, "0", "the oldest is kept");
    }

    #[test]
    fn a_node_does_not_hear_itself_nor_what_is_no_message() {
        let (messages, _waiting) = outbox();
        let mut heard = messages.heard.subscribe();
        for payload in ["7 mine", "", "7", "8 theirs", "x a word"] {
            messages.arrived(payload, 7);
        }
        assert_eq!(messages.stats().heard, 2);
        assert_eq!(heard.try_recv().as_deref(), Ok("theirs"));
        assert_eq!(heard.try_recv().as_deref(), Ok("a word"));
    }
}
