//! The server of a Cluster that decides a counter, and the lanes to each server.
//!
//! Counters carry one of 64 hash tags ([`super::keys`]), so the map is 64 addresses. It is learnt
//! from `CLUSTER SLOTS` when it is first needed, and again when a server says that it does not
//! decide (`MOVED`, `CLUSTERDOWN`, `READONLY` and such) or cannot be reached: one refresh at a time,
//! whoever comes meanwhile uses its result. A call that was certainly not charged is then repeated
//! once; any other is not.
//!
//! A refresh is a task of its own. Callers give up after milliseconds, and a refresh that ended with
//! the one that began it would never come past a server that does not answer, nor through a slow
//! TLS handshake.
//!
//! The `redis` crate has a Cluster client of its own. It retries by itself, and cannot tell a call
//! that was charged from one that was not; hence this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use redis::{Value, cmd};
use tidegate_algorithms::time::Now;

use super::config::{Address, RedisConfig};
use super::keys::{TAGS, crc16, tag_text};
use super::link::{RedisLink, Target};
use super::open::{open, unsent};
use crate::batch::{Failure, Lane, Operation, Reply};

/// Hash slots of a Cluster, by its specification.
const SLOTS: u16 = 16_384;
/// Most servers that lanes are kept for.
const MAX_SERVERS: usize = 256;

/// The servers of a Cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    map: Arc<Map>,
}

/// What is known of them.
#[derive(Debug)]
struct Map {
    config: Arc<RedisConfig>,
    seeds: Vec<Address>,
    known: Mutex<KnownCluster>,
    /// Held while the map is being learnt.
    learning: Arc<tokio::sync::Mutex<()>>,
    /// How many times the servers were asked for it.
    asked: AtomicU64,
}

#[derive(Debug, Default)]
struct KnownCluster {
    /// By tag; empty until it is learnt.
    owners: Vec<Option<Address>>,
    lanes: HashMap<Address, Vec<Lane>>,
    /// How many times the map was learnt.
    version: u64,
}

impl Cluster {
    pub(super) fn new(config: Arc<RedisConfig>, seeds: Vec<Address>) -> Self {
        let (known, learning, asked) = (Mutex::default(), Arc::default(), AtomicU64::default());
        Self { map: Arc::new(Map { config, seeds, known, learning, asked }) }
    }

    /// Has the owner of `tag` run an operation whose counters all carry it.
    pub(super) async fn call(
        &self,
        tag: u8,
        at: Option<Now>,
        operation: Operation,
    ) -> Result<Reply, Failure> {
        let (lane, version) = match self.map.lane(tag) {
            (Some(lane), version) => (lane, version),
            (None, version) => {
                self.refresh(version).await?;
                let (lane, version) = self.map.lane(tag);
                (lane.ok_or_else(|| Failure::Unsent("no server has this slot".to_owned()))?, version)
            }
        };
        let failure = match lane.call(operation.clone(), Some(tag), at).await {
            Err(failure @ (Failure::Elsewhere(_) | Failure::Unsent(_))) => failure,
            outcome => return outcome,
        };
        self.refresh(version).await?;
        let (lane, _) = self.map.lane(tag);
        lane.ok_or(failure)?.call(operation, Some(tag), at).await
    }

    /// The lanes to every server that owns a tag.
    pub(super) async fn lanes(&self) -> Result<Vec<Lane>, Failure> {
        if let (None, version) = self.map.lane(0) {
            self.refresh(version).await?;
        }
        for tag in 0..TAGS {
            // Makes the lanes to its owner, if there are none yet.
            drop(self.map.lane(tag));
        }
        Ok(self.map.known().lanes.values().flatten().cloned().collect())
    }

    /// The servers that own a tag.
    pub(super) async fn servers(&self) -> Result<Vec<Address>, Failure> {
        self.lanes().await?;
        Ok(self.map.known().lanes.keys().cloned().collect())
    }

    /// Learns the map, unless that was done since `version`.
    async fn refresh(&self, version: u64) -> Result<(), Failure> {
        let map = Arc::clone(&self.map);
        let asked = map.asked.load(Ordering::Relaxed);
        let turn = Arc::clone(&map.learning).lock_owned().await;
        if map.known().version != version {
            return Ok(());
        }
        if map.asked.load(Ordering::Relaxed) != asked {
            // Somebody did while this call waited, in vain.
            return Err(Failure::Unsent("no server says its slots".to_owned()));
        }
        let learning = tokio::spawn(async move {
            let outcome = map.learn().await;
            map.asked.fetch_add(1, Ordering::Relaxed);
            drop(turn);
            outcome
        });
        learning.await.unwrap_or_else(|_| Err(Failure::Unsent("the task that learns ended".to_owned())))
    }
}

