//! gRPC's health service, for whoever balances between instances: serving from ready until the drain.
//!
//! `Check` answers once. `Watch` answers at once and at each change; since a drain never turns back, it
//! then ends with UNAVAILABLE, by which its client knows to ask elsewhere, and the drain does not wait
//! for it. Streams are bounded as requests are: so many on a connection, so many connections.
//!
//! Reference: grpc.health.v1, the GRPC Health Checking Protocol.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use prost::Message;
use tidegate_net::drain::{Drain, Stage};
use tidegate_wire::rls::encode;

use super::response::trailers;
use super::status::{Code, Status};

/// The services whose health can be asked for; the empty name is the process's.
const KNOWN: [&str; 2] = ["", super::RATE_LIMIT_SERVICE];

/// `grpc.health.v1.HealthCheckRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

/// `Check`
pub(super) fn check(drain: &Drain, request: &HealthRequest) -> Result<HealthResponse, Status> {
    if !KNOWN.contains(&request.service.as_str()) {
        return Err(Status::new(Code::NotFound, "no such service"));
    }
    Ok(HealthResponse { status: serving(drain.stage()) })
}

fn serving(stage: Stage) -> i32 {
    if stage == Stage::Ready { SERVING } else { NOT_SERVING }
}

/// The answer to `Watch`: a message per change, then trailers.
pub(super) struct HealthWatch {
    drain: Drain,
    known: bool,
    /// The stage that was told last.
    told: Option<Stage>,
    next: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

impl HealthWatch {
    /// Watches what `request` asks about.
    pub(super) fn new(drain: &Drain, request: &HealthRequest) -> Self {
        let known = KNOWN.contains(&request.service.as_str());
        Self { drain: drain.clone(), known, told: None, next: Box::pin(std::future::ready(())), over: false }
    }
}

impl http_body::Body for HealthWatch {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.told.is_some_and(|told| told >= Stage::Draining) {
            self.over = true;
            let status = Status::new(Code::Unavailable, "shutting down");
            return Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))));
        }
        ready!(self.next.as_mut().poll(cx));
        let stage = self.drain.stage();
        let following = if stage < Stage::Ready { Stage::Ready } else { Stage::Draining };
        let drain = self.drain.clone();
        self.next = Box::pin(async move { drain.reached(following).await });
        self.told = Some(stage);
        let status = if self.known { serving(stage) } else { SERVICE_UNKNOWN };
        Poll::Ready(Some(Ok(Frame::data(encode(&HealthResponse { status }).into()))))
    }
}
