//! The service that authenticates a route's requests: what its answers are known by, what a request goes on with, and counts. It
//! is asked in `forward_auth.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderValue;
use http::request::Parts;
use sha2::{Digest, Sha256};

use crate::authentication::identity::Identity;
use crate::config::{CachedBy, ForwardAuth};
use crate::random::random;
use crate::routes::normal::Normal;
use crate::servers::upstream::Upstream;

/// The service that a route asks.
#[derive(Debug)]
pub(crate) struct Authority {
    /// Tells what it has said from what others have.
    id: u64,
    pub(crate) upstream: Arc<Upstream>,
}

/// What a request goes on with.
pub(crate) struct AdmittedRequest {
    /// The request's identity; `None` if the service does not answer and the route lets such requests pass.
    pub(crate) identity: Option<Identity>,
    /// What the client is to keep.
    pub(crate) cookies: Vec<HeaderValue>,
}

impl From<Option<Identity>> for AdmittedRequest {
    fn from(identity: Option<Identity>) -> Self {
        Self { identity, cookies: Vec::new() }
    }
}

/// What became of requests about which another service was asked.
#[derive(Debug, Default)]
pub(crate) struct ForwardAuthCounts {
    pub(crate) allowed: AtomicU64,
    pub(crate) known: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// What became of requests about which another service was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardAuthStats {
    /// It let them pass.
    pub allowed: u64,
    /// It had let the same pass a moment ago, and was not asked.
    pub known: u64,
    /// It refused them.
    pub refused: u64,
    /// It gave no answer that could be used.
    pub failed: u64,
}

impl ForwardAuthCounts {
    pub(crate) fn read(&self) -> ForwardAuthStats {
        ForwardAuthStats {
            allowed: self.allowed.load(Relaxed),
            known: self.known.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

impl Authority {
    pub(crate) fn new(upstream: Arc<Upstream>) -> Self {
        let [id, ..] = random();
        Self { id, upstream }
    }

    /// What an answer is known by. Where a client has proved something `beside`, what is said of it is said of nobody else.
    pub(crate) fn digest(
        &self,
        auth: &ForwardAuth,
        normal: &Normal<'_>,
        request: &Parts,
        beside: Option<[u8; 32]>,
    ) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        };
        add(&self.id.to_le_bytes());
        if let Some(beside) = beside {
            add(&beside);
            add(normal.peer.tls_name.as_deref().unwrap_or_default().as_bytes());
        }
        for by in &auth.cache_by {
            match by {
                CachedBy::Method => add(request.method.as_str().as_bytes()),
                CachedBy::Host => add(normal.host.as_bytes()),
                CachedBy::Path => add(request.uri.path().as_bytes()),
                CachedBy::Field(name) => {
                    let values = request.headers.get_all(name);
                    add(&values.iter().count().to_le_bytes());
                    values.iter().for_each(|value| add(value.as_bytes()));
                }
            }
        }
        digest.finalize().into()
    }
}