impl Map {
    fn lane(&self, tag: u8) -> (Option<Lane>, u64) {
        let mut known = self.known();
        let version = known.version;
        let Some(owner) = known.owners.get(usize::from(tag)).cloned().flatten() else {
            return (None, version);
        };
        if known.lanes.len() >= MAX_SERVERS {
            known.lanes.clear();
        }
        let config = &self.config;
        let connections = config.connections.clamp(1, super::MAX_CONNECTIONS);
        let lanes = known.lanes.entry(owner).or_insert_with_key(|owner| {
            let link =
                |index| RedisLink::new(Target::Fixed(owner.clone()), Arc::clone(config), false, index == 0);
            (0..connections).map(|index| Lane::start(link(index))).collect()
        });
        (Some(lanes[usize::from(tag) % lanes.len()].clone()), version)
    }

    async fn learn(&self) -> Result<(), Failure> {
        let mut places: Vec<Address> = self.known().lanes.keys().cloned().collect();
        places.extend(self.seeds.iter().cloned());
        let mut last = Failure::Unsent("no seed is configured".to_owned());
        for place in places {
            let asking = tokio::time::timeout(self.config.connect_timeout, self.ask(&place)).await;
            match asking.unwrap_or(Err(Failure::Timeout)) {
                Ok(owners) => {
                    let mut known = self.known();
                    known.lanes.retain(|place, _| owners.iter().flatten().any(|owner| owner == place));
                    known.owners = owners;
                    known.version += 1;
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(Failure::Unsent(format!("the Cluster's slots cannot be learnt: {last:?}")))
    }

    async fn ask(&self, place: &Address) -> Result<Vec<Option<Address>>, Failure> {
        let mut connection = open(&self.config, place, true).await.map_err(|error| unsent(place, &error))?;
        let mut question = cmd("CLUSTER");
        question.arg("SLOTS");
        let slots: Value =
            question.query_async(&mut connection).await.map_err(|error| unsent(place, &error))?;
        let ranges = ranges(&slots, place);
        let owner = |tag: u8| {
            let slot = crc16(&tag_text(tag)) % SLOTS;
            ranges
                .iter()
                .find(|range| (range.first..=range.last).contains(&slot))
                .map(|range| range.owner.clone())
        };
        Ok((0..TAGS).map(owner).collect())
    }

    fn known(&self) -> MutexGuard<'_, KnownCluster> {
        self.known.lock()
    }
}

/// Slots that one master owns.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    owner: Address,
}

/// Reads `CLUSTER SLOTS`; what does not look as specified is left out. A server that does not know
/// its own address says an empty one: it is the one that was asked.
fn ranges(slots: &Value, asked: &Address) -> Vec<Range> {
    let Value::Array(slots) = slots else { return Vec::new() };
    let range = |slot: &Value| {
        let Value::Array(parts) = slot else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
        let [host, Value::Int(port), ..] = &master[..] else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            Value::Nil => String::new(),
            _ => return None,
        };
        let host = if host.is_empty() { asked.host.clone() } else { host };
        let owner = Address { host, port: u16::try_from(*port).ok()? };
        Some(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, owner })
    };
    slots.iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_and_nonsense_is_left_out() {
        let asked = Address { host: "10.0.0.1".to_owned(), port: 7_000 };
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let slots = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(99), node("", 7_000), node("10.0.0.2", 7_001)]),
            Value::Array(vec![Value::Int(100), Value::Int(70_000), node("10.0.0.3", 7_002)]),
            Value::Int(7),
        ]);
        assert_eq!(ranges(&slots, &asked), [Range { first: 0, last: 99, owner: asked.clone() }]);
    }

    #[test]
    fn the_tags_spread_over_a_clusters_masters() {
        for masters in [3_u16, 6, 12] {
            let mut counts = vec![0; usize::from(masters)];
            for tag in 0..TAGS {
                let slot = crc16(&tag_text(tag)) % SLOTS;
                counts[usize::from(slot / SLOTS.div_ceil(masters))] += 1;
            }
            let fair = usize::from(TAGS) / usize::from(masters);
            assert!(counts.iter().all(|count| *count <= 2 * fair + 1 && *count > 0), "{counts:?}");
        }
    }
}
