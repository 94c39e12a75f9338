//! What all attempts of one request at one upstream share, and the choice of the next server.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::Moment;
use tidegate_upstream::backend::Place;

use crate::forwarding::attempt::{Attempt, Failure, ServerExchange};
use crate::routes::hedge::Hedge;
use crate::routes::route::Route;
use crate::servers::upstream::Upstream;
use crate::service::Gateway;

/// The servers that a request was sent to, by their positions in the group. Most requests are sent to one.
pub(crate) type TriedServers = SmallVec<[usize; 2]>;

/// What all attempts of one request at one upstream share.
pub(crate) struct Sending<'a> {
    pub(crate) route: &'a Route,
    pub(crate) upstream: &'a Arc<Upstream>,
    /// Whether a second server is asked where the first is late.
    pub(crate) hedge: Option<&'a Hedge>,
    /// The upstream whose budget pays for further attempts: the route's, at the fallback too.
    pub(crate) budget: &'a Upstream,
    /// What a hash ring goes by.
    pub(crate) key: u64,
    /// The core that serves the client.
    pub(crate) core: usize,
    /// When its first attempt begins.
    pub(crate) begun: Moment,
    /// When a reply's head must be there.
    pub(crate) deadline: Option<Instant>,
    /// Whether the client may know which server failed, and why.
    pub(crate) explains: bool,
}

impl Sending<'_> {
    /// Where the request goes once more after an attempt that ended so, if a server is left and the attempt has leave. It is
    /// free where no server had any work of the last attempt, and this one goes to a server that works.
    pub(crate) fn next(
        &self,
        tried: &[usize],
        sent: &Result<Box<ServerExchange>, Failure>,
        now: Tick,
    ) -> Option<(usize, Place)> {
        let picked = self.upstream.pick_again(self.key, tried, now)?;
        let is_unreached = sent.as_ref().is_err_and(|failure| failure.refusal.is_unreachable());
        let is_free = is_unreached && self.upstream.worked_lately(picked.0);
        (is_free || self.budget.budget().try_attempt(now)).then_some(picked)
    }
}

impl Gateway {
    /// An attempt at a server of what is sent, which begins then.
    pub(crate) fn attempt<'s>(&'s self, sending: &Sending<'s>, server: usize, begun: Instant) -> Attempt<'s> {
        let &Sending { route, upstream, core, deadline, explains, .. } = sending;
        Attempt {
            route: &route.config.name,
            upstream,
            server,
            core,
            resolver: self.resolver(),
            clock: self.clock(),
            begun,
            patience: route.config.first_byte_timeout,
            deadline,
            explains,
        }
    }
}
