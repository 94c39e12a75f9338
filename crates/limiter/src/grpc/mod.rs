//! The decision service for Envoy: `envoy.service.ratelimit.v3.RateLimitService` over gRPC, gRPC's health
//! service for whoever balances between instances, and reflection for people who look.
//!
//! ```text
//!   net::http (HTTP/2) -> frame, message -> rate_limit: descriptors to demands -> engine
//!                                           decisions to statuses, in the same order
//! ```
//!
//! A unary call is a POST whose body is one length-prefixed message, answered by another and by
//! trailers. That is little enough to be written on the server that HTTP already has, with its permits,
//! deadlines and drain; see `docs/decisions/0030-grpc-by-hand.md`.
//!
//! Two methods are streams, Health/Watch and server reflection: a stream is a body that makes frames of
//! its own accord, and asks for nothing more.
//!
//! On the wire every answer is a 200, with gRPC's code behind it; it is counted under the status that
//! means the code. Streams are counted when they begin.
//!
//! Rate limits need a token where [`tidegate_access::tokens`] demands one, as metadata `authorization: Bearer ...`;
//! health and reflection need none, because probes have none.
//!
//! Deliberately absent: compression (refused with UNIMPLEMENTED, as the protocol has it), and
//! `grpc-timeout`: Envoy's 20 ms are enforced by Envoy, and the store has a deadline of its own.

mod descriptors;
mod health;
mod rate_limit;
mod reflection;
mod response;
mod status;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use tidegate_access::tokens::{Scope, TokensInForce, bearer};
use tidegate_net::drain::Drain;
use tidegate_net::http::{Body, BodyError, GrpcCall, Handle, HandleFuture, Peer, Reply, RequestBody};
use tidegate_net::stats::Route;
use tidegate_wire::rls::{self, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES};

use crate::engine::Engine;
use descriptors::Descriptors;
use rate_limit::{Caller, RateLimits};
use response::{failed, streamed, succeeded};
use status::{Code, Status};

/// The name under which health is asked for.
const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const REFLECTION_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// Every route's template: the label values that metrics may use.
pub const TEMPLATES: &[&str] =
    &["other", RATE_LIMIT, HEALTH_CHECK, HEALTH_WATCH, REFLECTION, REFLECTION_ALPHA];

/// Answers gRPC calls.
#[derive(Debug)]
pub struct GrpcService {
    limits: RateLimits,
    drain: Drain,
    descriptors: Arc<Descriptors>,
    tokens: TokensInForce,
}

impl GrpcService {
    /// A service for `engine` that reports healthy until `drain` begins, and asks for what `tokens` demand.
    #[must_use]
    pub fn new(engine: Arc<Engine>, drain: Drain, tokens: TokensInForce) -> Self {
        Self { limits: RateLimits::new(engine), drain, descriptors: Arc::default(), tokens }
    }

    async fn answer(
        &self,
        head: &Parts,
        body: RequestBody,
        caller: Caller<'_>,
    ) -> Result<Response<Body>, Status> {
        match head.uri.path() {
            RATE_LIMIT => {
                let given = head.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
                self.tokens.load().admit(Scope::Decide, given.and_then(bearer))?;
                let response = match body.bytes(MAX_REQUEST_BYTES).await {
                    Ok(message) => self.limits.decide(&rls::decode(&message)?, caller).await?,
                    // An error would let through whoever writes enough into a field that Envoy passes on.
                    Err(BodyError::TooLarge { .. }) => rls::Response::over_limit(),
                    Err(error) => return Err(error.into()),
                };
                Ok(succeeded(rls::encode(&response)))
            }
            HEALTH_CHECK => {
                let request = rls::decode(&body.bytes(MAX_MESSAGE_BYTES).await?)?;
                Ok(succeeded(rls::encode(&health::check(&self.drain, &request)?)))
            }
            HEALTH_WATCH => {
                let request = rls::decode(&body.bytes(MAX_MESSAGE_BYTES).await?)?;
                Ok(streamed(health::HealthWatch::new(&self.drain, &request)))
            }
            REFLECTION | REFLECTION_ALPHA => Ok(streamed(reflection::Conversation::new(
                self.descriptors.clone(),
                self.drain.clone(),
                body,
            ))),
            _ => Err(Status::new(Code::Unimplemented, "no such method")),
        }
    }
}

impl Handle for GrpcService {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(self.serve(request, peer))
    }
}

impl GrpcService {
    async fn serve(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let (head, body) = request.into_parts();
        // Calls of gRPC-Web have other bodies.
        let is_call = GrpcCall::of(&head.headers).is_some_and(|call| !call.is_web());
        if head.method != Method::POST || !is_call {
            return Reply::refusal(http::StatusCode::UNSUPPORTED_MEDIA_TYPE, "this listener speaks gRPC");
        }
        let path = head.uri.path();
        let route = TEMPLATES.iter().position(|known| *known == path).unwrap_or(0);
        let route = Route::new(u8::try_from(route).unwrap_or(0));
        let tls_name = peer.tls_name.as_deref();
        let caller = Caller { metadata: &head.headers, address: peer.address.ip(), tls_name };
        match self.answer(&head, body, caller).await {
            Ok(response) => Reply::new(route, response),
            Err(status) => Reply::new(route, failed(&status)).counted_as(status.http_status()),
        }
    }
}
