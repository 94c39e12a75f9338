//! How many series each client may have: new ones beyond the limit are refused by name, known ones go on (fault 73).
//!
//! A series is a name with its tags. It is forgotten one to two hours after its last line, and makes room for another.
//! What is known of a client is a filter of fixed size ([`tidegate_algorithms::cardinality`]), so an explosion takes no
//! memory. All filters together take 64 MiB at most: where there are more clients, the one of which nothing came for
//! the longest time is forgotten, and counted.
//!
//! Each protocol tells a refusal as it tells of any metric that is not acceptable; a JSON batch that may not be kept in
//! part is answered 429.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Response;
use http::request::Parts as Head;
use tidegate_algorithms::cardinality::{Cardinality, Seen};
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_net::clock::Clock;
use tidegate_net::http::{Body, Peer};
use tidegate_wire::metrics::SeriesLimit;

use crate::access::Right;
use crate::batch;
use crate::intake::Intake;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// When a series is forgotten of which nothing comes: after one to two of these.
pub(crate) const WINDOW: Duration = Duration::from_secs(3_600);
const WINDOW_NANOS: u64 = 3_600 * SECOND;
/// Most bytes of all filters.
const MAX_BYTES: u64 = 64 << 20;
/// Most clients of which something is known.
const MAX_CLIENTS: u64 = 10_000;
/// Most clients that a reply lists.
const MAX_LISTED: usize = 100;

/// The series of all clients.
#[derive(Debug)]
pub struct ClientSeries {
    limit: u64,
    most_clients: usize,
    clock: Clock,
    clients: Mutex<HashMap<Arc<str>, Known>>,
    forgotten: AtomicU64,
    refused: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Known {
    series: Arc<OneClient>,
    used: Tick,
}

/// The series of one client.
#[derive(Debug)]
struct OneClient {
    seen: Mutex<Cardinality>,
    /// Keyed, so that nobody can find series that are taken for one another.
    hasher: RandomState,
    clock: Clock,
    refused: AtomicU64,
    refused_of_all: Arc<AtomicU64>,
}

impl OneClient {
    fn seen(&self) -> MutexGuard<'_, Cardinality> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeriesLimit for OneClient {
    fn admits<'m>(&self, name: &str, tags: &mut dyn Iterator<Item = (&'m str, &'m str)>) -> bool {
        // The sum is the same for any order of the tags.
        let tags = tags.fold(0_u64, |sum, tag| sum.wrapping_add(self.hasher.hash_one(tag)));
        let series = self.hasher.hash_one((name, tags));
        let is_refused = self.seen().see(series, self.clock.tick()) == Seen::Refused;
        if is_refused {
            self.refused.fetch_add(1, Relaxed);
            self.refused_of_all.fetch_add(1, Relaxed);
        }
        !is_refused
    }
}

impl ClientSeries {
    /// At most `limit` series for each client.
    #[must_use]
    pub fn new(limit: u64, clock: Clock) -> Self {
        let most_clients = (MAX_BYTES / Cardinality::bytes(limit)).clamp(1, MAX_CLIENTS);
        Self {
            limit,
            most_clients: usize::try_from(most_clients).unwrap_or(1),
            clock,
            clients: Mutex::default(),
            forgotten: AtomicU64::new(0),
            refused: Arc::default(),
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit for a client.
    pub(crate) fn of(&self, client: &Arc<str>) -> Arc<dyn SeriesLimit> {
        let now = self.clock.tick();
        let mut clients = self.clients();
        if let Some(known) = clients.get_mut(client) {
            known.used = now;
            return Arc::clone(&known.series) as Arc<dyn SeriesLimit>;
        }
        if clients.len() >= self.most_clients {
            let longest =
                clients.iter().min_by_key(|(_, known)| known.used).map(|(name, _)| Arc::clone(name));
            if longest.is_some_and(|name| clients.remove(&name).is_some()) {
                self.forgotten.fetch_add(1, Relaxed);
            }
        }
        let series = Arc::new(OneClient {
            seen: Mutex::new(Cardinality::new(self.limit, WINDOW_NANOS, now)),
            hasher: RandomState::new(),
            clock: self.clock,
            refused: AtomicU64::new(0),
            refused_of_all: Arc::clone(&self.refused),
        });
        clients.insert(Arc::clone(client), Known { series: Arc::clone(&series), used: now });
        series
    }

    /// Clients of which something is known.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients().len()
    }

    /// The most series that a client has.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.clients().values().map(|known| known.series.seen().count()).max().unwrap_or(0)
    }

    /// Metrics that were refused because their series is new and there was no room for it.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Clients that were forgotten for want of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }

    fn to_json(&self) -> serde_json::Value {
        let clients = self.clients();
        let figures = |(name, known): (&Arc<str>, &Known)| {
            (known.series.seen().count(), name.to_string(), known.series.refused.load(Relaxed))
        };
        let mut found: Vec<(u64, String, u64)> = clients.iter().map(figures).collect();
        drop(clients);
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.truncate(MAX_LISTED);
        let listed = found.into_iter();
        let listed: Vec<_> = listed
            .map(|(series, client, refused)| {
                serde_json::json!({ "client": client, "series": series, "refused": refused })
            })
            .collect();
        serde_json::json!({ "limit": self.limit, "clients": listed })
    }
}

impl<L: Limits> Intake<L> {
    /// How many series the clients have that have the most.
    pub(crate) fn show_series(&self, head: &Head, peer: &Peer) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        let off = || serde_json::json!({ "limit": 0, "clients": [] });
        let found = self.parts.series.as_ref().map_or_else(off, |series| series.to_json());
        Ok(batch::json(found.to_string().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_73_each_client_has_its_own_room_and_tags_have_no_order() {
        let all = ClientSeries::new(2, Clock::start());
        let [one, other] = ["one", "other"].map(|name| all.of(&name.into()));
        let admits = |client: &Arc<dyn SeriesLimit>, name: &str, tags: &[(&str, &str)]| {
            client.admits(name, &mut tags.iter().copied())
        };
        assert!(admits(&one, "a", &[("x", "1"), ("y", "2")]) && admits(&one, "a", &[("y", "2"), ("x", "1")]));
        assert!(admits(&one, "a", &[]) && admits(&other, "b", &[]));
        let refused = (0..50).filter(|number| !admits(&one, &number.to_string(), &[])).count();
        assert!(refused > 25, "a small filter takes some new ones for known: {refused}");
        assert_eq!(all.refused(), refused as u64);
        assert!(admits(&all.of(&"one".into()), "a", &[("x", "1"), ("y", "2")]));
        assert_eq!((all.client_count(), all.most(), all.forgotten()), (2, 2, 0));
    }

    #[test]
    fn the_clients_are_bounded_and_the_one_that_was_silent_longest_goes() {
        let all = ClientSeries::new(1_000_000, Clock::start());
        for number in 0..all.most_clients + 3 {
            all.of(&number.to_string().into());
        }
        assert_eq!((all.client_count(), all.forgotten()), (all.most_clients, 3));
        assert!(!all.clients().contains_key("0") && all.clients().contains_key("3"));
        assert!(all.most_clients as u64 * Cardinality::bytes(1_000_000) <= MAX_BYTES);
    }
}
