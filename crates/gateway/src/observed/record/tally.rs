//! The tally of one request: what it is counted by when it has ended. It is far less than a record, so that counting is cheap enough to
//! be on by default: no clock is read for a step, and nothing is allocated or copied but counted references.
//!
//! It holds configurations and not what is in force: a stream that outlives its route or upstream keeps no check of servers going.
//!
//! A tally is counted when it is dropped, as a record is noted, so that a request whose client left is counted like any other.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_net::clock::monotonic;

use super::{CLIENT_LEFT, End, Recorder};
use crate::authentication::identity::Identity;
use crate::config::{RouteConfig, UpstreamConfig};
use crate::routes::route::Route;
use crate::servers::upstream::Upstream;

/// Counts requests. It stands above, and a tally knows no more of it.
pub(crate) trait CountsRequests: fmt::Debug + Send + Sync {
    /// Counts a request that has ended.
    fn count(&self, tally: &RequestTally);
}

/// What a request is counted by.
#[derive(Debug)]
pub(crate) struct RequestTally {
    counter: Arc<dyn CountsRequests>,
    came: Instant,
    pub(crate) route: Option<TalliedRoute>,
    /// Who its client has proved to be.
    pub(crate) identity: Option<Identity>,
    /// Of the last attempt.
    pub(crate) tried: Option<TalliedServer>,
    pub(super) status: u16,
    /// Of the reply's body, as far as they were handed to the client's connection.
    pub(super) bytes: u64,
}

/// The route of a request.
#[derive(Debug)]
pub(crate) struct TalliedRoute {
    pub(crate) number: u64,
    pub(crate) config: Arc<RouteConfig>,
}

/// The server that a request was sent to.
#[derive(Debug)]
pub(crate) struct TalliedServer {
    /// The number of its upstream.
    pub(crate) number: u64,
    pub(crate) upstream: Arc<UpstreamConfig>,
    /// Its position there.
    pub(crate) position: usize,
}

impl RequestTally {
    /// For a request that came then.
    pub(crate) fn new(counter: &Arc<dyn CountsRequests>, came: Instant) -> Self {
        Self {
            counter: Arc::clone(counter),
            came,
            route: None,
            identity: None,
            tried: None,
            status: CLIENT_LEFT,
            bytes: 0,
        }
    }

    /// How long the request has taken so far.
    pub(crate) fn took(&self) -> Duration {
        monotonic().duration_since(self.came)
    }

    /// The status that the request counts under.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The bytes of its reply's body.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for RequestTally {
    fn drop(&mut self) {
        self.counter.count(self);
    }
}

impl Recorder {
    /// The request's route is known.
    pub(crate) fn routed(&mut self, route: &Arc<Route>) {
        self.tallied(|tally| {
            let config = Arc::clone(&route.config);
            tally.route = Some(TalliedRoute { number: route.number, config });
        });
        self.note(|record| record.route = Some(Arc::clone(route)));
    }

    /// Its client has proved to be this, or nobody.
    pub(crate) fn identified(&mut self, identity: Option<&Identity>) {
        self.tallied(|tally| tally.identity = identity.cloned());
        self.note(|record| record.identity = identity.cloned());
    }

    /// The request goes to a server.
    pub(super) fn tried(&mut self, upstream: &Upstream, position: usize) {
        self.tallied(|tally| {
            let (number, upstream) = (upstream.number, Arc::clone(&upstream.config));
            tally.tried = Some(TalliedServer { number, upstream, position });
        });
    }

    /// The reply has ended.
    pub(crate) fn ended(&mut self, bytes: u64, end: End) {
        self.tallied(|tally| tally.bytes = bytes);
        self.note(|record| {
            record.bytes = bytes;
            record.end = end;
        });
    }

    /// Adds to what it is counted by, if it is counted.
    pub(super) fn tallied(&mut self, add: impl FnOnce(&mut RequestTally)) {
        if let Some(tally) = &mut self.tally {
            add(tally);
        }
    }
}
