//! The listeners of the edge that are open, and what serves each of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_admin::Servers;
use tidegate_edge::config::ListenerConfig;
use tidegate_edge::dns::NameServer;
use tidegate_edge::limits::ConnectionLimiter;
use tidegate_edge::pops::Pops;
use tidegate_edge::service::{Edge, EdgeListener};
use tidegate_limiter::engine::Engine;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::{Network, Proxied};
use tidegate_net::runtime::Cores;
use tidegate_upstream::verdicts::Verdicts;

use crate::config::{Config, Listener};
use crate::serve::connection_limits::ConnectionLimits;
use crate::serve::listeners::{DeclaredListener, ListenerTerms, Listening, ServeListener, WantedListener};
use crate::serve::standalone::{Door, ServerGate};

/// A connection has no names of requests.
pub(super) const NO_REQUESTS: &[&str] = &["other"];

/// The edge of a process, with its listeners.
#[derive(Debug)]
pub(in crate::serve) struct ServedEdge {
    pub(in crate::serve) edge: Arc<Edge>,
    /// Those that are open, and those that drain: one at each address.
    listeners: Mutex<Vec<Arc<EdgeListener>>>,
    names: OnceLock<Arc<NameServer>>,
    /// Where other nodes listen.
    pub(super) pops: Pops,
}

impl ServedEdge {
    /// An edge without listeners, whose checks share `verdicts` with other nodes, and how long a name's addresses are good.
    pub(in crate::serve) fn new(
        clock: Clock,
        cores: &Cores,
        (verdicts, refresh): (Verdicts, Duration),
    ) -> Arc<Self> {
        let edge = Edge::new(clock, cores).with_verdicts(verdicts).with_dns_refresh(refresh);
        let (edge, listeners) = (Arc::new(edge), Mutex::default());
        Arc::new(Self { edge, listeners, names: OnceLock::new(), pops: Pops::default() })
    }

    /// Takes note of a listener that opens. One at its address that drains goes on under its name.
    pub(in crate::serve) fn add(&self, listener: Arc<EdgeListener>) {
        let mut listeners = self.listeners.lock();
        match listeners.iter_mut().find(|it| it.address() == listener.address()) {
            Some(before) => *before = listener,
            None => listeners.push(listener),
        }
    }

    /// Forgets a listener that has no connections any more, unless another one has taken its place.
    fn forget(&self, listener: &Arc<EdgeListener>) {
        self.listeners.lock().retain(|it| !Arc::ptr_eq(it, listener));
    }

    /// The listener at this address that is open, or has connections still.
    fn at(&self, address: SocketAddr) -> Option<Arc<EdgeListener>> {
        self.listeners.lock().iter().find(|it| it.address() == address).cloned()
    }

    /// Those that are open, and those that have connections still.
    pub(in crate::serve) fn listeners(&self) -> Vec<Arc<EdgeListener>> {
        self.listeners.lock().clone()
    }

    /// Those that are open.
    pub(super) fn open_listeners(&self) -> Vec<Arc<EdgeListener>> {
        self.listeners.lock().iter().filter(|it| it.is_open()).cloned().collect()
    }

    /// Makes its server of names, once in a process's life. Clients reach this node at the addresses `advertised`, or else at
    /// those of its listeners.
    pub(super) fn set_names(&self, advertised: Vec<IpAddr>, allowed: Vec<Network>) {
        let (edge, pops) = (Arc::clone(&self.edge), self.pops.clone());
        self.names.get_or_init(|| NameServer::new(edge, advertised, pops, allowed));
    }

    /// Its server of names, if it has one.
    pub(in crate::serve) fn names(&self) -> Option<&Arc<NameServer>> {
        self.names.get()
    }
}

/// What serves the edge's listeners. They share the permits that they have for themselves, and their connections are counted
/// together.
#[derive(Debug)]
pub(in crate::serve) struct EdgeListening {
    served: Arc<ServedEdge>,
    gate: Arc<ServerGate>,
    limits: Arc<ConnectionLimiter>,
}

impl EdgeListening {
    /// The connections are limited by `engine`.
    pub(in crate::serve) fn new(
        config: &Config,
        served: &Arc<ServedEdge>,
        engine: &Arc<Engine>,
        door: &Door<'_>,
    ) -> Self {
        let missing = config.settings.edge.on_missing_policy.into();
        Self {
            served: Arc::clone(served),
            gate: door.server_gate(NO_REQUESTS),
            limits: Arc::new(ConnectionLimits { engine: Arc::clone(engine), missing }),
        }
    }
}

impl Listening for EdgeListening {
    fn wanted(&self, config: &Config) -> Vec<WantedListener> {
        let wanted = |(place, listener): (usize, &ListenerConfig)| {
            // What it does with connections changes in the open one, which is found again by its address: so the address must
            // say which one it is.
            let has_address = listener.listen.port() != 0;
            let terms = if has_address { listener.front() } else { listener.clone() };
            WantedListener {
                declared: DeclaredListener {
                    listener: Listener::edge(place),
                    address: listener.listen,
                    terms: ListenerTerms::Edge(Box::new(terms)),
                },
                server: Arc::new(EdgeSockets {
                    served: Arc::clone(&self.served),
                    gate: Arc::clone(&self.gate),
                    limits: Arc::clone(&self.limits),
                    listener: listener.clone(),
                }),
            }
        };
        config.edge_listeners.iter().enumerate().map(wanted).collect()
    }

    fn counted(&self, servers: Servers) -> Servers {
        servers.with_streams(Listener::edge(0).server(), self.gate.stats())
    }
}

/// The edge on a listener.
#[derive(Debug)]
struct EdgeSockets {
    served: Arc<ServedEdge>,
    gate: Arc<ServerGate>,
    limits: Arc<ConnectionLimiter>,
    listener: ListenerConfig,
}

impl ServeListener for EdgeSockets {
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores) {
        let trusted = &self.listener.proxy_protocol_from;
        let sockets = sockets.with_proxied((!trusted.is_empty()).then(|| Proxied::by(trusted.clone())));
        let (config, gate) = (self.listener.clone(), self.gate.open(drain.clone(), cores));
        let listener = match self.served.at(sockets.address()) {
            Some(before) => before.successor(config, gate, &sockets),
            None => {
                let (edge, limits) = (Arc::clone(&self.served.edge), Arc::clone(&self.limits));
                EdgeListener::new(edge, config, gate, &sockets, limits)
            }
        };
        self.served.add(Arc::clone(&listener));
        listener.start(cores, sockets);
        let served = Arc::clone(&self.served);
        cores.spawn_on(0, async move {
            drain.reached(Stage::Stopped).await;
            served.forget(&listener);
        });
    }
}
