//! Which service answers which path on the HTTP listener.

use http::{HeaderValue, Request};
use tidegate_admin::{Operator, TEMPLATES as OPERATOR_TEMPLATES};
use tidegate_limiter::http::{Service, TEMPLATES as DECISION_TEMPLATES};
use tidegate_net::http::{Answered, Handle, Peer, Plain, Reply, RequestBody, Unwritten};
use tidegate_net::stats::Route;

use super::trace::{TRACEPARENT, log};

/// Where the decision API's templates begin in [`TEMPLATES`].
pub(super) const FIRST_DECISION_ROUTE: u8 = 1;

/// Where the operator's templates begin in [`TEMPLATES`].
const FIRST_OPERATOR_ROUTE: usize = 1 + DECISION_TEMPLATES.len();

/// Every route template that metrics may use; the first is for everything else.
pub(super) const TEMPLATES: &[&str] = &{
    let mut templates = ["other"; FIRST_OPERATOR_ROUTE + OPERATOR_TEMPLATES.len()];
    let mut index = 0;
    while index < DECISION_TEMPLATES.len() {
        templates[1 + index] = DECISION_TEMPLATES[index];
        index += 1;
    }
    index = 0;
    while index < OPERATOR_TEMPLATES.len() {
        templates[FIRST_OPERATOR_ROUTE + index] = OPERATOR_TEMPLATES[index];
        index += 1;
    }
    templates
};

/// The services behind the HTTP listener.
#[derive(Debug)]
pub(super) struct Routes {
    decisions: Service,
    operator: Operator,
}

impl Routes {
    pub(super) fn new(decisions: Service, operator: Operator) -> Self {
        Self { decisions, operator }
    }

    async fn answer(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        if let Some((index, response)) = self.operator.answer(&request) {
            let route = FIRST_OPERATOR_ROUTE + usize::from(index);
            // Invariant: there are fewer templates than a byte counts.
            return Reply::new(Route::new(u8::try_from(route).unwrap_or_default()), response);
        }
        self.decisions.answer(request, peer).await
    }
}

impl Handle for Routes {
    async fn handle(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let method = request.method().clone();
        let parent = request.headers().get(TRACEPARENT).cloned();
        let reply = self.answer(request, peer).await;
        let parent = || parent.as_ref().map(HeaderValue::as_bytes);
        log(method.as_str(), parent, reply.response.status(), template(reply.route), peer);
        reply
    }

    fn is_operational(&self, path: &str) -> bool {
        OPERATOR_TEMPLATES.contains(&path)
    }

    /// The operator's pages are not asked for: they are not the ones that are answered so.
    fn answer_at_once(&self, request: &Plain<'_>, peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        let answered = self.decisions.answer_at_once(request, reply)?;
        let parent = || request.field(TRACEPARENT);
        log(request.method(), parent, answered.status(), template(answered.route()), peer);
        Some(answered)
    }
}

fn template(route: Route) -> &'static str {
    TEMPLATES[route.index() % TEMPLATES.len()]
}
