//! The edge: its listeners, what it has beside them, and what the admin API is told of it.

mod listening;
mod pops;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_admin::Servers;
use tidegate_admin::api::{ExplainRoute, NoExplanation};
use tidegate_control::{Configuration, Control};
use tidegate_edge::explain::{Question, explain};
use tidegate_edge::geo::Database;
use tidegate_edge::registration::{self, AddressRules, RegistrationApi, Registry};
use tidegate_edge::service::Edge;
use tidegate_net::accept::Gate;
use tidegate_net::drain::Drain;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners, bind_datagrams};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tokio::time::MissedTickBehavior;

use super::StartError;
use super::registrations::{ByToken, ControlStore};
use super::standalone::{BoundService, Door};
use crate::config::watch::Change;
use crate::config::{AllowedNetwork, Config, Listener, Stamp, stamp};
use listening::NO_REQUESTS;
pub(super) use listening::{EdgeListening, ServedEdge};

/// How often the file of the database is looked at.
const DATABASE_POLL: Duration = Duration::from_secs(2);

/// Most connections that ask for names by TCP.
const MAX_NAME_CONNECTIONS: usize = 64;

/// Where an edge listens, with the real ports.
#[derive(Clone, Debug)]
pub struct EdgeAddresses {
    /// Its listeners of the start, in the file's order.
    pub listeners: Vec<SocketAddr>,
    /// The registration API.
    pub registration: Option<SocketAddr>,
    /// The server of names.
    pub names: Option<SocketAddr>,
}

/// What an edge has beside its listeners, with the sockets bound. These are there if the process starts with what they are for.
#[derive(Debug)]
pub(super) struct EdgeServers {
    served: Arc<ServedEdge>,
    database: Option<(PathBuf, Stamp)>,
    api: Option<Api>,
    names: Option<Names>,
    /// Where clients reach the listeners, if these do not say it themselves.
    advertised: Vec<IpAddr>,
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
    server: Server,
    sockets: Listeners,
    stats: Arc<Stats>,
    registry: Arc<Registry>,
}

impl EdgeServers {
    /// Binds the registration API and the server of names, and reads the database.
    pub(super) fn bind(
        config: &Config,
        (served, configuration): (&Arc<ServedEdge>, &Configuration),
        door: &mut Door<'_>,
    ) -> Result<Self, StartError> {
        let settings = &config.settings.edge;
        let mut servers = Self {
            served: Arc::clone(served),
            database: None,
            api: None,
            names: None,
            advertised: settings.advertise.clone(),
            others: (configuration.control().clone(), door.gate.drain.clone()),
        };
        let has_listeners = !config.edge_listeners.is_empty();
        if let Some(listen) = settings.api_listen
            && (has_listeners || config.gateway.has_apps())
        {
            let sockets = door.listeners(Listener::REGISTRATION, listen)?;
            servers.api = Some(Api::new(config, served, configuration, door, sockets));
        }
        if let Some(path) = &config.edge.config.database {
            let looked_at = stamp(path);
            match Database::open(path) {
                Ok(database) => served.edge.use_database(Some(database)),
                Err(error) if has_listeners => {
                    return Err(StartError::CountryDatabase { path: path.clone(), error });
                }
                // Nobody asks for it yet, and it is looked at again.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "the database of countries is not used");
                }
            }
            servers.database = Some((path.clone(), looked_at));
        }
        if let Some(listen) = settings.dns_listen.filter(|_| has_listeners) {
            servers.names = Some(Names::bind(listen, door.gate, config.settings.runtime.share_ports)?);
            served.set_names(settings.advertise.clone(), AllowedNetwork::networks(&settings.dns_allowed));
        }
        Ok(servers)
    }

    /// Where they listen, and where the `listeners` of the start do, with the real ports.
    pub(super) fn addresses(&self, listeners: Vec<SocketAddr>) -> EdgeAddresses {
        EdgeAddresses {
            listeners,
            registration: self.api.as_ref().map(|api| api.sockets.address()),
            names: self.names.as_ref().map(|names| names.tcp.address()),
        }
    }
}

impl BoundService for EdgeServers {
    fn counted(&self, servers: Servers) -> Servers {
        match &self.api {
            Some(api) => servers.with(Listener::REGISTRATION.server(), Arc::clone(&api.stats)),
            None => servers,
        }
    }

    fn start(self: Box<Self>, cores: &Cores) {
        let Self { served, database, api, names, advertised, others: (control, drain) } = *self;
        if let Some(region) = served.edge.region() {
            pops::share((&control, &drain, cores), (&region, advertised), &served);
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
            explain(&self.0.open_listeners(), &question).map_err(|error| NoExplanation {
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
