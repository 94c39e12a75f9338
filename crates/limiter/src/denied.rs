//! Who is denied most, by what, and how often in the last minute: for the admin API and never for metrics (fault 53).
//!
//! ```text
//!   denial ──> sketch of 128 clients: how often, and the last denial (policy, attributes that it looks at)
//!        `───> a place of 512: the client's requests, allowed and denied, by 5 s
//!   allowed ─> its client's place, if it has one
//! ```
//!
//! Only a client that was denied has a place, and only while it is denied at least once a minute: a client that takes it
//! over begins anew. So an allowed request costs one load until somebody was denied, and a hash from then on. Nobody
//! waits for another core here, and a denial of a known client allocates nothing: a count that is a few short is worth
//! more than decisions that wait for each other.
//!
//! Deliberately absent: attributes that the policy does not look at. They do not say why it denied. Nor is a wait for
//! bytes of an edge's connection here: it is no denial.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::policy::{Attributes, Policy, Source};
use tidegate_algorithms::sketch::{Counter, TopKeys};
use tidegate_algorithms::time::{SECOND, Tick};

use crate::decision::Decision;
use crate::policy_set::{AttributeSources, CLIENT_ID, PolicySet};

/// Most clients in the sketch.
const MOST: usize = 128;
/// Longest attributes of a denial that are kept, as the query of a URL.
const MOST_BYTES: usize = 2 << 10;
/// Header fields that prove who a client is. What is read from them, or from a cookie, is kept out of the list.
const CREDENTIALS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
/// Most clients whose requests of the last minute are counted.
const PLACES: usize = 512;
/// Parts of the minute, and the length of one in nanoseconds.
const SLOTS: u64 = 12;
const SLOT: u64 = 5 * SECOND;

/// A client that was denied often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedClient {
    /// The client.
    pub client: Box<[u8]>,
    /// Denials, at most.
    pub denied: u64,
    /// By how much `denied` may be too high.
    pub error: u64,
    /// The policy that denied it last, or the name of the limit that came with the request. `None`: no policy applied.
    pub policy: Option<Arc<str>>,
    /// What the policy looks at in the denied request, its client left out, as the query of a URL. `None`: it is longer
    /// than what is kept, has a credential, or is not UTF-8.
    pub attributes: Option<String>,
    /// When it was denied last.
    pub seen: Tick,
    /// Its requests of the last minute, since its first denial if that was later. `None`: they are not counted.
    pub last_minute: Option<MinuteCount>,
}

/// A client's requests in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteCount {
    /// Those that were allowed.
    pub allowed: u64,
    /// Those that were denied.
    pub denied: u64,
}

/// What denied a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeniedBy<'a> {
    /// A policy; the sources say which of its attributes are credentials.
    Policy(&'a Policy, &'a AttributeSources),
    /// A limit that came with the request.
    OwnLimit(&'a Arc<str>),
    /// No policy applies to it.
    NoMatch,
}

/// The clients that are denied most.
#[derive(Debug)]
pub struct DeniedClients {
    sketch: Mutex<TopKeys<LastDenial>>,
    minutes: Minutes,
}

/// The last denial of a client.
#[derive(Clone, Debug, Default)]
struct LastDenial {
    policy: Option<Arc<str>>,
    attributes: String,
    is_hidden: bool,
    seen: Tick,
}

/// What clients asked in the last minute. Each has two places where it can be.
#[derive(Debug)]
struct Minutes {
    hasher: RandomState,
    is_empty: AtomicBool,
    places: Vec<ClientSlot>,
}

/// A client's place.
#[derive(Debug, Default)]
struct ClientSlot {
    /// The hash of the client; 0: the place is free.
    client: AtomicU64,
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    slots: [FiveSeconds; SLOTS as usize],
    /// The number of the slot of the last denial.
    last_denied: u64,
}

/// Five seconds.
#[derive(Clone, Copy, Debug, Default)]
struct FiveSeconds {
    number: u64,
    count: MinuteCount,
}

impl<'a> DeniedBy<'a> {
    /// What denied a request: of several policies the one that the reply names.
    pub(crate) fn from_decision(set: &'a PolicySet, decision: &'a Decision) -> Self {
        let Some(part) = decision.deciding() else { return Self::NoMatch };
        match set.policy(&part.policy) {
            Some(in_force) => Self::Policy(&in_force.policy, set.sources()),
            None => Self::OwnLimit(&part.policy),
        }
    }

    /// Its name, and what it looks at in a request, as the list has both.
    pub(crate) fn told(self, attributes: &Attributes<'_>) -> (Option<Arc<str>>, Option<String>) {
        let mut told = LastDenial::default();
        told.put(self, attributes, Tick::default());
        (told.policy, (!told.is_hidden).then_some(told.attributes))
    }
}

impl Default for DeniedClients {
    fn default() -> Self {
        Self { sketch: Mutex::new(TopKeys::new(MOST)), minutes: Minutes::default() }
    }
}

