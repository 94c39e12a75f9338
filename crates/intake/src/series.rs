//! The number of series of each client, and its limit: a new series beyond the limit is refused by name, and known ones
//! go on (fault 73).
//!
//! A series is a name with its tags. It is forgotten one to two hours after its last line, and makes room for another.
//! With a limit, what is known of a client is a filter of fixed size ([`tidegate_algorithms::cardinality`]), so an
//! explosion takes no memory. Without one its series are only estimated ([`tidegate_algorithms::distinct`]), from the first
//! batches and one of eight after these, chosen at random: that costs next to nothing, and a series that comes again and
//! again is found soon. All of it takes 64 MiB at most: where there are more clients, the client that was silent longest is
//! forgotten, and counted.
//!
//! Each protocol tells a refusal as it tells of any metric that is not acceptable; a JSON batch that may not be kept in
//! part is answered 429.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::cardinality::{Cardinality, Seen};
use tidegate_algorithms::distinct::Distinct;
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_net::clock::Clock;
use tidegate_wire::metrics::SeriesLimit;

/// A silent series is forgotten after one to two of these.
pub(crate) const WINDOW: Duration = Duration::from_secs(3_600);
const WINDOW_NANOS: u64 = 3_600 * SECOND;
/// Most bytes of all filters.
const MAX_BYTES: u64 = 64 << 20;
/// Most clients of which something is known.
const MAX_CLIENTS: u64 = 10_000;
/// Most clients that a reply lists.
const MAX_LISTED: usize = 100;
/// Without a limit, one batch of this many is looked at.
const LOOKED_AT: u64 = 8;
/// Without a limit, this many of a client's first batches are all looked at.
const FIRST_BATCHES: u64 = 8;

/// The series of all clients.
#[derive(Debug)]
pub struct ClientSeries {
    limit: u64,
    most_clients: usize,
    clock: Clock,
    clients: Mutex<HashMap<Arc<str>, KnownClient>>,
    forgotten: AtomicU64,
    refused: Arc<AtomicU64>,
}

#[derive(Debug)]
struct KnownClient {
    series: Arc<OneClient>,
    used: Tick,
}

/// The series of one client.
#[derive(Debug)]
struct OneClient {
    seen: Mutex<KnownSeries>,
    /// Keyed, so that a client cannot search for series that are taken for one another.
    hasher: RandomState,
    clock: Clock,
    batches: AtomicU64,
    refused: AtomicU64,
    refused_of_all: Arc<AtomicU64>,
}

/// What is known of a client's series.
#[derive(Debug)]
enum KnownSeries {
    /// Which they are, so that a new one can be refused.
    Limited(Cardinality),
    /// About how many.
    Estimated(Distinct),
}

impl OneClient {
    fn seen(&self) -> MutexGuard<'_, KnownSeries> {
        self.seen.lock()
    }

    fn count(&self) -> u64 {
        match &mut *self.seen() {
            KnownSeries::Limited(seen) => seen.count(),
            KnownSeries::Estimated(seen) => seen.count(self.clock.tick()),
        }
    }

    /// Whether the next batch is looked at where there is no limit.
    fn is_looked_at(&self) -> bool {
        let number = self.batches.fetch_add(1, Relaxed);
        number < FIRST_BATCHES || self.hasher.hash_one(number).is_multiple_of(LOOKED_AT)
    }
}

impl SeriesLimit for OneClient {
    fn admits<'m>(&self, name: &str, tags: &mut dyn Iterator<Item = (&'m str, &'m str)>) -> bool {
        // The sum is the same for any order of the tags.
        let tags = tags.fold(0_u64, |sum, tag| sum.wrapping_add(self.hasher.hash_one(tag)));
        let series = self.hasher.hash_one((name, tags));
        let now = self.clock.tick();
        let is_refused = match &mut *self.seen() {
            KnownSeries::Limited(seen) => seen.see(series, now) == Seen::Refused,
            KnownSeries::Estimated(seen) => {
                seen.see(series, now);
                false
            }
        };
        if is_refused {
            self.refused.fetch_add(1, Relaxed);
            self.refused_of_all.fetch_add(1, Relaxed);
        }
        !is_refused
    }
}

