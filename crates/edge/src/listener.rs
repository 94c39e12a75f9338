//! A listener of the edge: its socket, the bounds of its connections, and its counters and log lines for refusals.

use std::array;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidegate_algorithms::balance::region::Unplaced;
use tidegate_net::accept::Gate;
use tidegate_net::drain::Stage;
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::Proxied;
use tidegate_net::tls::Tls;
use tidegate_upstream::backend::Place;
use tidegate_upstream::seldom::SeldomLine;

use crate::affinity::AffinityShards;
use crate::config::ListenerConfig;
use crate::limits::ConnectionLimiter;
use crate::pool::Origin;
use crate::service::Edge;
use crate::site::Site;
use crate::stats::{AffinityStats, ListenerStats, Refusal};

/// What one listener leaves to the next one at its address.
#[derive(Debug)]
struct KnownClients {
    affinity: Arc<AffinityShards>,
    stats: Arc<ListenerStats>,
}

/// A listener of an edge.
#[derive(Debug)]
pub struct EdgeListener {
    pub(crate) edge: Arc<Edge>,
    /// As it was bound. What is in force of the rest is in the site.
    bound: Arc<ListenerConfig>,
    /// What bounds its connections and counts them.
    pub(crate) gate: Gate,
    pub(crate) tls: Option<Tls>,
    pub(crate) proxied: Option<Proxied>,
    pub(crate) address: SocketAddr,
    /// Its address, for metrics, logs and decisions.
    pub(crate) label: Arc<str>,
    pub(crate) affinity: Arc<AffinityShards>,
    /// What decides its policies.
    pub(crate) limits: Arc<ConnectionLimiter>,
    stats: Arc<ListenerStats>,
    /// When the log says again that connections are refused, by [`Refusal`].
    refusals: [SeldomLine; Refusal::ALL.len()],
}

impl EdgeListener {
    /// A listener of `edge` that is bound at `listeners`; `limits` decides its policies.
    #[must_use]
    pub fn new(
        edge: Arc<Edge>,
        config: ListenerConfig,
        gate: Gate,
        listeners: &Listeners,
        limits: Arc<ConnectionLimiter>,
    ) -> Arc<Self> {
        let known = KnownClients { affinity: Arc::new(AffinityShards::new()), stats: Arc::default() };
        Self::knowing(edge, config, gate, listeners, limits, known)
    }

    /// A listener that takes the place of this one, at its address: it goes on counting, and knows its clients.
    #[must_use]
    pub fn successor(&self, config: ListenerConfig, gate: Gate, listeners: &Listeners) -> Arc<Self> {
        let known = KnownClients { affinity: Arc::clone(&self.affinity), stats: Arc::clone(&self.stats) };
        Self::knowing(Arc::clone(&self.edge), config, gate, listeners, Arc::clone(&self.limits), known)
    }

    fn knowing(
        edge: Arc<Edge>,
        config: ListenerConfig,
        gate: Gate,
        listeners: &Listeners,
        limits: Arc<ConnectionLimiter>,
        known: KnownClients,
    ) -> Arc<Self> {
        let (address, bound) = (listeners.address(), Arc::new(config));
        edge.listens(address, Arc::clone(&bound));
        Arc::new(Self {
            edge,
            gate,
            tls: listeners.tls().cloned(),
            proxied: listeners.proxied().cloned(),
            address,
            label: address.to_string().into(),
            affinity: known.affinity,
            limits,
            stats: known.stats,
            refusals: array::from_fn(|_| SeldomLine::default()),
            bound,
        })
    }

    /// What `site` says of it.
    pub(crate) fn config<'a>(&'a self, site: &'a Site) -> &'a Arc<ListenerConfig> {
        site.listener(&self.bound).unwrap_or(&self.bound)
    }

    /// Where in the file it stands, of those that are there.
    pub(crate) fn place_in_file(&self) -> usize {
        self.edge.site().listener_place(&self.bound)
    }

    /// Where it is, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it accepts connections.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.gate.drain.stage() < Stage::Closed
    }

    /// Has the edge go by its being open until it is not, and by its connections until they have ended.
    pub(crate) async fn follow(&self) {
        self.gate.drain.reached(Stage::Closed).await;
        self.edge.closes(&self.bound);
        self.gate.drain.reached(Stage::Stopped).await;
        self.edge.forgets(&self.bound);
    }

    /// A place for a connection of `client`, as one that comes is given it before its backend is connected to; it is held
    /// until it is dropped. For whoever measures what placing costs.
    ///
    /// # Errors
    /// When there is none.
    pub fn place(&self, client: IpAddr) -> Result<Place, Unplaced> {
        let (site, now) = (self.edge.site(), self.edge.tick());
        let config = self.config(&site);
        let app = config.app_for(None);
        let pool = site.pool(app).ok_or(Unplaced::None)?;
        let (location, _) = site.locate(client, self.edge.database().as_deref());
        let affine = self.affinity.affine(config, client, app, None);
        let before = affine.and_then(|affine| self.affinity.find(&affine, now));
        let origin = Origin { location, node: site.node, before: before.as_deref(), spill: config.spill };
        let placed = pool.place(origin, &[], now)?;
        if let Some(affine) = &affine {
            self.affinity.enter(affine, &placed.backend.config.name, now);
        }
        Ok(placed.place)
    }

    /// Its address, as metrics name it.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Takes note of a connection that is closed without a backend; `asked`: for which app, and how many backends were
    /// tried. The log has the first of each reason, and then one in a while.
    pub(crate) fn refuse(
        &self,
        refusal: Refusal,
        client: SocketAddr,
        asked: Option<(&str, u32)>,
        why: &dyn fmt::Display,
    ) {
        self.stats.refuse(refusal);
        let (listener, reason) = (&*self.label, refusal.word());
        let (app, attempts) = (asked.map(|(app, _)| app), asked.map(|(_, attempts)| attempts));
        let Some(others) = self.refusals[refusal as usize].unsaid(self.edge.tick()) else {
            tracing::debug!(listener, %client, app, reason, attempts, %why, "connection refused");
            return;
        };
        if refusal.is_ours() {
            tracing::warn!(listener, %client, app, reason, attempts, %why, others, "connection refused");
        } else {
            tracing::info!(listener, %client, app, reason, attempts, %why, others, "connection refused");
        }
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> &ListenerStats {
        &self.stats
    }

    /// What is counted of the clients that it remembers.
    #[must_use]
    pub fn affinity_stats(&self) -> AffinityStats {
        self.affinity.stats()
    }
}
