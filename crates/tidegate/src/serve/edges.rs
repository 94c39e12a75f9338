//! The edge's listeners, and what the admin API is told of it.

mod pops;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tidegate_admin::Servers;
use tidegate_admin::api::{ExplainRoute, NoExplanation};
use tidegate_control::{Configuration, Control};
use tidegate_edge::dns::{NameServer, addresses};
use tidegate_edge::explain::{Question, explain};
use tidegate_edge::geo::Database;
use tidegate_edge::limits::Limits;
use tidegate_edge::pops::Pops;
use tidegate_edge::registration::{self, AddressRules, RegistrationApi, Registry};
use tidegate_edge::service::{Edge, EdgeListener};
use tidegate_limiter::engine::Engine;
use tidegate_net::accept::Gate;
use tidegate_net::clock::Clock;
use tidegate_net::drain::Drain;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners, bind_datagrams};
use tidegate_net::permits::Permits;
use tidegate_net::proxied::{Network, Proxied};
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_upstream::verdicts::Verdicts;
use tokio::time::MissedTickBehavior;

use super::StartError;
use super::connection_limits::ConnectionLimits;
use super::registrations::{ByToken, ControlStore};
use super::standalone::{BoundService, Door};
use crate::config::watch::Change;
use crate::config::{AllowedNetwork, Config, Listener, OnMissingPolicy, Stamp, stamp};

/// How often the file of the database is looked at.
const DATABASE_POLL: Duration = Duration::from_secs(2);

/// Most connections that ask for names by TCP.
const MAX_NAME_CONNECTIONS: usize = 64;

/// A connection has no names of requests.
const NO_REQUESTS: &[&str] = &["other"];

/// The edge of a process, with its listeners once they are bound.
#[derive(Debug)]
pub(super) struct ServedEdge {
    pub(super) edge: Arc<Edge>,
    listeners: OnceLock<Vec<Arc<EdgeListener>>>,
    names: OnceLock<Arc<NameServer>>,
    /// Where other nodes listen.
    pops: Pops,
}

impl ServedEdge {
    /// An edge without listeners, whose checks share `verdicts` with other nodes, and how long a name's addresses are good.
    pub(super) fn new(clock: Clock, cores: &Cores, (verdicts, refresh): (Verdicts, Duration)) -> Arc<Self> {
        let edge = Edge::new(clock, cores).with_verdicts(verdicts).with_dns_refresh(refresh);
        let edge = Arc::new(edge);
        Arc::new(Self { edge, listeners: OnceLock::new(), names: OnceLock::new(), pops: Pops::default() })
    }

    /// Takes note of its listeners, once in a process's life.
    pub(super) fn set_listeners(&self, listeners: Vec<Arc<EdgeListener>>) {
        let is_first = self.listeners.set(listeners).is_ok();
        debug_assert!(is_first, "listeners are bound once");
    }

    /// Makes its server of names, once in a process's life. Clients reach this node at the addresses `own`.
    fn set_names(&self, own: Vec<IpAddr>, allowed: &[Network]) {
        let pops = self.pops.clone();
        self.names.get_or_init(|| NameServer::new(Arc::clone(&self.edge), own, pops, allowed.to_vec()));
    }

    /// Its server of names, if it has one.
    pub(super) fn names(&self) -> Option<&Arc<NameServer>> {
        self.names.get()
    }

    /// None before they are bound, and where the file has none.
    pub(super) fn listeners(&self) -> &[Arc<EdgeListener>] {
        self.listeners.get().map(Vec::as_slice).unwrap_or_default()
    }
}

/// Where an edge listens, with the real ports.
#[derive(Clone, Debug)]
pub struct EdgeAddresses {
    /// Its listeners, in the file's order.
    pub listeners: Vec<SocketAddr>,
    /// The registration API.
    pub registration: Option<SocketAddr>,
    /// The server of names.
    pub names: Option<SocketAddr>,
}

/// Listeners with their sockets bound.
#[derive(Debug)]
pub(super) struct EdgeServers {
    served: Arc<ServedEdge>,
    sockets: Vec<Listeners>,
    stats: Option<Arc<Stats>>,
    database: Option<(PathBuf, Stamp)>,
    api: Option<Api>,
    names: Option<Names>,
    /// Where clients reach the listeners.
    own: Vec<IpAddr>,
    /// What the other nodes are told by, and when no more.
    others: (Control, Drain),
}

/// The server of names, bound.
#[derive(Debug)]
struct Names {
    udp: UdpSocket,
    tcp: Listeners,
    gate: Gate,
}

/// The registration API, bound.
#[derive(Debug)]
struct Api {
    server: Server<RegistrationApi>,
    sockets: Listeners,
    stats: Arc<Stats>,
    registry: Arc<Registry>,
}

