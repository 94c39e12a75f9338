//! Affinity: the backend where each client was last, in a bounded table with an idle time.
//!
//! ```text
//!   look up ──> young ── not there ──> old ── there: moves to young
//!   young has half of the places ──> young becomes old; what was old and did not move is forgotten
//! ```
//!
//! Two generations instead of a list by age: an entry costs one place in one map, and nothing is written when it
//! is found in the young one but its time. A client is known until half a table of new clients has come after its
//! last visit.
//!
//! A client is not idle while it has a connection open ([`AffinityTable::enter`], [`AffinityTable::leave`]). Where the table had to
//! forget one that has some, fewer of them are known than there are, never more: it may be forgotten early, and never for
//! good be remembered.
//!
//! Deliberately absent: sharding and locks, which are the caller's.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::net::{IpAddr, Ipv6Addr};

use crate::time::Tick;

/// Clients and where they were.
#[derive(Clone, Debug)]
pub struct AffinityTable<K, V> {
    young: HashMap<K, BoundServer<V>>,
    old: HashMap<K, BoundServer<V>>,
    /// Most entries of a generation.
    half: usize,
    /// Nanoseconds after which a client that did not come back is forgotten.
    idle: u64,
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct BoundServer<V> {
    to: V,
    seen: Tick,
    /// Connections that are open there.
    open: u32,
}

impl<V> BoundServer<V> {
    fn is_idle(&self, idle: u64, now: Tick) -> bool {
        self.open == 0 && now.since(self.seen) >= idle
    }
}

impl<K: Hash + Eq, V: Clone + PartialEq> AffinityTable<K, V> {
    /// A table of at most `capacity` clients, which forgets each `idle` nanoseconds after it was last seen, unless it has
    /// something open.
    #[must_use]
    pub fn new(capacity: usize, idle: u64) -> Self {
        let half = (capacity / 2).max(1);
        Self { young: HashMap::new(), old: HashMap::new(), half, idle, dropped: 0 }
    }

    /// From now on it forgets each client `idle` nanoseconds after it was last seen.
    pub fn keep_for(&mut self, idle: u64) {
        self.idle = idle;
    }

    /// Where the client was, if it is still known. It counts as seen.
    pub fn find(&mut self, client: &K, now: Tick) -> Option<V>
    where
        K: Clone,
    {
        if let Some(bound) = self.young.get_mut(client) {
            if bound.is_idle(self.idle, now) {
                self.young.remove(client);
                return None;
            }
            bound.seen = now.max(bound.seen);
            return Some(bound.to.clone());
        }
        let bound = self.old.remove(client)?;
        if bound.is_idle(self.idle, now) {
            return None;
        }
        let to = bound.to.clone();
        self.insert(client.clone(), BoundServer { seen: now, ..bound }, now);
        Some(to)
    }

    /// Where the client was, without its being seen by that.
    #[must_use]
    pub fn peek(&self, client: &K, now: Tick) -> Option<&V> {
        let bound = self.young.get(client).or_else(|| self.old.get(client))?;
        (!bound.is_idle(self.idle, now)).then_some(&bound.to)
    }

    /// Has the client be at `to` from now on, with one connection more there.
    pub fn enter(&mut self, client: K, to: V, now: Tick) {
        let before = self.young.get(&client).or_else(|| self.old.get(&client));
        let open = before.filter(|bound| bound.to == to).map_or(0, |bound| bound.open);
        self.insert(client, BoundServer { to, seen: now, open: open.saturating_add(1) }, now);
    }

    /// Takes note that a connection of the client at `to` has ended. It was there until now, unless it went elsewhere since.
    pub fn leave(&mut self, client: K, to: V, now: Tick) {
        let known = self.young.get_mut(&client).or_else(|| self.old.get_mut(&client));
        match known {
            Some(bound) if bound.to == to => {
                bound.open = bound.open.saturating_sub(1);
                bound.seen = now.max(bound.seen);
            }
            Some(_) => {}
            None => self.insert(client, BoundServer { to, seen: now, open: 0 }, now),
        }
    }

    fn insert(&mut self, client: K, bound: BoundServer<V>, now: Tick) {
        if self.young.len() >= self.half && !self.young.contains_key(&client) {
            let aged = mem::take(&mut self.young);
            let forgotten = mem::replace(&mut self.old, aged);
            let idle = self.idle;
            let known = forgotten.values().filter(|bound| !bound.is_idle(idle, now)).count();
            self.dropped += known as u64;
        }
        self.old.remove(&client);
        self.young.insert(client, bound);
    }

