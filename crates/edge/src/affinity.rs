//! Where the clients of a listener were, in a table that is split, so that cores seldom wait for one another.
//!
//! A client is known by its network and the app that it goes to, so that one that uses several apps of a listener stays
//! at a backend of each; and by its server name, if the listener says so.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::balance::affinity::{AffinityTable, client_network};
use tidegate_algorithms::time::Tick;

use crate::config::{Affinity, ListenerConfig};
use crate::stats::AffinityStats;

/// Most clients that a listener remembers the backends of.
const MAX_AFFINE_CLIENTS: usize = 131_072;

/// Parts of the table of these clients, each behind a lock of its own.
const AFFINITY_SHARDS: usize = 16;

/// A client, as it is known again: its network, and a hash of the app that it goes to and of the server name that it asks
/// for, if that counts.
type AffinityClient = (IpAddr, u64);

/// What a client is known again by, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine {
    client: AffinityClient,
    /// Nanoseconds.
    idle: u64,
}

type ClientTable = AffinityTable<AffinityClient, Arc<str>>;

/// Where clients were, in parts.
#[derive(Debug)]
pub(crate) struct AffinityShards {
    shards: Box<[Mutex<ClientTable>]>,
    hasher: RandomState,
}

impl AffinityShards {
    pub(crate) fn new() -> Self {
        let table = |_| Mutex::new(AffinityTable::new(MAX_AFFINE_CLIENTS / AFFINITY_SHARDS, 0));
        Self { shards: (0..AFFINITY_SHARDS).map(table).collect(), hasher: RandomState::new() }
    }

    /// How a client of `app` is known again at a listener; `None`: it is not.
    pub(crate) fn affine(
        &self,
        listener: &ListenerConfig,
        address: IpAddr,
        app: &str,
        server_name: Option<&str>,
    ) -> Option<Affine> {
        let name = match listener.affinity {
            Affinity::Off => return None,
            Affinity::Address => None,
            Affinity::ServerName => server_name,
        };
        let idle = u64::try_from(listener.affinity_idle.as_nanos()).unwrap_or(u64::MAX);
        Some(Affine { client: (client_network(address), self.hasher.hash_one((app, name))), idle })
    }

    pub(crate) fn find(&self, affine: &Affine, now: Tick) -> Option<Arc<str>> {
        self.shard(affine).find(&affine.client, now)
    }

    /// As [`AffinityShards::find`], without its counting as a visit.
    pub(crate) fn peek(&self, affine: &Affine, now: Tick) -> Option<Arc<str>> {
        self.shard(affine).peek(&affine.client, now).cloned()
    }

    /// Has the client be at `backend`, with one connection more.
    pub(crate) fn enter(&self, affine: &Affine, backend: &Arc<str>, now: Tick) {
        self.shard(affine).enter(affine.client, Arc::clone(backend), now);
    }

    /// Takes note that a connection that had entered has ended.
    pub(crate) fn leave(&self, affine: &Affine, backend: &Arc<str>, now: Tick) {
        self.shard(affine).leave(affine.client, Arc::clone(backend), now);
    }

    /// The part that has a client, which remembers for as long as it is asked to.
    fn shard(&self, affine: &Affine) -> MutexGuard<'_, ClientTable> {
        let index = self.hasher.hash_one(affine.client) as usize % self.shards.len();
        let mut shard = self.shards[index].lock();
        shard.keep_for(affine.idle);
        shard
    }

    pub(crate) fn stats(&self) -> AffinityStats {
        let mut stats = AffinityStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            stats.clients += shard.len() as u64;
            stats.dropped += shard.dropped();
        }
        stats
    }
}
