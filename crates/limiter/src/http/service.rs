//! The API behind the server of [`tidegate_net::http`].

use std::ops::ControlFlow;

use http::Request;
use tidegate_access::routes::Api;
use tidegate_net::http::{Answered, Peer, Plain, Reply, RequestBody, Unwritten};

use super::Decisions;

/// Answers requests that came over a socket: the hot routes itself, the others by `api`.
#[derive(Clone, Debug)]
pub struct Service {
    decisions: Decisions,
    api: Api,
}

impl Service {
    /// `api` has the routes of `decisions`, and perhaps more.
    #[must_use]
    pub fn new(decisions: Decisions, api: Api) -> Self {
        Self { decisions, api }
    }

    /// Reads the body, within its bound, and answers.
    pub async fn answer(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let request = match self.api.arrive(request).await {
            ControlFlow::Continue(request) => request,
            ControlFlow::Break(reply) => return reply,
        };
        match self.decisions.respond(&request, peer).await {
            Some((template, reply)) => self.api.reply(request, template, reply),
            // In a box: the hot routes carry no room for a router.
            None => Box::pin(self.api.answer(request, peer)).await,
        }
    }

    /// Answers at once, if it can; see [`tidegate_net::http::Handle::answer_at_once`].
    pub fn answer_at_once(&self, request: &Plain<'_>, peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        if request.body().len() > self.api.max_body_bytes() {
            return None;
        }
        self.decisions.respond_at_once(request, peer, reply, |template| self.api.route(template))
    }
}
