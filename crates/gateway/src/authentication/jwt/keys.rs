//! The keys that JWTs are verified with, as their issuer publishes them: fetched in the background.
//!
//! ```text
//!   fetch ── good ── in force ── rest ── REFRESH_INTERVAL, or a token with an unknown kid ──.
//!     ^  `── bad: what was in force stays                                                  |
//!     `──────────── no sooner than LEAST_INTERVAL after the last ──────────────────────────'
//! ```
//!
//! A request whose token names an unknown key waits for one fetch, [`LONGEST_WAIT`] at most, so that the first token after a rotation
//! is good. Between fetches requests do not wait: a flood of unknown names holds up no client.
//!
//! Routes with the same URL share the keys. Until a fetch has succeeded there are no keys, and requests are answered
//! 503. Redirects are not followed: the URL is where the keys are.
//!
//! Bounds: [`MAX_BYTES`] of a set, [`FETCH_TIMEOUT`], one fetch at a time for a URL.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use thiserror::Error;
use tidegate_access::jwt::{JwtKeys, JwtKeysError};
use tidegate_upstream::connect::Resolver;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::config::JwtKeysUrl;
use crate::forwarding::payload::RequestPayload;
use crate::random::fraction;
use crate::servers::connection;

/// How old keys become.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// How often they are fetched at most, whatever tokens say and whatever fails.
const LEAST_INTERVAL: Duration = Duration::from_secs(5);

const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request waits for a fetch.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Most bytes of a set of keys.
const MAX_BYTES: usize = 256 << 10;

/// By how much an interval is longer, at random: many nodes do not ask at once.
const JITTER: f64 = 0.2;

/// What goes on about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// They are being fetched, or will be at once if they are wanted.
    Ready,
    /// They were fetched a moment ago, and are not for a while.
    Rest,
}

/// Keys of an issuer.
#[derive(Debug)]
pub(crate) struct IssuerKeys {
    url: Arc<JwtKeysUrl>,
    in_force: ArcSwapOption<JwtKeys>,
    wanted: Arc<Notify>,
    phase: watch::Sender<Phase>,
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// How the keys of a URL fare.
#[derive(Clone, Debug)]
pub struct JwtKeysStatus {
    /// Where they are fetched from.
    pub url: Arc<str>,
    /// How many are in force.
    pub keys: usize,
    /// Fetches that were good.
    pub fetched: u64,
    /// Fetches that were not.
    pub failed: u64,
}

#[derive(Debug, Error)]
enum FetchError {
    #[error("the server cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    #[error("{0}")]
    NoReply(#[from] hyper::Error),
    #[error("the request cannot be sent")]
    Unsent,
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("the answer has more than 256 KiB")]
    TooLarge,
    #[error("{0}")]
    Keys(#[from] JwtKeysError),
    #[error("there is no answer in time")]
    TooSlow,
}

impl IssuerKeys {
    pub(crate) fn new(url: Arc<JwtKeysUrl>) -> Arc<Self> {
        let (in_force, wanted) = (ArcSwapOption::empty(), Arc::default());
        let (phase, _) = watch::channel(Phase::Ready);
        Arc::new(Self { url, in_force, wanted, phase, fetched: AtomicU64::new(0), failed: AtomicU64::new(0) })
    }

    pub(crate) fn url(&self) -> &JwtKeysUrl {
        &self.url
    }

    /// The last good ones, if there were any.
    pub(crate) fn in_force(&self) -> Option<Arc<JwtKeys>> {
        self.in_force.load_full()
    }

    /// Has them fetched, since a token names another key, and waits for that. `false`: they were fetched a moment ago, so that they will
    /// be after the rest, or do not come in time.
    pub(crate) async fn refreshed(&self) -> bool {
        let mut phase = self.phase.subscribe();
        self.wanted.notify_one();
        if *phase.borrow_and_update() == Phase::Rest {
            return false;
        }
        timeout(LONGEST_WAIT, phase.wait_for(|phase| *phase == Phase::Rest))
            .await
            .is_ok_and(|phase| phase.is_ok())
    }