impl EdgeServers {
    /// Binds each listener of the file and the registration API, and reads the database. The listeners' connections
    /// are counted together.
    pub(super) fn bind(
        config: &Config,
        (served, configuration, engine): (&Arc<ServedEdge>, &Configuration, &Arc<Engine>),
        door: &mut Door<'_>,
    ) -> Result<Self, StartError> {
        let mut servers = Self {
            served: Arc::clone(served),
            sockets: Vec::new(),
            stats: None,
            database: None,
            api: None,
            names: None,
            own: Vec::new(),
            others: (configuration.control().clone(), door.gate.drain.clone()),
        };
        let has_listeners = !config.edge_listeners.is_empty();
        if let Some(listen) = config.settings.edge.api_listen
            && (has_listeners || config.gateway.has_apps())
        {
            let sockets = door.listeners(Listener::REGISTRATION, listen)?;
            servers.api = Some(Api::new(config, served, configuration, door, sockets));
        }
        if !has_listeners {
            return Ok(servers);
        }
        if let Some(path) = &config.edge.config.database {
            let looked_at = stamp(path);
            let read = Database::open(path);
            let database = read.map_err(|error| StartError::CountryDatabase { path: path.clone(), error })?;
            served.edge.use_database(Some(database));
            servers.database = Some((path.clone(), looked_at));
        }
        if let Some(listen) = config.settings.edge.dns_listen {
            servers.names = Some(Names::bind(listen, door.gate, config.settings.runtime.share_ports)?);
        }
        let gate = door.gate(NO_REQUESTS);
        servers.stats = Some(Arc::clone(&gate.stats));
        let needs_all = config.settings.edge.on_missing_policy == OnMissingPolicy::Deny;
        let limits: Arc<dyn Limits> = Arc::new(ConnectionLimits { engine: Arc::clone(engine), needs_all });
        let mut made = Vec::new();
        for (place, listener) in config.edge_listeners.iter().enumerate() {
            let listeners = door.listeners(Listener::edge(place), listener.listen)?;
            let trusted = &listener.proxy_protocol_from;
            let listeners =
                listeners.with_proxied((!trusted.is_empty()).then(|| Proxied::by(trusted.clone())));
            made.push(EdgeListener::new(
                Arc::clone(&served.edge),
                listener.clone(),
                gate.clone(),
                &listeners,
                Arc::clone(&limits),
            ));
            servers.sockets.push(listeners);
        }
        let advertised = &config.settings.edge.advertise;
        servers.own = if advertised.is_empty() { addresses(&made) } else { advertised.clone() };
        served.set_listeners(made);
        if servers.names.is_some() {
            let allowed = AllowedNetwork::networks(&config.settings.edge.dns_allowed);
            served.set_names(servers.own.clone(), &allowed);
        }
        Ok(servers)
    }

    /// Where they listen, with the real ports.
    pub(super) fn addresses(&self) -> EdgeAddresses {
        EdgeAddresses {
            listeners: self.sockets.iter().map(Listeners::address).collect(),
            registration: self.api.as_ref().map(|api| api.sockets.address()),
            names: self.names.as_ref().map(|names| names.tcp.address()),
        }
    }
}

impl BoundService for EdgeServers {
    fn counted(&self, servers: Servers) -> Servers {
        let servers = match &self.api {
            Some(api) => servers.with(Listener::REGISTRATION.server(), Arc::clone(&api.stats)),
            None => servers,
        };
        match &self.stats {
            Some(stats) => servers.with_streams(Listener::edge(0).server(), Arc::clone(stats)),
            None => servers,
        }
    }

    fn start(self: Box<Self>, cores: &Cores) {
        let Self { served, sockets, database, api, names, own, others: (control, drain), .. } = *self;
        for (listener, listeners) in served.listeners().iter().zip(sockets) {
            listener.start(cores, listeners);
        }
        if let Some(region) = served.edge.region().filter(|_| !served.listeners().is_empty()) {
            let by = (&control, &drain, served.edge.clock(), cores);
            pops::share(by, (&region, own), served.pops.clone());
        }
        if let Some(Api { server, sockets, registry, .. }) = api {
            server.start(cores, sockets);
            cores.spawn_on(0, async move { registry.expire().await });
        }
        if let (Some(Names { udp, tcp, gate }), Some(server)) = (names, served.names()) {
            server.start(cores, udp, tcp, gate);
        }
        if let Some((path, read)) = database {
            let edge = Arc::clone(&served.edge);
            cores.spawn_on(0, async move { follow_database(&edge, path, read).await });
        }
    }
}

