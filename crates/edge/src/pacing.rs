//! Limits of bytes: a connection that has used up its policies' bytes is not read from until there are more.
//!
//! ```text
//!   allowance used up ──> ask the limiter for a chunk ── granted ──> read that much, both ways together
//!                              ^      │ not yet                            │
//!                              └ wait ┘                    the end: what is unused is given back
//! ```
//!
//! Bytes are charged before they are read, so that no number of connections passes more than the policies say. The
//! first chunk is small and each one after it is twice as large: a connection that says little takes little from the
//! others of its client. While it waits nothing is read, so the peers' windows close and they wait, too.
//!
//! The limiter counts units of one byte, or of as many as the listener says: a policy has a most for its units in a second.
//! Whole units are taken, and what is left of the last one at a connection's end is not given back.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::sleep;

use crate::config::ListenerConfig;
use crate::limits::LimitedConnection;
use crate::service::EdgeListener;

/// Bytes of the first chunk.
const FIRST_CHUNK: u64 = 4 << 10;

/// Most bytes that are asked for at once.
const MAX_CHUNK: u64 = 64 << 10;

/// Bounds of a wait before the limiter is asked again.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What is known of a connection, for its limiter, as long as it lasts.
#[derive(Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) listener: Arc<EdgeListener>,
    /// What the listener does with it, to its end.
    pub(crate) config: Arc<ListenerConfig>,
    pub(crate) app: Arc<str>,
    pub(crate) client: IpAddr,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) country: Option<String>,
    pub(crate) region: Option<Arc<str>>,
}

impl ConnectionFacts {
    pub(crate) fn limited(&self) -> LimitedConnection<'_> {
        LimitedConnection {
            listener: &self.listener.label,
            app: &self.app,
            client: self.client,
            server_name: self.server_name.as_deref(),
            country: self.country.as_deref(),
            region: self.region.as_deref(),
        }
    }
}

/// The limits of bytes of one connection.
pub(crate) struct Pacer {
    facts: Arc<ConnectionFacts>,
    /// Bytes that are asked for next.
    chunk: u64,
    asking: Option<Pin<Box<dyn Future<Output = u64> + Send>>>,
}

impl Pacer {
    pub(crate) fn new(facts: Arc<ConnectionFacts>) -> Self {
        Self { facts, chunk: FIRST_CHUNK, asking: None }
    }

    /// Ready when there are bytes in `allowance`.
    pub(crate) fn poll(&mut self, allowance: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        if *allowance > 0 {
            return Poll::Ready(());
        }
        let (facts, chunk) = (&self.facts, self.chunk);
        let asking = self.asking.get_or_insert_with(|| Box::pin(granted(Arc::clone(facts), chunk)));
        *allowance = ready!(asking.as_mut().poll(cx));
        self.asking = None;
        self.chunk = (2 * chunk).min(MAX_CHUNK);
        Poll::Ready(())
    }

    /// Gives back what a connection has not used at its end.
    pub(crate) async fn give_back(self, unused: u64) {
        let (listener, config) = (&self.facts.listener, &self.facts.config);
        let units = unused / config.byte_unit;
        if units > 0 {
            listener.limits.give_units_back(&config.byte_policies, &self.facts.limited(), units).await;
        }
    }
}

/// How many bytes may be read, as soon as there are any.
async fn granted(facts: Arc<ConnectionFacts>, most: u64) -> u64 {
    let (listener, config) = (&facts.listener, &facts.config);
    let most = most.div_ceil(config.byte_unit);
    loop {
        let limited = facts.limited();
        let granted = listener.limits.take_units(&config.byte_policies, &limited, most).await;
        let wait = match granted.units {
            0 => granted.after.clamp(SHORTEST_WAIT, LONGEST_WAIT),
            _ => granted.after,
        };
        if !wait.is_zero() {
            listener.stats().waits.fetch_add(1, Relaxed);
            sleep(wait).await;
        }
        if granted.units > 0 {
            return granted.units * config.byte_unit;
        }
    }
}
