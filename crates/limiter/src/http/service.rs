//! The API behind the server of [`tidegate_net::http`].

use bytes::Bytes;
use http::{Request, Response};
use tidegate_net::http::{Answered, Body, BodyError, Peer, Plain, Reply, RequestBody, Unwritten};
use tidegate_net::stats::Route;
use tidegate_wire::problem::Problem;

use super::{Api, ApiReply, TEMPLATES, reply};

/// Answers requests that came over a socket.
#[derive(Clone, Debug)]
pub struct Service {
    api: Api,
    first_route: u8,
    max_body_bytes: usize,
}

impl Service {
    /// `first_route` is where [`TEMPLATES`] begin in the server's list of route templates.
    #[must_use]
    pub fn new(api: Api, first_route: u8, max_body_bytes: usize) -> Self {
        Self { api, first_route, max_body_bytes }
    }

    /// Reads the body, within its bound, and answers.
    pub async fn answer(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let (head, body) = request.into_parts();
        let origins = self.api.origins();
        let permission = origins.permission(&head);
        if let Some(mut allowed) = origins.preflight(&head) {
            permission.put(&mut allowed);
            return Reply::new(Route::OTHER, allowed.map(Body::Full));
        }
        let (template, reply) = match body.bytes(self.max_body_bytes).await {
            Ok(body) => self.api.respond(head, body, peer).await,
            Err(error) => {
                let mut refused = refuse(&error);
                permission.put(&mut refused);
                return Reply::new(Route::OTHER, refused.map(Body::Full)).last();
            }
        };
        let mut response = match reply {
            ApiReply::Whole(reply) => reply.map(Body::Full),
            ApiReply::Routed(reply) => whole(reply).await,
        };
        permission.put(&mut response);
        Reply::new(self.route(template), response)
    }

    /// Answers at once, if it can; see [`tidegate_net::http::Handle::answer_at_once`].
    pub fn answer_at_once(&self, request: &Plain<'_>, reply: Unwritten<'_>) -> Option<Answered> {
        if request.body().len() > self.max_body_bytes {
            return None;
        }
        self.api.respond_at_once(request, reply, |template| self.route(template))
    }

    fn route(&self, template: &str) -> Route {
        let index = TEMPLATES.iter().position(|known| *known == template);
        match index.and_then(|index| u8::try_from(index).ok()) {
            Some(index) => Route::new(self.first_route + index),
            None => Route::OTHER,
        }
    }
}

/// The router's replies are at hand, all of them: only as such can their bytes be charged.
async fn whole(reply: Response<axum::body::Body>) -> Response<Body> {
    let (head, body) = reply.into_parts();
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
    reply::problem(&Problem::new(error.status().as_u16(), title, error.to_string()))
}
