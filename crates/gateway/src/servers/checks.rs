//! The gateway's health checks: what they ask of a server, on connections of their own ([`tidegate_upstream::checks`] says when,
//! and what follows).
//!
//! A check is a request for a path, a call of gRPC's health protocol, or only a connection; over TLS where the server's
//! requests are. A request names the server as its host and has no fields but the necessary ones, unless the upstream's `check` says
//! otherwise. A check that passes lets the upstream's breaker try again, and the breakers of the routes that send requests
//! there.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use tidegate_net::clock::Clock;
use tidegate_upstream::checks::{self, Checked, News};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::failure::CheckFailure;
use tidegate_upstream::verdicts::Watched;
use tokio::time::timeout;

use crate::config::{CheckConfig, Probe};
use crate::forwarding::payload::RequestPayload;
use crate::servers::connection;
use crate::servers::upstream::Upstream;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Checks one server of `upstream` for as long as somebody uses that.
pub(crate) async fn watch(
    upstream: Weak<Upstream>,
    server: usize,
    resolver: Resolver,
    clock: Clock,
    watched: Watched,
    seed: u64,
) {
    let (upstream, resolver) = (&upstream, &resolver);
    checks::watch(|| check_once(upstream, server, resolver, clock), || clock.tick(), watched, seed).await;
}

async fn check_once(
    upstream: &Weak<Upstream>,
    server: usize,
    resolver: &Resolver,
    clock: Clock,
) -> Option<Checked<impl FnOnce(News<'_>) + use<>>> {
    let upstream: Arc<Upstream> = upstream.upgrade()?;
    let check = upstream.config.check.clone()?;
    let backend = Arc::clone(upstream.group.backends().get(server)?);
    let asking = passes(&check, &upstream, server, resolver);
    let result = timeout(check.timeout, asking).await.unwrap_or(Err(CheckFailure::TimedOut(check.timeout)));
    if result.is_ok() {
        upstream.end_pauses(clock.tick());
    }
    let target = backend.target().clone();
    Some(Checked {
        backend,
        result,
        thresholds: check.thresholds,
        interval: check.interval,
        changed: move |news: News<'_>| {
            let name = &upstream.config.name;
            match news {
                News::Up => tracing::info!(upstream = %name, server = %target, "a server is up"),
                News::Down(reason) => {
                    tracing::warn!(upstream = %name, server = %target, reason, "a server is down: its health checks fail");
                }
                News::OtherReason(reason) => {
                    tracing::warn!(upstream = %name, server = %target, reason, "a server is down still: its health checks fail for another reason");
                }
            }
        },
    })
}

async fn passes(
    check: &CheckConfig,
    upstream: &Upstream,
    server: usize,
    resolver: &Resolver,
) -> Result<(), CheckFailure> {
    let sender = upstream.connect(server, resolver, false).await.map_err(|error| match error.kind() {
        // The upstream's own bound, which the error does not know.
        io::ErrorKind::TimedOut if error.raw_os_error().is_none() => {
            CheckFailure::TimedOut(upstream.config.connect_timeout)
        }
        _ => error.into(),
    })?;
    let mut request = match &check.probe {
        Probe::Connection => return Ok(()),
        Probe::Path(path) => get(path),
        Probe::Grpc(service) => call(service),
    };
    for (name, value) in &check.fields {
        request.headers_mut().insert(name, value.clone());
    }
    if let Some(host) = &check.host {
        request.headers_mut().insert(HOST, host.clone());
    }
    let mut sender = sender.through_hyper().await?;
    let server = &upstream.config.servers[server];
    let request = connection::addressed(request, server, sender.is_http2());
    let request = request.ok_or(CheckFailure::Unwell("its name cannot be a host of HTTP"))?;
    sender.ready().await.map_err(io::Error::other)?;
    let reply = sender.send(request).await.map_err(|error| io::Error::other(error.into_error()))?;
    let status = reply.status();
    let passed = match (&check.probe, check.status) {
        (Probe::Grpc(_), _) if status == StatusCode::OK => {
            let is_serving = is_serving(reply).await;
            return is_serving
                .then_some(())
                .ok_or(CheckFailure::Unwell("does not say that it serves (gRPC)"));
        }
        (Probe::Grpc(_), _) => false,
        (_, Some(expected)) => status.as_u16() == expected,
        (_, None) => status.is_success(),
    };
    passed.then_some(()).ok_or(CheckFailure::Answered(status.as_u16()))
}

fn get(path: &PathAndQuery) -> Request<RequestPayload> {
    let mut request = Request::new(RequestPayload::Whole(Bytes::new()));
    *request.uri_mut() = Uri::from(path.clone());
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("tidegate-health-check"));
    request
}

/// A call of gRPC's health protocol (grpc.health.v1) for a service; empty: the server as a whole.
fn call(service: &str) -> Request<RequestPayload> {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Invariant: the configuration's names are shorter than 128 bytes, so that one byte holds the length.
        message.extend([0x0a, u8::try_from(service.len()).unwrap_or(0x7f)]);
        message.extend(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    let framed = [&[0], &length[..], &message].concat();
    let mut request = Request::new(RequestPayload::Whole(framed.into()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/grpc.health.v1.Health/Check");
    let fields = request.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    fields.insert(TE, HeaderValue::from_static("trailers"));
    fields.insert(USER_AGENT, HeaderValue::from_static("tidegate-health-check"));
    request
}

/// Whether the reply to [`call`] says so: SERVING, and no error behind it.
async fn is_serving(reply: Response<Incoming>) -> bool {
    const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
    let (head, mut body) = reply.into_parts();
    let mut message = Vec::new();
    let mut status = head.headers.get(GRPC_STATUS).cloned();
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame.into_data() {
            Ok(data) => message.extend_from_slice(&data),
            Err(frame) => {
                status = frame.trailers_ref().and_then(|trailers| trailers.get(GRPC_STATUS).cloned())
            }
        }
        if message.len() > SERVING.len() {
            return false;
        }
    }
    message == SERVING && status.is_some_and(|status| status == "0")
}
