//! The keys that JWTs are verified with, as their issuer publishes them: fetched in the background, never for a request.
//!
//! ```text
//!   fetch ── good ── in force ── REFRESH_INTERVAL, or a token with an unknown kid ──.
//!     ^  `── bad: what was in force stays                                          |
//!     `──────────── no sooner than LEAST_INTERVAL after the last ──────────────────'
//! ```
//!
//! Routes with the same URL share the keys. Until the first fetch is good there are none, and requests are answered 503.
//! Redirects are not followed: the URL is where the keys are.
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
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::body::RequestPayload;
use crate::config::JwtKeysUrl;
use crate::connection;
use crate::random::fraction;

/// How old keys become.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// How often they are fetched at most, whatever tokens say and whatever fails.
const LEAST_INTERVAL: Duration = Duration::from_secs(5);

const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of a set of keys.
const MAX_BYTES: usize = 256 << 10;

/// By how much an interval is longer, at random: many nodes do not ask at once.
const JITTER: f64 = 0.2;

/// Keys of an issuer.
#[derive(Debug)]
pub(crate) struct IssuerKeys {
    url: Arc<JwtKeysUrl>,
    in_force: ArcSwapOption<JwtKeys>,
    wanted: Arc<Notify>,
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
        Arc::new(Self { url, in_force, wanted, fetched: AtomicU64::new(0), failed: AtomicU64::new(0) })
    }

    pub(crate) fn url(&self) -> &JwtKeysUrl {
        &self.url
    }

    /// The last good ones, if there were any.
    pub(crate) fn in_force(&self) -> Option<Arc<JwtKeys>> {
        self.in_force.load_full()
    }

    /// Has them fetched, soon: a token names another key.
    pub(crate) fn refresh(&self) {
        self.wanted.notify_one();
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
                tracing::warn!(%error, url = %self.url.text, "the keys of an issuer of JWTs cannot be had: those before stay");
                false
            }
        }
    }

    async fn fetch(&self, resolver: &Resolver) -> Result<JwtKeys, FetchError> {
        let JwtKeysUrl { upstream, path, .. } = &*self.url;
        let server = upstream.servers.first().ok_or(FetchError::Unsent)?;
        let sender = connection::connect(resolver, upstream, server).await?;
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
        let wanted = Arc::clone(&strong.wanted);
        // It goes before the pause, so that keys that nobody uses any more are not kept alive by it.
        drop(strong);
        sleep(LEAST_INTERVAL.mul_f64(1.0 + JITTER * fraction())).await;
        if is_good {
            // That nobody wants them before is no failure.
            let _elapsed = timeout(REFRESH_INTERVAL - LEAST_INTERVAL, wanted.notified()).await;
        }
    }
}