impl Names {
    fn bind(listen: SocketAddr, gate: &Gate, share_port: bool) -> Result<Self, StartError> {
        let config = ListenConfig { share_port, ..ListenConfig::new(listen, NonZeroUsize::MIN) };
        let tcp = Listeners::bind(&config)?;
        let address = tcp.address();
        // The port that TCP has, also if the kernel chose it.
        let udp =
            bind_datagrams(address, share_port).map_err(|source| StartError::Names { address, source })?;
        let stats = Arc::new(Stats::new(1, NO_REQUESTS));
        let gate = Gate { permits: Permits::new(MAX_NAME_CONNECTIONS), stats, ..gate.clone() };
        Ok(Self { udp, tcp, gate })
    }
}

impl Api {
    fn new(
        config: &Config,
        served: &Arc<ServedEdge>,
        configuration: &Configuration,
        door: &Door<'_>,
        sockets: Listeners,
    ) -> Self {
        let settings = &config.settings.edge;
        let store = Arc::new(ControlStore(configuration.clone()));
        let clock = served.edge.clock();
        let registry =
            Arc::new(Registry::new(Arc::clone(&served.edge), store, clock, settings.heartbeat_ttl));
        let allows_loopback = sockets.address().ip().to_canonical().is_loopback();
        let api = RegistrationApi {
            edge: Arc::clone(&served.edge),
            registry: Arc::clone(&registry),
            rules: AddressRules { allowed: AllowedNetwork::networks(&settings.api_allowed), allows_loopback },
            admission: Arc::new(ByToken(door.tokens.edge.clone())),
        };
        let gate = door.gate(registration::TEMPLATES);
        let stats = Arc::clone(&gate.stats);
        let http = HttpConfig { head_timeout: door.head_timeout, ..HttpConfig::default() };
        Self { server: Server::new(api, http, gate), sockets, stats, registry }
    }
}

/// Reads the database again when its file has changed and settled, for as long as it is polled. A bad one changes
/// nothing.
async fn follow_database(edge: &Arc<Edge>, path: PathBuf, read: Stamp) {
    let mut change = Change::new(read);
    let mut ticks = tokio::time::interval(DATABASE_POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looking = path.clone();
        let Ok(now) = tokio::task::spawn_blocking(move || stamp(&looking)).await else { return };
        if !change.has_settled(now) {
            continue;
        }
        change.reading(now);
        let reading = path.clone();
        let Ok(opened) = tokio::task::spawn_blocking(move || Database::open(&reading)).await else { return };
        match opened {
            Ok(database) => {
                edge.use_database(Some(database));
                tracing::info!(path = %path.display(), "the database of countries was read again");
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the database of countries is refused, the old one stays");
            }
        }
    }
}

type ExplanationFuture<'a> = Pin<Box<dyn Future<Output = Result<Value, NoExplanation>> + Send + 'a>>;

const ACCEPTED: &str = "client_ip, listener, server_name, each once";

/// The edge, as the admin API asks it where a connection would go.
#[derive(Debug)]
pub(super) struct ExplainedEdge(pub(super) Arc<ServedEdge>);

impl ExplainRoute for ExplainedEdge {
    fn explain<'a>(&'a self, parameters: &'a [(String, String)]) -> ExplanationFuture<'a> {
        Box::pin(async move {
            let question = question(parameters)?;
            explain(self.0.listeners(), &question).map_err(|error| NoExplanation {
                parameter: "listener".to_owned(),
                problem: error.to_string(),
                accepted: "the address of an [[edge.listener]]",
            })
        })
    }
}

fn question(parameters: &[(String, String)]) -> Result<Question, NoExplanation> {
    let mut question =
        Question { client: IpAddr::V4(Ipv4Addr::LOCALHOST), listener: None, server_name: None };
    for (index, (name, value)) in parameters.iter().enumerate() {
        let wrong = |problem: &str, accepted| NoExplanation {
            parameter: name.clone(),
            problem: format!("is {value:?}, {problem}"),
            accepted,
        };
        if parameters[..index].iter().any(|(other, _)| other == name) {
            return Err(wrong("and there before", ACCEPTED));
        }
        match name.as_str() {
            "client_ip" => {
                question.client = value.parse().map_err(|_| wrong("which is no address", "an IP address"))?;
            }
            "listener" => question.listener = Some(value.clone()),
            "server_name" => question.server_name = Some(value.to_ascii_lowercase()),
            _ => return Err(wrong("which nothing asks for", ACCEPTED)),
        }
    }
    Ok(question)
}

/// The edge, as the admin API asks it where the last connections went.
#[derive(Debug)]
pub(super) struct EdgeDecisions(pub(super) Arc<ServedEdge>);

impl ExplainRoute for EdgeDecisions {
    fn explain<'a>(&'a self, parameters: &'a [(String, String)]) -> ExplanationFuture<'a> {
        Box::pin(async move {
            match parameters.first() {
                None => Ok(self.0.edge.decisions().to_json()),
                Some((name, value)) => Err(NoExplanation {
                    parameter: name.clone(),
                    problem: format!("is {value:?}, which nothing asks for"),
                    accepted: "no parameters",
                }),
            }
        })
    }
}
