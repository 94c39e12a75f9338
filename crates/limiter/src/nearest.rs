//! The clients and policies nearest to a limit, at most [`MOST`], for the admin API and never for metrics.
//!
//! Decisions are sampled, and only those that leave less than half of a limit count. When the table is full,
//! a newcomer takes the place of one whose quota has come back since, or of the one with the most left, if that
//! has more left than the newcomer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::policy::Mode;
use tidegate_algorithms::time::Tick;

use crate::decision::Part;

/// Most clients and policies that are remembered.
const MOST: usize = 128;
/// Of so many decisions, one is looked at.
const SAMPLED: u64 = 8;
/// Parts of a thousand of a limit that must be used.
const LEAST_USED: u64 = 500;

/// A client under a policy, when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// The client.
    pub client: Box<[u8]>,
    /// The policy.
    pub policy: Arc<str>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// The most that can be spent at once.
    pub limit: u64,
    /// What was left.
    pub remaining: u64,
    /// When.
    pub seen: Tick,
    /// When all will have come back, if nothing more was spent.
    until: Tick,
}

/// The table.
#[derive(Debug, Default)]
pub struct NearestClients {
    table: Mutex<Vec<Near>>,
    /// While the table is full: what a newcomer must have used, in parts of a thousand.
    floor: AtomicU64,
}

impl Near {
    fn new(client: Box<[u8]>, part: &Part, now: Tick) -> Self {
        let verdict = &part.verdict;
        Self {
            client,
            policy: part.policy.clone(),
            mode: part.mode,
            limit: verdict.limit,
            remaining: verdict.remaining,
            seen: now,
            until: now.plus(verdict.reset),
        }
    }

    /// How much is used, in parts of a thousand.
    fn used(&self) -> u64 {
        used(self.limit, self.remaining)
    }
}

fn used(limit: u64, remaining: u64) -> u64 {
    // Limits are at most a billion.
    limit.saturating_sub(remaining).saturating_mul(1_000) / limit.max(1)
}

impl NearestClients {
    /// Looks at a decision on a request of `client`, if it is one of the sample; `number` is any number that
    /// differs from request to request. Never waits for another thread.
    pub(crate) fn see(&self, number: u64, client: &[u8], parts: &[Part], now: Tick) {
        if !number.is_multiple_of(SAMPLED) {
            return;
        }
        for part in parts {
            let verdict = &part.verdict;
            let used = used(verdict.limit, verdict.remaining);
            if used < LEAST_USED || used < self.floor.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(mut table) = self.table.try_lock() {
                self.put(&mut table, client, part, now);
            }
        }
    }

    fn put(&self, table: &mut Vec<Near>, client: &[u8], part: &Part, now: Tick) {
        let same = |other: &Near| *other.client == *client && other.policy == part.policy;
        let used = used(part.verdict.limit, part.verdict.remaining);
        if let Some(known) = table.iter_mut().find(|other| same(other)) {
            let client = std::mem::take(&mut known.client);
            *known = Near::new(client, part, now);
        } else if table.len() < MOST {
            table.push(Near::new(client.into(), part, now));
        } else if let Some(least) = table.iter_mut().min_by_key(|other| (other.until > now, other.used()))
            && (least.until <= now || least.used() < used)
        {
            *least = Near::new(client.into(), part, now);
        }
        let full = table.len() == MOST && table.iter().all(|other| other.until > now);
        let floor = if full { table.iter().map(Near::used).min().unwrap_or(0) } else { 0 };
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// Forgets a client, whose use was reset.
    pub(crate) fn forget(&self, client: &[u8]) {
        let mut table = self.table.lock();
        table.retain(|near| *near.client != *client);
        self.floor.store(0, Ordering::Relaxed);
    }

    /// The clients and policies whose quota has not come back since, the nearest to their limit first.
    #[must_use]
    pub fn list(&self, now: Tick) -> Vec<Near> {
        // Every step that can panic leaves the table whole.
        let mut table = self.table.lock();
        table.retain(|near| near.until > now);
        if table.len() < MOST {
            self.floor.store(0, Ordering::Relaxed);
        }
        let mut list = table.clone();
        list.sort_by(|a, b| b.used().cmp(&a.used()).then_with(|| a.client.cmp(&b.client)));
        list
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::{Verdict, Wait};

    use super::*;

    fn part(remaining: u64) -> Part {
        let verdict = Verdict {
            allowed: true,
            limit: 100,
            remaining,
            wait: Wait::None,
            reset: 1_000,
            delay: 0,
            next: 1,
        };
        let policy = Arc::from("p");
        Part { policy, mode: Mode::Enforce, quota: 100, window_seconds: 60, concurrent: false, verdict }
    }

    #[test]
    fn the_nearest_stay_and_the_table_stays_bounded() {
        let nearest = NearestClients::default();
        for client in 0..1_000_u64 {
            nearest.see(0, &client.to_be_bytes(), &[part(client % 100)], Tick(0));
        }
        let list = nearest.list(Tick(1));
        assert_eq!(list.len(), MOST);
        // Of each remaining number there are ten clients.
        assert!(list.iter().all(|near| near.remaining <= 12), "{list:?}");
        assert!(list.is_sorted_by_key(|near| near.remaining));
        // A client is there once, as it was last seen.
        nearest.see(0, &0_u64.to_be_bytes(), &[part(1)], Tick(1));
        assert_eq!(nearest.list(Tick(1)).len(), MOST);
        assert_eq!(nearest.list(Tick(1_000)).len(), 1, "the quota of the others is back");
        nearest.see(0, b"new", &[part(40)], Tick(2_000));
        assert_eq!(nearest.list(Tick(2_000))[0].remaining, 40);
    }

    #[test]
    fn what_is_far_from_its_limit_or_not_in_the_sample_is_not_kept() {
        let nearest = NearestClients::default();
        nearest.see(0, b"far", &[part(51)], Tick(0));
        nearest.see(1, b"unseen", &[part(0)], Tick(0));
        assert_eq!(nearest.list(Tick(0)), []);
    }
}