    pub(crate) fn status(&self) -> JwtKeysStatus {
        JwtKeysStatus {
            url: Arc::clone(&self.url.text),
            keys: self.in_force.load().as_ref().map_or(0, |keys| keys.len()),
            fetched: self.fetched.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    /// Fetches them once; whether that was good.
    async fn fetch_once(&self, resolver: &Resolver) -> bool {
        let fetched = timeout(FETCH_TIMEOUT, self.fetch(resolver)).await.unwrap_or(Err(FetchError::TooSlow));
        match fetched {
            Ok(keys) => {
                self.fetched.fetch_add(1, Relaxed);
                let before = self.in_force.swap(Some(Arc::new(keys)));
                let after = self.in_force.load();
                if before.as_deref() != after.as_deref() {
                    let count = after.as_ref().map_or(0, |keys| keys.len());
                    tracing::info!(url = %self.url.text, count, "the keys of an issuer of JWTs are in force");
                }
                true
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                tracing::warn!(%error, url = %self.url.text, "the keys of an issuer of JWTs cannot be fetched: the earlier keys stay in force");
                false
            }
        }
    }

    async fn fetch(&self, resolver: &Resolver) -> Result<JwtKeys, FetchError> {
        let JwtKeysUrl { upstream, path, .. } = &*self.url;
        let server = upstream.servers.first().ok_or(FetchError::Unsent)?;
        let sender = connection::connect(resolver, upstream, server, false).await?;
        let mut sender = sender.through_hyper().await?;
        let mut request = Request::new(RequestPayload::Whole(Bytes::new()));
        *request.uri_mut() = Uri::from(path.clone());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("tidegate"));
        let request = connection::addressed(request, server, sender.is_http2()).ok_or(FetchError::Unsent)?;
        sender.ready().await?;
        let reply = sender.send(request).await.map_err(|error| error.into_error())?;
        if reply.status() != StatusCode::OK {
            return Err(FetchError::Status(reply.status()));
        }
        Ok(JwtKeys::read(&whole(reply.into_body()).await?, false)?)
    }
}

async fn whole(mut body: Incoming) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MAX_BYTES {
            return Err(FetchError::TooLarge);
        }
    }
    Ok(bytes)
}

/// Keeps keys fresh for as long as somebody uses them.
pub(crate) async fn follow(keys: Weak<IssuerKeys>, resolver: Resolver) {
    loop {
        let Some(strong) = keys.upgrade() else { return };
        let is_good = strong.fetch_once(&resolver).await;
        let (wanted, phase) = (Arc::clone(&strong.wanted), strong.phase.clone());
        phase.send_replace(Phase::Rest);
        // It is dropped before the pause, which would otherwise keep alive keys that no route uses any more.
        drop(strong);
        sleep(LEAST_INTERVAL.mul_f64(1.0 + JITTER * fraction())).await;
        phase.send_replace(Phase::Ready);
        if is_good {
            // The time may be over before a request wants them, which is no failure.
            let _elapsed = timeout(REFRESH_INTERVAL - LEAST_INTERVAL, wanted.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use serde_json::json;

    use super::*;
    use crate::config::GatewayConfig;

    #[tokio::test]
    async fn a_token_of_an_unknown_key_waits_for_one_fetch_and_for_none_soon_after_it() {
        let jwt = json!({"issuer": "a", "keys_url": "http://127.0.0.1:1/jwks.json"});
        let route = json!({"name": "a", "upstream": "a", "auth": "jwt", "jwt": jwt});
        let upstream = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
        let config = GatewayConfig::check(&[upstream], &[route], &[]).expect("a configuration");
        let keys = IssuerKeys::new(Arc::clone(config.routes[0].keys_url().expect("its keys are fetched")));
        let mut waiting = pin!(keys.refreshed());
        poll_fn(|cx| {
            assert!(waiting.as_mut().poll(cx).is_pending(), "a fetch begins");
            Poll::Ready(())
        })
        .await;
        keys.wanted.notified().await;
        keys.phase.send_replace(Phase::Rest);
        assert!(waiting.await, "the fetch has ended");
        assert!(!keys.refreshed().await, "the rest is waited for by nobody");
    }
}
