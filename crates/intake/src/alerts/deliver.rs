//! Telling the webhook: notices in order, up to 64 at once, tried again until it takes them.
//!
//! | answer | notices |
//! |---|---|
//! | 2xx | are delivered |
//! | 408, 425, 429, 5xx, none | are sent again after 1 s to 1 min, longer each time |
//! | any other | are dropped, counted and logged: the same would be refused again |
//!
//! Without a webhook notices are dropped without being counted: the states are still to be seen.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tidegate_algorithms::backoff::Backoff;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, Stage};
use tidegate_upstream::endpoint::{Endpoint, EndpointUrl};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Alerts, Notice};

/// How often time passes for alerts.
const STEP: Duration = Duration::from_secs(1);
/// Most notices of a request.
const MAX_AT_ONCE: usize = 64;
/// Longest that the webhook may take.
const DEADLINE: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What lets time pass for alerts, and tells the webhook of them.
#[derive(Debug)]
pub struct Webhook {
    alerts: Arc<Alerts>,
    notices: mpsc::Receiver<Notice>,
}

impl Webhook {
    pub(super) fn new(alerts: Arc<Alerts>, notices: mpsc::Receiver<Notice>) -> Self {
        Self { alerts, notices }
    }

    /// Works until the process drains. `seed` decides the part of the waits that is chance.
    pub async fn run(self, clock: Clock, drain: Drain, seed: u64) {
        let Self { alerts, notices } = self;
        tokio::select! {
            () = drain.reached(Stage::Draining) => {}
            () = tick(&alerts, clock) => {}
            () = deliver(&alerts, notices, seed) => {}
        }
    }
}

/// Lets time pass, for ever.
async fn tick(alerts: &Alerts, clock: Clock) {
    let mut steps = interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        steps.tick().await;
        alerts.advance(clock.tick());
    }
}

/// Delivers what comes, for ever.
async fn deliver(alerts: &Alerts, mut notices: mpsc::Receiver<Notice>, seed: u64) {
    let mut webhook = alerts.webhook.subscribe();
    let mut endpoint = None;
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed);
    let mut taken = Vec::with_capacity(MAX_AT_ONCE);
    loop {
        taken.clear();
        if notices.recv_many(&mut taken, MAX_AT_ONCE).await == 0 {
            // Invariant: the alerts outlive this task and hold the other end.
            std::future::pending::<()>().await;
        }
        let body = Bytes::from(serde_json::to_vec(&taken).unwrap_or_default());
        loop {
            let url = webhook.borrow_and_update().clone();
            endpoint = endpoint_at(url, endpoint);
            let Some(endpoint) = &mut endpoint else { break };
            let count = taken.len() as u64;
            let attempted = tokio::select! {
                wait = attempt(alerts, endpoint, &body, count, &mut backoff) => wait,
                // A receiver that hangs does not hold up the one in its place.
                _ = webhook.changed() => {
                    backoff.succeeded();
                    continue;
                }
            };
            let Some(wait) = attempted else { break };
            tokio::select! {
                () = sleep(wait) => {}
                // Another one has not failed yet.
                _ = webhook.changed() => backoff.succeeded(),
            }
        }
    }
}

/// The endpoint at a URL, which is the `known` one if that is there.
fn endpoint_at(url: Option<EndpointUrl>, known: Option<Endpoint>) -> Option<Endpoint> {
    let url = url?;
    if known.as_ref().is_some_and(|known| *known.url() == url) {
        return known;
    }
    let shown = url.to_string();
    Endpoint::new(url).inspect_err(|error| tracing::error!(url = shown, %error, "no alert is sent")).ok()
}

/// Sends notices once; how long to wait before the next try, if another is worth it.
async fn attempt(
    alerts: &Alerts,
    endpoint: &mut Endpoint,
    body: &Bytes,
    count: u64,
    backoff: &mut Backoff,
) -> Option<Duration> {
    let fields = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let (why, asked) = match endpoint.post(&fields, body.clone(), DEADLINE).await {
        Ok(answer) if answer.status.is_success() => {
            alerts.delivered.fetch_add(count, Relaxed);
            if backoff.failures() > 0 {
                tracing::info!(url = %endpoint.url(), "alerts are taken again");
            }
            backoff.succeeded();
            return None;
        }
        Ok(answer) if is_worth_another_try(answer.status) => {
            (format!("{} {}", answer.status, answer.said()), answer.retry_after)
        }
        Ok(answer) => {
            alerts.refused.fetch_add(count, Relaxed);
            let said = answer.said();
            tracing::error!(url = %endpoint.url(), status = answer.status.as_u16(), said = %said.escape_debug(), count, "alerts were refused and are dropped");
            return None;
        }
        Err(error) => (error.to_string(), None),
    };
    alerts.failed.fetch_add(1, Relaxed);
    if backoff.failures() == 0 {
        tracing::warn!(url = %endpoint.url(), why = %why.escape_debug(), "alerts cannot be sent: tried again until they are taken");
    }
    let wait = backoff.failed();
    Some(asked.map_or(wait, |asked| asked.clamp(wait, LONGEST_WAIT)))
}

/// Whether the same request may be taken later.
pub(crate) fn is_worth_another_try(status: StatusCode) -> bool {
    status.is_server_error() || [408, 425, 429].contains(&status.as_u16())
}
