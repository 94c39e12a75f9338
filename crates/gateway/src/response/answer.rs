//! The answer to a request, and what is done to every reply, whether a server, the route or the gateway itself made it.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Response};
use tidegate_net::http::{Body, GrpcCall, UpgradeOffer};

use crate::forwarding::fields;
use crate::forwarding::tunnel::Tunnel;
use crate::limits::LimitPermit;
use crate::observed::record::{Recorder, What};
use crate::response::refusal::Refusal;
use crate::response::replies::static_reply;
use crate::routes::cors::expose_grpc_status;
use crate::routes::route::Route;

/// A reply, and the route that made it.
pub(crate) struct GatewayReply {
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) reply: Response<Body>,
    /// The gateway has made it, and no server.
    pub(crate) is_own: bool,
    /// The server has agreed to go on in the protocol that the client offered.
    pub(crate) upgrade: Option<(UpgradeOffer, Tunnel)>,
    /// When its head was there, if that was looked at.
    pub(crate) ready: Option<Instant>,
    /// Until the reply has ended.
    pub(crate) held: Option<LimitPermit>,
}

impl GatewayReply {
    pub(crate) fn without_route(refusal: Refusal, record: &mut Recorder) -> Self {
        record.leave_query_out();
        record.note(|record| record.refusal = Some(refusal.word()));
        Self::own(None, refusal.reply())
    }

    pub(crate) fn own(route: Option<Arc<Route>>, reply: Response<Body>) -> Self {
        Self { route, reply, is_own: true, upgrade: None, ready: None, held: None }
    }

    /// The same to a client that has opened a stream of HTTP/2 for another protocol alone: any success would tell it that
    /// this is spoken there.
    pub(crate) fn on_stream(mut self, record: &mut Recorder) -> Self {
        if self.upgrade.is_none() && self.reply.status().is_success() {
            record.note(|record| record.refusal = Some(Refusal::NoUpgrade.word()));
            self.reply = Refusal::NoUpgrade.reply();
            self.is_own = true;
        }
        self
    }

    /// The same as a call of gRPC is told it: in gRPC, unless a server has said it, and so that the script which may read
    /// the reply can read how the call ended.
    pub(crate) fn told_to(mut self, call: &GrpcCall) -> Self {
        if self.is_own {
            self.reply = call.tell(self.reply);
        }
        if call.is_web() && self.route.as_ref().is_some_and(|route| route.config.cors.is_some()) {
            expose_grpc_status(self.reply.headers_mut());
        }
        self
    }
}

/// Says whether scripts of `origin` may read the reply, if the route has rules about that.
pub(crate) fn mark(route: &Route, reply: &mut Response<Body>, origin: Option<HeaderValue>) {
    if let Some(cors) = &route.config.cors {
        cors.mark(reply.headers_mut(), origin);
    }
}

/// The reply that a route gives in place of a server, with the changes that it makes to replies.
pub(crate) fn own(mut reply: Response<Body>, route: &Route) -> Response<Body> {
    fields::edit(reply.headers_mut(), &route.config.response_fields);
    reply
}

/// What the client is told when no server has answered: the route's fallback, if it has one for that.
pub(crate) fn refused(route: &Route, refusal: Refusal, record: &mut Recorder) -> Response<Body> {
    record.note(|record| record.refusal = Some(refusal.word()));
    match &route.config.fallback {
        Some(fallback) if refusal.is_of_upstream() => {
            record.step(|| What::Fallback);
            static_reply(fallback)
        }
        _ => refusal.reply(),
    }
}
