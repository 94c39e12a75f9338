//! The gateway behind a listener: what is answered before any route, and how the others' replies are sent.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use tidegate_certificates::HttpChallenges;
use tidegate_net::clock::monotonic;
use tidegate_net::http::{Body, GrpcCall, Handle, HandleFuture, Peer, Reply, RequestBody};
use tidegate_net::stats::Route as CountedRoute;

use super::{Gateway, HttpsRules};

/// What a listener's metrics call requests of the gateway.
pub const TEMPLATES: &[&str] = &["other", "routed"];
const ROUTED: u8 = 1;

/// A gateway behind a listener; several listeners may share one.
#[derive(Debug)]
pub struct GatewayService {
    gateway: Arc<Gateway>,
    https: HttpsRules,
    challenges: HttpChallenges,
}

impl GatewayService {
    /// The gateway behind a listener that does nothing itself.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, https: HttpsRules::default(), challenges: HttpChallenges::default() }
    }

    /// The same behind a listener that does this about plain HTTP.
    #[must_use]
    pub fn with_https(self, https: HttpsRules) -> Self {
        Self { https, ..self }
    }

    /// The same that answers an authority which asks whether a name is this server's.
    #[must_use]
    pub fn with_challenges(self, challenges: HttpChallenges) -> Self {
        Self { challenges, ..self }
    }
}

impl GatewayService {
    async fn serve(&self, mut request: Request<RequestBody>, peer: &Peer) -> Reply {
        // Before the redirect: an authority asks by plain HTTP.
        if let Some(answer) = self.challenges.answer(request.uri().path()) {
            let mut reply = Response::new(Body::from(answer.to_string()));
            let kind = HeaderValue::from_static("application/octet-stream");
            reply.headers_mut().insert(CONTENT_TYPE, kind);
            return Reply::new(CountedRoute::OTHER, reply);
        }
        if let Some(redirect) = self.https.redirect(&request) {
            let mut record = self.gateway.recorder(&mut request, peer, monotonic());
            record.leave_query_out();
            let status = redirect.status();
            let told = match GrpcCall::of(request.headers()) {
                Some(call) => call.tell(redirect),
                None => redirect,
            };
            let reply = record.replied(told, status, None);
            return Reply::new(CountedRoute::OTHER, reply).counted_as(status.as_u16());
        }
        let (mut answer, status) = self.gateway.proxy(request, peer).await;
        self.https.mark(answer.reply.headers_mut());
        let counted = if answer.route.is_some() { CountedRoute::new(ROUTED) } else { CountedRoute::OTHER };
        match answer.upgrade {
            None => Reply::new(counted, answer.reply).counted_as(status.as_u16()).ready_at(answer.ready),
            Some((offer, tunnel)) => {
                let head = answer.reply.map(drop);
                Reply::upgrade(counted, offer, head, |client| tunnel.run(client))
            }
        }
    }
}

impl Handle for GatewayService {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(self.serve(request, peer))
    }

    fn may_upgrade(&self) -> bool {
        true
    }
}
