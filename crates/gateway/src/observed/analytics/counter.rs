//! What counts the requests of one core: it finds a request's series by its tally, and names it when it is new.

use std::sync::Arc;

use tidegate_net::clock::wall;

use super::Analytics;
use super::labels::Labels;
use super::shard::{CountedSeries, EndedRequest, SeriesKey};
use crate::authentication::identity::Identity;
use crate::config::Action;
use crate::observed::record::{CountsRequests, RequestTally};

/// Counts a core's requests. Requests hold it until they end: with one for all cores, these would write its count of references by turns.
#[derive(Debug)]
#[repr(align(128))]
struct CoreCounter {
    analytics: Arc<Analytics>,
    shard: usize,
}

impl Analytics {
    /// One for each shard, in their order.
    pub(crate) fn counters(self: &Arc<Self>) -> Box<[Arc<dyn CountsRequests>]> {
        let counter = |shard| -> Arc<dyn CountsRequests> {
            Arc::new(CoreCounter { analytics: Arc::clone(self), shard })
        };
        (0..self.shards.len()).map(counter).collect()
    }
}

impl CountsRequests for CoreCounter {
    fn count(&self, tally: &RequestTally) {
        let (upstream, server) = tally.tried.as_ref().map_or((0, 0), |tried| (tried.number, tried.position));
        let key = SeriesKey {
            route: tally.route.as_ref().map_or(0, |route| route.number),
            upstream,
            server,
            key: key_of(tally).map_or(0, |id| id.as_ptr().addr()),
            status: tally.status(),
        };
        let micros = u64::try_from(tally.took().as_micros()).unwrap_or(u64::MAX);
        let named = || {
            let holder = tally.identity.as_ref().filter(|identity| identity.key().is_some());
            CountedSeries::new(labels(tally), holder.cloned())
        };
        let ended = EndedRequest { key, bytes: tally.bytes(), micros };
        self.analytics.count(self.shard, &ended, wall(), named);
    }
}

/// The id of a request's API key.
fn key_of(tally: &RequestTally) -> Option<&str> {
    tally.identity.as_ref().and_then(Identity::key)
}

/// What a request is told apart by. One that reached no server counts for its route's upstream, if it has one alone.
fn labels(tally: &RequestTally) -> Labels {
    let tried = tally.tried.as_ref();
    let server = tried.map(|tried| tried.upstream.servers[tried.position].backend.target.clone());
    let of_route = || {
        let route = &tally.route.as_ref()?.config;
        match &route.action {
            Action::Forward { upstream } if route.split.is_none() => Some(Arc::clone(upstream)),
            _ => None,
        }
    };
    let upstream = tried.map(|tried| Arc::clone(&tried.upstream.name)).or_else(of_route);
    let key = key_of(tally).map(Box::from);
    let route = tally.route.as_ref().map(|route| Arc::clone(&route.config.name));
    Labels { route, key, upstream, server, status: tally.status(), is_other: false }
}
