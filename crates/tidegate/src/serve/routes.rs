//! Which service answers which path on the HTTP listener.

use http::Request;
use tidegate_limiter::http::{Service, TEMPLATES as DECISION_TEMPLATES};
use tidegate_net::drain::Drain;
use tidegate_net::http::{Handle, Peer, Reply, RequestBody};

/// Where the decision API's templates begin in [`TEMPLATES`].
pub(super) const FIRST_DECISION_ROUTE: u8 = 1;

/// Every route template that metrics may use; the first is for everything else.
pub(super) const TEMPLATES: &[&str] = &{
    let mut templates = ["other"; 1 + DECISION_TEMPLATES.len()];
    let mut index = 0;
    while index < DECISION_TEMPLATES.len() {
        templates[1 + index] = DECISION_TEMPLATES[index];
        index += 1;
    }
    templates
};

/// The services behind the HTTP listener.
#[derive(Debug)]
pub(super) struct Routes {
    decisions: Service,
    _drain: Drain,
}

impl Routes {
    pub(super) fn new(decisions: Service, drain: Drain) -> Self {
        Self { decisions, _drain: drain }
    }
}

impl Handle for Routes {
    async fn handle(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        self.decisions.answer(request, peer).await
    }
}