    /// Forgets a client.
    pub fn release(&mut self, client: &K) {
        self.young.remove(client);
        self.old.remove(client);
    }

    /// How many clients it has, those included that were idle for too long and not looked for since.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Clients that were forgotten before their time, because the table was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The addresses that count as one client: an IPv4 address itself, also where it is written as an IPv6 one, and of
/// an IPv6 address the /64, which is what a household has.
#[must_use]
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;
    use proptest::prelude::*;

    /// A connection that ends at once.
    fn visit<K: Hash + Eq + Copy, V: Clone + PartialEq>(
        table: &mut AffinityTable<K, V>,
        client: K,
        to: V,
        now: Tick,
    ) {
        table.enter(client, to.clone(), now);
        table.leave(client, to, now);
    }

    #[test]
    fn a_client_is_not_idle_while_it_has_a_connection_open() {
        let mut table = AffinityTable::new(10, 600 * SECOND);
        let hours = |hours: u64| Tick(hours * 3_600 * SECOND);
        table.enter("a", 1, hours(0));
        table.enter("a", 1, hours(1));
        assert_eq!(table.find(&"a", hours(2)), Some(1));
        table.leave("a", 1, hours(3));
        assert_eq!(table.peek(&"a", hours(4)), Some(&1), "one of two is open");
        table.leave("a", 1, hours(5));
        assert_eq!(table.peek(&"a", hours(5)), Some(&1), "it was there until now");
        assert_eq!(table.find(&"a", hours(6)), None);
        // It went elsewhere: what it had before says nothing of where it is now.
        table.enter("a", 1, hours(7));
        table.enter("a", 2, hours(7));
        table.leave("a", 1, hours(8));
        assert_eq!(table.find(&"a", hours(9)), Some(2));
        table.leave("a", 2, hours(9));
        assert_eq!(table.find(&"a", hours(10)), None);
        // Forgotten for want of room, it was there when it left.
        table.leave("b", 3, hours(11));
        assert_eq!(table.find(&"b", hours(11)), Some(3));
    }

    #[test]
    fn a_client_is_known_until_it_was_idle_for_too_long() {
        let mut table = AffinityTable::new(10, 600 * SECOND);
        visit(&mut table, "a", 1, Tick(0));
        assert_eq!(table.find(&"a", Tick(599 * SECOND)), Some(1));
        assert_eq!(table.peek(&"a", Tick(1_198 * SECOND)), Some(&1));
        assert_eq!(table.find(&"a", Tick(1_199 * SECOND)), None);
        assert!(table.is_empty());
        visit(&mut table, "a", 2, Tick(0));
        table.release(&"a");
        assert_eq!(table.find(&"a", Tick(1)), None);
    }

    #[test]
    fn a_changed_time_holds_for_clients_that_are_known_already() {
        let mut table = AffinityTable::new(10, 600 * SECOND);
        visit(&mut table, "a", 1, Tick(0));
        table.keep_for(60 * SECOND);
        assert_eq!(table.peek(&"a", Tick(60 * SECOND)), None);
        table.keep_for(61 * SECOND);
        assert_eq!(table.find(&"a", Tick(60 * SECOND)), Some(1));
    }

    #[test]
    fn who_comes_back_stays_while_others_pass() {
        let mut table = AffinityTable::new(100, u64::MAX);
        visit(&mut table, 0, "here", Tick(0));
        for client in 1..10_000 {
            if client % 40 == 0 {
                assert_eq!(table.find(&0, Tick(client)), Some("here"));
            }
            visit(&mut table, client, "there", Tick(client));
        }
        assert!(table.dropped() > 9_000);
    }

    proptest! {
        /// It never has more than its capacity, and what it finds is what was bound last.
        #[test]
        fn it_is_bounded_and_right(
            steps in proptest::collection::vec((0u8..40, any::<bool>()), 1..400), capacity in 2usize..20
        ) {
            let mut table = AffinityTable::new(capacity, u64::MAX);
            let mut last = HashMap::new();
            for (at, (client, is_bound)) in (0u64..).zip(steps) {
                if is_bound {
                    table.enter(client, at, Tick(at));
                    last.insert(client, at);
                } else if let Some(found) = table.find(&client, Tick(at)) {
                    prop_assert_eq!(Some(&found), last.get(&client));
                }
                prop_assert!(table.len() <= capacity);
            }
        }
    }

    #[test]
    fn networks_are_those_of_a_client() {
        for (address, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let parsed: IpAddr = address.parse().expect("an address");
            assert_eq!(client_network(parsed).to_string(), network);
        }
    }
}
