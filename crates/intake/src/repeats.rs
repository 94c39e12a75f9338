//! Batches that are sent again: kept once within a window.
//!
//! ```text
//!   Idempotency-Key, or the bytes of a remote write ── begin ──> new ──────── kept ──> done: so many lines
//!                                                      │          └ refused ──> forgotten
//!                                                      ├> under way: 503, come back
//!                                                      ├> done: answered as the first time
//!                                                      ├> done, less safely than it is wanted now: made safer first
//!                                                      └> done, with another body: 422
//! ```
//!
//! A key is good for one client and one path. A remote write has no key, but its samples have times, so the same bytes
//! are the same samples; Prometheus sends them again when it got no reply.
//!
//! The table is in memory and bounded, and forgets the oldest first: then, after the window and after a restart, a
//! batch that is sent again is kept again. Keeping is finished also if the client leaves meanwhile, so that the table
//! always knows whether a batch was kept.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tidegate_log::Durability;

use crate::counters::Counters;
use crate::kept::Kept;

/// Most batches that are remembered.
const MAX_REMEMBERED: usize = 100_000;
/// Longest key, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 255;

/// A batch, as its sender names it, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeatable {
    /// The digest of client, path and key; of client, path and body if there is no key.
    name: [u64; 2],
    /// The digest of the body.
    body: u64,
}

/// What is known of a batch that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It comes for the first time, and is under way from now on.
    New,
    /// It is under way.
    UnderWay,
    /// It was kept, as safely as it is wanted or more.
    Done(Kept),
    /// It was kept, less safely, and is under way again from now on.
    Weaker(Kept),
    /// Another one had the same key.
    OtherBody,
}

#[derive(Clone, Copy, Debug)]
struct RepeatEntry {
    body: u64,
    since: Instant,
    kept: Option<Kept>,
}

#[derive(Debug, Default)]
struct RepeatTable {
    entries: HashMap<[u64; 2], RepeatEntry>,
    /// In the order in which they came; some may be gone already.
    order: VecDeque<([u64; 2], Instant)>,
}

/// The batches of a while.
#[derive(Debug)]
pub(crate) struct Repeats {
    window: Duration,
    limit: usize,
    /// Two, so that nobody finds two batches of one name.
    hashers: [RandomState; 2],
    table: Mutex<RepeatTable>,
    counters: Arc<Counters>,
}

impl Repeats {
    pub(crate) fn new(window: Duration, counters: Arc<Counters>) -> Self {
        Self {
            window,
            limit: MAX_REMEMBERED,
            hashers: [RandomState::new(), RandomState::new()],
            table: Mutex::default(),
            counters,
        }
    }

    /// Names the batch that `client` sent to `path` under `key`; by its bytes if there is none.
    pub(crate) fn name(&self, client: &str, path: &str, key: Option<&[u8]>, body: &[u8]) -> Repeatable {
        let digest = |hasher: &RandomState, key: &[u8]| {
            let mut hasher = hasher.build_hasher();
            for part in [client.as_bytes(), path.as_bytes(), key] {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
            hasher.finish()
        };
        let [first, second] = &self.hashers;
        let key = key.unwrap_or(body);
        Repeatable { name: [digest(first, key), digest(second, key)], body: first.hash_one(body) }
    }

    fn table(&self) -> MutexGuard<'_, RepeatTable> {
        self.table.lock()
    }

    /// Looks a batch up that is `wanted` so safely, and notes it if it is new.
    pub(crate) fn begin(&self, batch: Repeatable, wanted: Durability, now: Instant) -> Begun {
        let mut table = self.table();
        let is_old = |since: Instant| now.duration_since(since) >= self.window;
        while let Some((name, since)) = table.order.front().copied() {
            let is_over = table.order.len() >= self.limit;
            if !is_over && !is_old(since) {
                break;
            }
            table.order.pop_front();
            if table.entries.get(&name).is_some_and(|entry| entry.since == since) {
                table.entries.remove(&name);
                if !is_old(since) {
                    self.counters.count_forgotten();
                }
            }
        }
        match table.entries.get_mut(&batch.name) {
            Some(entry) if entry.body != batch.body => Begun::OtherBody,
            Some(RepeatEntry { kept: Some(kept), .. }) if kept.durability >= wanted => {
                self.counters.count_repeated();
                Begun::Done(*kept)
            }
            Some(entry) => entry.kept.take().map_or(Begun::UnderWay, |kept| {
                self.counters.count_repeated();
                Begun::Weaker(kept)
            }),
            None => {
                table.entries.insert(batch.name, RepeatEntry { body: batch.body, since: now, kept: None });
                table.order.push_back((batch.name, now));
                Begun::New
            }
        }
    }

