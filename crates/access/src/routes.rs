//! The HTTP API of a listener: the routes of several services behind one guard.
//!
//! ```text
//!   request ── arrive: preflight? body within its bound ── answer: router ── reply, counted under its template
//!                 `─ 204, 413, 408, 503, 400                 404, 405
//! ```
//!
//! A service with routes of its own that need no router, as decisions are, takes what [`Api::arrive`] gives
//! and answers it itself.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body as RouterBody, HttpBody as _};
use axum::extract::MatchedPath;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tidegate_net::http::{Body, BodyError, Peer, Reply, RequestBody};
use tidegate_net::stats::Route;
use tidegate_wire::problem::Problem;

use crate::guard::{AskedFrom, Guard, admit};
use crate::origins::Permission;
use crate::refusal::Refusal;

/// Routes of a service, with their templates: the label values that metrics may use.
#[derive(Clone, Debug)]
pub struct ApiRoutes {
    router: Router,
    templates: Vec<&'static str>,
}

impl ApiRoutes {
    /// The routes of `router`, each behind `guard`. A route without its template here is counted among the others.
    #[must_use]
    pub fn new(router: Router, templates: &[&'static str], guard: &Arc<Guard>) -> Self {
        let guarded = axum::middleware::from_fn_with_state(guard.clone(), admit);
        Self { router: router.route_layer(guarded), templates: templates.to_vec() }
    }

    /// These routes and those of `more`.
    ///
    /// # Panics
    /// If a path is in both.
    #[must_use]
    pub fn with(mut self, more: Self) -> Self {
        self.templates.extend(more.templates);
        Self { router: self.router.merge(more.router), ..self }
    }

    /// Their templates.
    #[must_use]
    pub fn templates(&self) -> &[&'static str] {
        &self.templates
    }
}

/// The API of one listener.
#[derive(Clone, Debug)]
pub struct Api {
    guard: Arc<Guard>,
    router: Router,
    templates: Vec<&'static str>,
    first_route: u8,
    max_body_bytes: usize,
}

/// A request whose body has been read.
#[derive(Debug)]
pub struct Arrived {
    /// Its head.
    pub head: Parts,
    /// Its body.
    pub body: Bytes,
    permission: Permission,
}

impl Api {
    /// `first_route` is where the templates of `routes` begin in the server's list of names.
    #[must_use]
    pub fn new(routes: ApiRoutes, guard: Arc<Guard>, first_route: u8, max_body_bytes: usize) -> Self {
        let ApiRoutes { router, templates } = routes;
        let router = router.fallback(no_such_path).method_not_allowed_fallback(no_such_method);
        Self { guard, router, templates, first_route, max_body_bytes }
    }

    /// The guard in front of the routes.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The largest body that is read.
    #[must_use]
    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    /// The number under which a route's template is counted.
    #[must_use]
    pub fn route(&self, template: &str) -> Route {
        let index = self.templates.iter().position(|known| *known == template);
        match index.and_then(|index| self.first_route.checked_add(u8::try_from(index).ok()?)) {
            Some(index) => Route::new(index),
            None => Route::OTHER,
        }
    }

    /// Reads the body within its bound. Returns the reply instead if a request is answered before it is routed.
    pub async fn arrive(&self, request: Request<RequestBody>) -> ControlFlow<Reply, Arrived> {
        let (head, body) = request.into_parts();
        let permission = self.guard.origins.permission(&head);
        if let Some(mut allowed) = self.guard.origins.preflight(&head) {
            permission.put(&mut allowed);
            return ControlFlow::Break(Reply::new(Route::OTHER, allowed.map(Body::Full)));
        }
        match body.bytes(self.max_body_bytes).await {
            Ok(body) => ControlFlow::Continue(Arrived { head, body, permission }),
            Err(error) => {
                let mut refused = refuse(&error);
                permission.put(&mut refused);
                ControlFlow::Break(Reply::new(Route::OTHER, refused.map(Body::Full)).last())
            }
        }
    }

    /// Answers a request.
    pub async fn respond(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        match self.arrive(request).await {
            ControlFlow::Continue(request) => self.answer(request, peer).await,
            ControlFlow::Break(reply) => reply,
        }
    }

    /// Answers a request that has arrived, by its route.
    pub async fn answer(&self, Arrived { mut head, body, permission }: Arrived, peer: &Peer) -> Reply {
        head.extensions.insert(AskedFrom(peer.address.ip().to_canonical()));
        let request = Request::from_parts(head, RouterBody::from(body));
        // Invariant: a router never fails; its error type is uninhabited.
        let Ok(reply) = tower_service::Service::call(&mut self.router.clone(), request).await;
        let template = reply.extensions().get::<MatchedPath>().map(|path| self.route(path.as_str()));
        let mut response = whole(reply).await;
        permission.put(&mut response);
        Reply::new(template.unwrap_or(Route::OTHER), response)
    }

    /// The reply of a service that has answered a request itself, by the route of this template.
    #[must_use]
    pub fn reply(&self, arrived: Arrived, template: &str, mut response: Response<Bytes>) -> Reply {
        arrived.permission.put(&mut response);
        Reply::new(self.route(template), response.map(Body::Full))
    }
}

/// Reads the router's reply into one piece, unless it is a stream: only then can its bytes be charged.
async fn whole(reply: Response<RouterBody>) -> Response<Body> {
    let (head, body) = reply.into_parts();
    if body.size_hint().exact().is_none() {
        return Response::from_parts(head, Body::streamed(body));
    }
    // Invariant: what is at hand is read without an error.
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    Response::from_parts(head, Body::Full(bytes))
}

fn refuse(error: &BodyError) -> Response<Bytes> {
    let title = match error {
        BodyError::TooLarge { .. } => "Content Too Large",
        BodyError::TooSlow => "Request Timeout",
        BodyError::NoRoom => "Service Unavailable",
        BodyError::Broken(_) => "Bad Request",
    };
    Refusal(Problem::new(error.status().as_u16(), title, error.to_string())).reply()
}

/// The last resort: no route has this path.
async fn no_such_path() -> axum::response::Response {
    Refusal::not_found("such path; see /openapi.json").into_response()
}

/// The path exists, the method does not. The router has set `Allow`.
async fn no_such_method() -> axum::response::Response {
    let detail = "the path exists, but not with this method; see the allow header";
    Refusal(Problem::new(405, "Method Not Allowed", detail)).into_response()
}
