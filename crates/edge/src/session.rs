//! A connection that has a backend, to its line in the log.
//!
//! It is small, because it is what idle connections cost: the relay, counters that are told now and then, and, where
//! that is configured, an eye on the backend's health and the limits of bytes.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Instant;

use tidegate_algorithms::balance::region::Tier;
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::Place;
use tokio::sync::futures::OwnedNotified;

use crate::affinity::Affine;
use crate::backend::Known;
use crate::decisions::rounded;
use crate::limits::LimitPermit;
use crate::pacing::Pacer;
use crate::pool::Placed;
use crate::relay::{Relay, RelayEnd};
use crate::service::EdgeListener;
use crate::side::Side;

/// Bytes after which the counters are told, for connections that live long.
const REPORT_BYTES: u64 = 1 << 20;

/// Over when checks find a backend to be down: once it is made, also if nobody polls it yet.
pub(crate) type GoesDown = Pin<Box<OwnedNotified>>;

/// See [`GoesDown`].
pub(crate) fn goes_down(placed: &Placed) -> GoesDown {
    Box::pin(Arc::clone(&placed.backend.known.down).notified_owned())
}

/// A connection and its backend.
pub(crate) struct EdgeSession<C: Side> {
    relay: Relay<C>,
    known: Arc<Known>,
    _place: Place,
    /// If that ends the session.
    down: Option<GoesDown>,
    /// Its limits of bytes, if it has any.
    pacer: Option<Box<Pacer>>,
    /// Bytes that the counters were told of.
    reported: (u64, u64),
    about: Box<About>,
}

/// What the last line says of a connection.
pub(crate) struct About {
    pub(crate) listener: Arc<EdgeListener>,
    pub(crate) client: SocketAddr,
    pub(crate) affine: Option<Affine>,
    pub(crate) app: Arc<str>,
    pub(crate) backend: Arc<str>,
    pub(crate) tier: Tier,
    pub(crate) score: f64,
    pub(crate) attempts: u32,
    pub(crate) arrived: Instant,
    pub(crate) end: &'static str,
    /// Of the concurrency limits among its listener's policies.
    pub(crate) _permit: Option<LimitPermit>,
}

impl<C: Side> EdgeSession<C> {
    pub(crate) fn new(
        mut relay: Relay<C>,
        placed: Placed,
        down: Option<GoesDown>,
        about: About,
        pacer: Option<Box<Pacer>>,
    ) -> Self {
        if pacer.is_some() {
            // It asks first.
            *relay.allowance() = 0;
        }
        let stats = about.listener.stats();
        stats.placed.fetch_add(1, Relaxed);
        stats.open.fetch_add(1, Relaxed);
        stats.affine.fetch_add(u64::from(placed.is_affine), Relaxed);
        let known = Arc::clone(&placed.backend.known);
        let about = Box::new(about);
        Self { relay, known, _place: placed.place, down, pacer, reported: (0, 0), about }
    }

    /// Passes bytes until the end.
    pub(crate) async fn run(mut self) {
        let this = &mut self;
        poll_fn(|cx| {
            if let Poll::Ready(end) = this.poll_relay(cx) {
                this.ended(&end);
                return Poll::Ready(());
            }
            let (up, down) = (this.relay.bytes(), this.reported);
            if (up.0 - down.0) + (up.1 - down.1) >= REPORT_BYTES {
                this.report();
            }
            if let Some(went_down) = &mut this.down
                && went_down.as_mut().poll(cx).is_ready()
            {
                this.known.stats.closed_unhealthy.fetch_add(1, Relaxed);
                this.relay.break_off();
                this.about.end = "backend_down";
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
        if let Some(pacer) = self.pacer.take() {
            let unused = *self.relay.allowance();
            // The sockets and the place at the backend are given back first.
            drop(self);
            pacer.give_back(unused).await;
        }
    }

    /// Passes bytes on, as many as its limits allow.
    fn poll_relay(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let Some(pacer) = &mut self.pacer else { return self.relay.poll(cx) };
        loop {
            let may_read = pacer.poll(self.relay.allowance(), cx).is_ready();
            if let Poll::Ready(end) = self.relay.poll(cx) {
                return Poll::Ready(end);
            }
            // Bytes that were read and used up: there may be more, and nobody else will say so.
            if !may_read || *self.relay.allowance() > 0 {
                return Poll::Pending;
            }
        }
    }

    fn ended(&mut self, end: &RelayEnd) {
        self.about.end = end.word();
        match end {
            RelayEnd::BackendBroke(error) => {
                self.known.stats.broken.fetch_add(1, Relaxed);
                tracing::debug!(backend = %self.about.backend, %error, "a backend broke a connection off");
            }
            // What is still under way is not whole.
            RelayEnd::Longest => self.relay.break_off(),
            RelayEnd::ClientBroke(error) => {
                tracing::debug!(client = %self.about.client, %error, "a client broke a connection off");
            }
            RelayEnd::Closed | RelayEnd::Idle => {}
        }
    }

    /// Tells the counters what they do not know yet.
    fn report(&mut self) {
        let (bytes, reported) = (self.relay.bytes(), self.reported);
        let (to_backend, to_client) = (bytes.0 - reported.0, bytes.1 - reported.1);
        self.about.listener.stats().traffic.add(to_backend, to_client);
        self.known.stats.traffic.add(to_backend, to_client);
        self.reported = bytes;
    }
}

/// However a session ends, also when a drain cuts it, it is counted and has its line.
impl<C: Side> Drop for EdgeSession<C> {
    fn drop(&mut self) {
        self.report();
        let About { listener, client, affine, app, backend, tier, score, attempts, arrived, end, .. } =
            &*self.about;
        listener.stats().open.fetch_sub(1, Relaxed);
        if let Some(affine) = affine {
            listener.affinity.leave(affine, backend, listener.edge.tick());
        }
        let (to_backend, to_client) = self.relay.bytes();
        tracing::debug!(
            listener = %listener.label, %app, %client, %backend, tier = tier.word(), score = rounded(*score),
            attempts, to_backend, to_client, seconds = (monotonic() - *arrived).as_secs_f64(), end, "connection"
        );
    }
}
