//! Active health checks: a task for each server, at jittered intervals, on connections of its own.
//!
//! A check is a request for a path, or only a connection. What it says goes through rise and fall
//! ([`tidegate_algorithms::balance::eligibility`]); one that passes lets the upstream's breaker try again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_algorithms::random::Random;
use tidegate_net::clock::Clock;
use tidegate_upstream::connect::Resolver;
use tokio::time::{sleep, timeout};

use crate::body::RequestPayload;
use crate::config::CheckConfig;
use crate::upstream::Upstream;

/// By how much an interval is shorter or longer, at random: checks of many nodes do not fall together.
const JITTER: f64 = 0.2;

/// Checks one server of `upstream` for as long as somebody uses that.
pub(crate) async fn watch(
    upstream: Weak<Upstream>,
    server: usize,
    resolver: Resolver,
    clock: Clock,
    seed: u64,
) {
    let mut random = Random::seeded(seed);
    loop {
        // The strong reference goes before the pause, so that a replaced upstream is not kept alive by its checks.
        let Some(interval) = check_once(&upstream, server, &resolver, &clock).await else { return };
        sleep(interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.unit())).await;
    }
}

async fn check_once(
    upstream: &Weak<Upstream>,
    server: usize,
    resolver: &Resolver,
    clock: &Clock,
) -> Option<Duration> {
    let upstream: Arc<Upstream> = upstream.upgrade()?;
    let check = upstream.config.check.clone()?;
    let backend = Arc::clone(upstream.group.backends().get(server)?);
    let passed = timeout(check.timeout, passes(&check, &upstream, server, resolver)).await.unwrap_or(false);
    let now = clock.tick();
    if backend.checked(passed, check.thresholds, now) {
        let server = backend.target();
        let name = &upstream.config.name;
        if passed {
            tracing::info!(upstream = %name, %server, "a server is up");
        } else {
            tracing::warn!(upstream = %name, %server, "a server is down: its health checks fail");
        }
    }
    if passed && let Some(breaker) = &upstream.breaker {
        breaker.end_pause(now);
    }
    Some(check.interval)
}

async fn passes(check: &CheckConfig, upstream: &Upstream, server: usize, resolver: &Resolver) -> bool {
    let target = upstream.group.backends()[server].target();
    let Ok(stream) = resolver.connect(target, check.timeout).await else { return false };
    let Some(path) = &check.path else { return true };
    let Ok((mut sender, connection)) = http1::handshake(TokioIo::new(stream)).await else { return false };
    drop(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a health check's connection ended early");
        }
    }));
    let mut request = Request::new(RequestPayload::Whole(Bytes::new()));
    *request.uri_mut() = Uri::from(path.clone());
    let fields = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(&target.to_string()) {
        fields.insert(HOST, host);
    }
    fields.insert(USER_AGENT, HeaderValue::from_static("tidegate-health-check"));
    fields.insert(CONNECTION, HeaderValue::from_static("close"));
    match sender.send_request(request).await {
        Ok(reply) => match check.status {
            Some(status) => reply.status().as_u16() == status,
            None => reply.status().is_success(),
        },
        Err(_) => false,
    }
}
