//! The routes of an HTTP listener: the service that answers each path.

use std::sync::Arc;

use http::{HeaderValue, Request};
use tidegate_access::routes::{Api, ApiRoutes};
use tidegate_admin::{Operator, TEMPLATES as OPERATOR_TEMPLATES};
use tidegate_limiter::http::Service;
use tidegate_net::http::{Answered, Handle, HandleFuture, Peer, Plain, Reply, RequestBody, Unwritten};
use tidegate_net::stats::Route;

use super::trace::{TRACEPARENT, log};

/// Where the API's templates begin among a listener's names.
pub(super) const FIRST_API_ROUTE: u8 = 1;

/// Every route template that a listener's metrics may use; the first is for everything else.
pub(super) fn names(api: &ApiRoutes) -> Vec<&'static str> {
    [&["other"][..], api.templates(), &OPERATOR_TEMPLATES].concat()
}

/// The API of a listener.
#[derive(Clone, Debug)]
pub(super) enum ListenerApi {
    /// The decision API, and perhaps the admin API.
    Decisions(Service),
    /// The admin API alone.
    Admin(Api),
}

impl ListenerApi {
    async fn answer(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        match self {
            Self::Decisions(decisions) => decisions.answer(request, peer).await,
            Self::Admin(admin) => admin.respond(request, peer).await,
        }
    }
}

/// The services behind an HTTP listener.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    api: ListenerApi,
    operator: Arc<Operator>,
    names: Vec<&'static str>,
}

impl Routes {
    /// `names` are those of the API's routes, by [`names`].
    pub(super) fn new(api: ListenerApi, operator: Arc<Operator>, names: Vec<&'static str>) -> Self {
        Self { api, operator, names }
    }

    async fn answer(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        if let Some((index, response)) = self.operator.answer(&request) {
            let route = self.names.len() - OPERATOR_TEMPLATES.len() + usize::from(index);
            // Invariant: there are fewer templates than a byte counts.
            return Reply::new(Route::new(u8::try_from(route).unwrap_or_default()), response);
        }
        self.api.answer(request, peer).await
    }

    fn template(&self, route: Route) -> &'static str {
        self.names.get(route.index()).copied().unwrap_or("other")
    }
}

impl Handle for Routes {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move {
            let method = request.method().clone();
            let parent = request.headers().get(TRACEPARENT).cloned();
            let reply = self.answer(request, peer).await;
            let parent = || parent.as_ref().map(HeaderValue::as_bytes);
            log(method.as_str(), parent, reply.response.status(), self.template(reply.route), peer);
            reply
        })
    }

    fn is_operational(&self, path: &str) -> bool {
        OPERATOR_TEMPLATES.contains(&path)
    }

    /// Of the API's requests only: the operator's pages go through [`Handle::handle`].
    fn answer_at_once(&self, request: &Plain<'_>, peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        let ListenerApi::Decisions(decisions) = &self.api else { return None };
        let answered = decisions.answer_at_once(request, peer, reply)?;
        let parent = || request.field(TRACEPARENT);
        log(request.method(), parent, answered.status(), self.template(answered.route()), peer);
        Some(answered)
    }
}