impl DeniedClients {
    /// Counts a denial of a request with these attributes.
    pub(crate) fn see(&self, client: &[u8], by: DeniedBy<'_>, attributes: &Attributes<'_>, now: Tick) {
        self.minutes.see(client, false, now);
        if let Some(mut sketch) = self.sketch.try_lock() {
            sketch.see(client).put(by, attributes, now);
        }
    }

    /// Counts an allowed request, if its client was denied a short time ago.
    pub(crate) fn see_allowed(&self, client: &[u8], now: Tick) {
        self.minutes.see(client, true, now);
    }

    /// The clients, most denied first.
    #[must_use]
    pub fn list(&self, now: Tick) -> Vec<DeniedClient> {
        // Counting leaves the sketch whole at every step that can panic.
        let heaviest = self.sketch.lock().heaviest();
        let listed = |Counter { key, count, error, note }: Counter<LastDenial>| DeniedClient {
            last_minute: self.minutes.read(&key, now),
            client: key,
            denied: count,
            error,
            policy: note.policy,
            attributes: (!note.is_hidden).then_some(note.attributes),
            seen: note.seen,
        };
        heaviest.into_iter().map(listed).collect()
    }
}

impl LastDenial {
    fn put(&mut self, by: DeniedBy<'_>, attributes: &Attributes<'_>, now: Tick) {
        self.seen = now;
        self.attributes.clear();
        self.is_hidden = false;
        self.policy = match by {
            DeniedBy::Policy(policy, sources) => {
                self.is_hidden = !write_looked_at(policy, sources, attributes, &mut self.attributes);
                Some(Arc::clone(&policy.name))
            }
            DeniedBy::OwnLimit(name) => Some(Arc::clone(name)),
            DeniedBy::NoMatch => None,
        };
    }
}

/// Writes the attributes that the policy looks at, each once, as the query of a URL. False: they are too long, or one of
/// them is a credential or no text.
fn write_looked_at(
    policy: &Policy,
    sources: &AttributeSources,
    attributes: &Attributes<'_>,
    text: &mut String,
) -> bool {
    for (place, name) in policy.attributes().enumerate() {
        if name == CLIENT_ID || policy.attributes().take(place).any(|other| other == name) {
            continue;
        }
        let Some(value) = attributes.value(name) else { continue };
        let is_too_long = text.len() + 3 * (name.len() + value.len()) + 2 > MOST_BYTES;
        if is_too_long || is_credential(sources, name) || std::str::from_utf8(value).is_err() {
            text.clear();
            return false;
        }
        if !text.is_empty() {
            text.push('&');
        }
        text.extend(form_urlencoded::byte_serialize(name.as_bytes()));
        text.push('=');
        text.extend(form_urlencoded::byte_serialize(value));
    }
    true
}

/// Whether an attribute comes from a cookie or a field of [`CREDENTIALS`], at whatever door.
pub(crate) fn is_credential(sources: &AttributeSources, name: &str) -> bool {
    let AttributeSources { check, grpc, gateway } = sources;
    [check, grpc, gateway].into_iter().any(|door| match door.of(name) {
        Some(Source::Cookie(_)) => true,
        Some(Source::Header(field)) => CREDENTIALS.contains(&field.as_str()),
        _ => false,
    })
}

impl Default for Minutes {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            is_empty: AtomicBool::new(true),
            places: (0..PLACES).map(|_| ClientSlot::default()).collect(),
        }
    }
}

impl Minutes {
    /// Counts a request, if its client has a place; one that is denied gets one where there is room.
    fn see(&self, client: &[u8], is_allowed: bool, now: Tick) {
        if is_allowed && self.is_empty.load(Ordering::Relaxed) {
            return;
        }
        let (client, number) = (self.hash(client), now.0 / SLOT);
        if let Some(place) = self.find(client) {
            place.count(client, is_allowed, number);
        } else if !is_allowed {
            self.is_empty.store(false, Ordering::Relaxed);
            if let Some(place) = self.choices(client).into_iter().find(|place| place.take(client, number)) {
                place.count(client, false, number);
            }
        }
    }

    fn read(&self, client: &[u8], now: Tick) -> Option<MinuteCount> {
        let place = self.find(self.hash(client))?;
        let (minute, number) = (place.minute.lock(), now.0 / SLOT);
        let recent = minute.slots.iter().filter(|slot| slot.number + SLOTS > number);
        let sum = |sum: MinuteCount, slot: &FiveSeconds| MinuteCount {
            allowed: sum.allowed + slot.count.allowed,
            denied: sum.denied + slot.count.denied,
        };
        Some(recent.fold(MinuteCount::default(), sum))
    }

    fn hash(&self, client: &[u8]) -> u64 {
        self.hasher.hash_one(client).max(1)
    }

    fn choices(&self, client: u64) -> [&ClientSlot; 2] {
        [client, client >> 32].map(|hash| &self.places[hash as usize % PLACES])
    }