impl ClientSeries {
    /// At most `limit` series for each client; 0: as many as it sends.
    #[must_use]
    pub fn new(limit: u64, clock: Clock) -> Self {
        let bytes = if limit == 0 { Distinct::BYTES } else { Cardinality::bytes(limit) };
        let most_clients = (MAX_BYTES / bytes).clamp(1, MAX_CLIENTS);
        Self {
            limit,
            most_clients: usize::try_from(most_clients).unwrap_or(1),
            clock,
            clients: Mutex::default(),
            forgotten: AtomicU64::new(0),
            refused: Arc::default(),
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Arc<str>, KnownClient>> {
        self.clients.lock()
    }

    /// What looks at the series of a client's next batch, if anything does.
    pub(crate) fn of(&self, client: &Arc<str>) -> Option<Arc<dyn SeriesLimit>> {
        let series = self.series_of(client);
        (self.limit > 0 || series.is_looked_at()).then_some(series as Arc<dyn SeriesLimit>)
    }

    fn series_of(&self, client: &Arc<str>) -> Arc<OneClient> {
        let now = self.clock.tick();
        let mut clients = self.clients();
        if let Some(known) = clients.get_mut(client) {
            known.used = now;
            return Arc::clone(&known.series);
        }
        if clients.len() >= self.most_clients {
            self.forgotten.fetch_add(forget_longest_unused(&mut clients), Relaxed);
        }
        let series = Arc::new(OneClient {
            seen: Mutex::new(match self.limit {
                0 => KnownSeries::Estimated(Distinct::new(WINDOW_NANOS, now)),
                limit => KnownSeries::Limited(Cardinality::new(limit, WINDOW_NANOS, now)),
            }),
            hasher: RandomState::new(),
            clock: self.clock,
            batches: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refused_of_all: Arc::clone(&self.refused),
        });
        clients.insert(Arc::clone(client), KnownClient { series: Arc::clone(&series), used: now });
        series
    }

    /// Clients of which something is known.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients().len()
    }

    /// Each client with its series. To count them takes long, and no batch waits for it.
    fn all(&self) -> Vec<(Arc<str>, Arc<OneClient>)> {
        self.clients().iter().map(|(name, known)| (Arc::clone(name), Arc::clone(&known.series))).collect()
    }

    /// The most series that a client has.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.all().iter().map(|(_, series)| series.count()).max().unwrap_or(0)
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

    /// The clients that have most series.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let figures = |(name, series): (Arc<str>, Arc<OneClient>)| {
            (series.count(), name.to_string(), series.refused.load(Relaxed))
        };
        let mut found: Vec<(u64, String, u64)> = self.all().into_iter().map(figures).collect();
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

/// Forgets the hundredth of the clients that were silent longest, at least one. One look through all makes room for many, since
/// senders may state a new name with each batch. How many.
fn forget_longest_unused(clients: &mut HashMap<Arc<str>, KnownClient>) -> u64 {
    let mut used: Vec<Tick> = clients.values().map(|known| known.used).collect();
    let count = (used.len() / 100).max(1);
    let Some(last) = count.checked_sub(1).filter(|last| *last < used.len()) else { return 0 };
    let bound = *used.select_nth_unstable(last).1;
    let before = clients.len();
    let mut left = count;
    clients.retain(|_, known| {
        let goes = left > 0 && known.used <= bound;
        left -= usize::from(goes);
        !goes
    });
    (before - clients.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_73_each_client_has_its_own_room_and_tags_have_no_order() {
        let all = ClientSeries::new(2, Clock::start());
        let [one, other] = ["one", "other"].map(|name| all.of(&name.into()).unwrap());
        let admits = |client: &Arc<dyn SeriesLimit>, name: &str, tags: &[(&str, &str)]| {
            client.admits(name, &mut tags.iter().copied())
        };
        assert!(admits(&one, "a", &[("x", "1"), ("y", "2")]) && admits(&one, "a", &[("y", "2"), ("x", "1")]));
        assert!(admits(&one, "a", &[]) && admits(&other, "b", &[]));
        let refused = (0..50).filter(|number| !admits(&one, &number.to_string(), &[])).count();
        assert!(refused > 25, "a small filter takes some new ones for known: {refused}");
        assert_eq!(all.refused(), refused as u64);
        assert!(admits(&all.of(&"one".into()).unwrap(), "a", &[("x", "1"), ("y", "2")]));
        assert_eq!((all.client_count(), all.most(), all.forgotten()), (2, 2, 0));
    }

    #[test]
    fn without_a_limit_nothing_is_refused_and_series_are_estimated_from_some_batches() {
        let all = ClientSeries::new(0, Clock::start());
        let client: Arc<str> = "one".into();
        let mut looked_at = 0;
        for _ in 0..1_000 {
            let Some(series) = all.of(&client) else { continue };
            looked_at += 1;
            for number in 0..50 {
                assert!(series.admits(&number.to_string(), &mut std::iter::empty()));
            }
        }
        assert!((60..300).contains(&looked_at), "{looked_at}");
        assert!(all.most().abs_diff(50) <= 4, "{}", all.most());
        assert_eq!((all.refused(), all.client_count()), (0, 1));
        assert!(all.most_clients as u64 * Distinct::BYTES <= MAX_BYTES);
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