    /// Notes what became of a batch that was new: `None` if it was refused.
    pub(crate) fn end(&self, batch: Repeatable, kept: Option<Kept>) {
        let mut table = self.table();
        match kept {
            None => drop(table.entries.remove(&batch.name)),
            Some(kept) => {
                if let Some(entry) = table.entries.get_mut(&batch.name) {
                    entry.kept = Some(kept);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_net::clock::monotonic;

    use super::*;

    const KEPT: Kept = Kept { lines: 3, durability: Durability::Fsync, losses: 0 };
    const WINDOW: Duration = Duration::from_secs(60);

    fn repeats() -> Repeats {
        Repeats::new(WINDOW, Arc::default())
    }

    fn begin(repeats: &Repeats, batch: Repeatable, now: Instant) -> Begun {
        repeats.begin(batch, Durability::Fsync, now)
    }

    fn named(repeats: &Repeats, key: &str, body: &str) -> Repeatable {
        repeats.name("client", "/metrics", Some(key.as_bytes()), body.as_bytes())
    }

    #[test]
    fn fault_28_a_batch_is_new_once_within_the_window() {
        let (repeats, now) = (repeats(), monotonic());
        let batch = named(&repeats, "a", "body");
        assert_eq!(begin(&repeats, batch, now), Begun::New);
        assert_eq!(begin(&repeats, batch, now), Begun::UnderWay);
        repeats.end(batch, Some(KEPT));
        assert_eq!(begin(&repeats, batch, now), Begun::Done(KEPT));
        assert_eq!(begin(&repeats, named(&repeats, "a", "other"), now), Begun::OtherBody);
        assert_eq!(begin(&repeats, named(&repeats, "b", "body"), now), Begun::New);
        assert_eq!(begin(&repeats, batch, now + WINDOW), Begun::New);
    }

    #[test]
    fn a_repeat_is_never_answered_with_less_than_it_asks_for() {
        let (repeats, now) = (repeats(), monotonic());
        let batch = named(&repeats, "a", "body");
        let weak = Kept { durability: Durability::Memory, ..KEPT };
        assert_eq!(repeats.begin(batch, Durability::Memory, now), Begun::New);
        repeats.end(batch, Some(weak));
        assert_eq!(repeats.begin(batch, Durability::Memory, now), Begun::Done(weak));
        assert_eq!(repeats.begin(batch, Durability::Written, now), Begun::Weaker(weak));
        assert_eq!(repeats.begin(batch, Durability::Memory, now), Begun::UnderWay);
        repeats.end(batch, Some(KEPT));
        for wanted in [Durability::Memory, Durability::Written, Durability::Fsync] {
            assert_eq!(repeats.begin(batch, wanted, now), Begun::Done(KEPT));
        }
    }

    #[test]
    fn a_batch_that_was_refused_may_come_again() {
        let (repeats, now) = (repeats(), monotonic());
        let batch = named(&repeats, "a", "body");
        for _ in 0..3 {
            assert_eq!(begin(&repeats, batch, now), Begun::New);
            repeats.end(batch, None);
        }
    }

    #[test]
    fn clients_and_paths_do_not_share_keys_and_without_a_key_the_bytes_are_one() {
        let (repeats, now) = (repeats(), monotonic());
        let batches = [
            repeats.name("a", "/x", Some(b"k"), b"1"),
            repeats.name("b", "/x", Some(b"k"), b"1"),
            repeats.name("a", "/y", Some(b"k"), b"1"),
            repeats.name("a", "/xk", Some(b""), b"1"),
            repeats.name("a", "/x", None, b"1"),
            repeats.name("a", "/x", None, b"2"),
        ];
        for batch in batches {
            assert_eq!(begin(&repeats, batch, now), Begun::New, "{batch:?}");
        }
        assert_eq!(begin(&repeats, repeats.name("a", "/x", None, b"2"), now), Begun::UnderWay);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let now = monotonic();
        let repeats = Repeats { limit: 10, ..repeats() };
        for number in 0..100 {
            let batch = named(&repeats, &number.to_string(), "body");
            assert_eq!(begin(&repeats, batch, now), Begun::New);
            if number % 2 == 0 {
                repeats.end(batch, None);
            }
        }
        let table = repeats.table();
        assert!(table.entries.len() <= 10 && table.order.len() <= 10);
        drop(table);
        assert_eq!(repeats.counters.forgotten(), 45);
        assert_eq!(begin(&repeats, named(&repeats, "99", "body"), now), Begun::UnderWay);
        assert_eq!(begin(&repeats, named(&repeats, "1", "body"), now), Begun::New);
    }
}