    fn find(&self, client: u64) -> Option<&ClientSlot> {
        self.choices(client).into_iter().find(|place| place.client.load(Ordering::Relaxed) == client)
    }
}

impl ClientSlot {
    /// Has the client here from now on, if nobody is, or somebody who was not denied for a minute.
    fn take(&self, client: u64, number: u64) -> bool {
        let Some(mut minute) = self.minute.try_lock() else { return false };
        let is_free = self.client.load(Ordering::Relaxed) == 0 || minute.last_denied + SLOTS < number;
        if is_free {
            *minute = Minute::default();
            self.client.store(client, Ordering::Relaxed);
        }
        is_free
    }

    fn count(&self, client: u64, is_allowed: bool, number: u64) {
        let Some(mut minute) = self.minute.try_lock() else { return };
        // Another client may have taken the place a moment ago.
        if self.client.load(Ordering::Relaxed) != client {
            return;
        }
        if !is_allowed {
            minute.last_denied = number;
        }
        let slot = &mut minute.slots[(number % SLOTS) as usize];
        if slot.number != number {
            *slot = FiveSeconds { number, count: MinuteCount::default() };
        }
        *if is_allowed { &mut slot.count.allowed } else { &mut slot.count.denied } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Tick = Tick(1_000 * SECOND);

    fn keyed_on(names: &[&str]) -> Policy {
        let key = names.iter().map(|name| (*name).to_owned()).collect();
        Policy { key, ..Policy::default_per_client() }
    }

    #[test]
    fn the_last_denial_says_what_its_policy_looks_at_and_nothing_else() {
        let (clients, policy) = (DeniedClients::default(), keyed_on(&[CLIENT_ID, "path", "path"]));
        let none = AttributeSources::default();
        let pairs = [(CLIENT_ID, &b"c"[..]), ("token", b"secret"), ("path", b"/a b&c"), ("path", b"/other")];
        clients.see(b"c", DeniedBy::Policy(&policy, &none), &Attributes::new(&pairs), AT);
        let listed = clients.list(AT);
        assert_eq!(listed[0].policy.as_ref(), Some(&policy.name));
        assert_eq!(listed[0].attributes.as_deref(), Some("path=%2Fa+b%26c"));
        // Its buffer is used again, and the next denial may be of another kind.
        clients.see(b"c", DeniedBy::NoMatch, &Attributes::new(&pairs), AT);
        let listed = clients.list(AT);
        assert_eq!((listed[0].denied, &listed[0].policy), (2, &None));
        assert_eq!(listed[0].attributes.as_deref(), Some(""));
    }

    #[test]
    fn attributes_that_are_too_long_are_left_out_as_a_whole() {
        let (clients, policy) = (DeniedClients::default(), keyed_on(&["resource", "path"]));
        let none = AttributeSources::default();
        let path = vec![b'a'; MOST_BYTES];
        let pairs = [("resource", &b"r"[..]), ("path", &path[..])];
        clients.see(b"c", DeniedBy::Policy(&policy, &none), &Attributes::new(&pairs), AT);
        assert_eq!(clients.list(AT)[0].attributes, None);
    }

    #[test]
    fn the_last_minute_ends() {
        let clients = DeniedClients::default();
        let nothing = Attributes::new(&[]);
        clients.see_allowed(b"c", AT);
        clients.see(b"c", DeniedBy::NoMatch, &nothing, AT);
        for second in 0..30 {
            clients.see_allowed(b"c", AT.plus(second * SECOND));
            clients.see_allowed(b"unknown", AT);
        }
        let at = |seconds| clients.list(AT.plus(seconds * SECOND))[0].last_minute;
        assert_eq!(at(30), Some(MinuteCount { allowed: 30, denied: 1 }), "since its first denial");
        assert_eq!(at(75), Some(MinuteCount { allowed: 10, denied: 0 }));
        assert_eq!(at(1_000), Some(MinuteCount::default()));
    }

    #[test]
    fn fault_53_clients_take_over_the_places_of_those_that_are_denied_no_more() {
        let clients = DeniedClients::default();
        let nothing = Attributes::new(&[]);
        let deny_all = |now| {
            for client in 0..10_000_u64 {
                clients.see(&client.to_be_bytes(), DeniedBy::NoMatch, &nothing, now);
            }
        };
        deny_all(AT);
        let later = AT.plus(100 * SECOND);
        clients.see(b"new", DeniedBy::NoMatch, &nothing, later);
        assert_eq!(clients.minutes.read(b"new", later), Some(MinuteCount { allowed: 0, denied: 1 }));
        deny_all(later);
        assert_eq!(
            clients.minutes.read(b"new", later),
            Some(MinuteCount { allowed: 0, denied: 1 }),
            "it stays"
        );
        assert_eq!((clients.minutes.places.len(), clients.list(later).len()), (PLACES, MOST));
    }
}
