//! The HTTP listeners: the decision API and the admin API behind one guard, on one listener or on two
//! (`admin.listen`). The operator's pages are on each.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Uri};
use serde_json::{Value, json};
use tidegate_access::guard::Guard;
use tidegate_access::openapi;
use tidegate_access::origins::TrustedOrigins;
use tidegate_access::routes::{Api, ApiRoutes};
use tidegate_access::sessions::Sessions;
use tidegate_access::tokens::Scope;
use tidegate_admin::api::{self as admin, Events, Explainers, ShownSetting};
use tidegate_admin::{Operator, Servers, console};
use tidegate_certificates::Acme;
use tidegate_control::Configuration;
use tidegate_gateway::service::Gateway;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::http::{ApiSettings, Decisions, Service, described};
use tidegate_net::accept::Gate;
use tidegate_net::drain::Drain;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

use super::breakers::GatewayBreakers;
use super::candidate::GatewayCandidate;
use super::capacity::ServerLoad;
use super::certificates::NodeCertificates;
use super::edges::{EdgeDecisions, ExplainedEdge, ServedEdge};
use super::explain_route::{ExplainedRoutes, GatewayAnalytics};
use super::history::PastNumbers;
use super::inherited::Inherited;
use super::intake::ServedIntake;
use super::intake_reader::IntakeReader;
use super::last_warnings::OfThisProcess;
use super::limits::EngineLimits;
use super::listeners::{
    DeclaredListener, ListenerTerms, Listening, SecuredListeners, ServeListener, WantedListener,
};
use super::routes::{FIRST_API_ROUTE, ListenerApi, Routes, names};
use super::saturation::Runs;
use super::standalone::{Standalone, tls_of};
use super::tokens::ListenerTokens;
use super::traces::KeptTraces;
use super::{StartError, kept_for_a_listener, whole};
use crate::config::{Config, Listener, Secured, Settings, TlsSettings};

/// Connections over the limit for the operator's pages, on each HTTP listener. Each lives for seconds.
const OPERATION_CONNECTIONS: usize = 64;

/// The bound sockets of the HTTP listeners.
#[derive(Debug)]
pub(super) struct HttpSockets {
    http: Listeners,
    admin: Option<Listeners>,
}

impl HttpSockets {
    pub(super) fn bind(
        settings: &Settings,
        workers: NonZeroUsize,
        tls: &[Secured],
        inherited: &mut Inherited,
    ) -> Result<Self, StartError> {
        let mut bind = |address, listener| {
            let listeners = inherited.listeners(address, workers)?;
            Ok::<_, StartError>(listeners.with_tls(tls_of(tls, listener)))
        };
        let http = bind(settings.http.listen, Listener::HTTP)?;
        let admin = settings.admin.listen.map(|address| bind(address, Listener::ADMIN)).transpose()?;
        Ok(Self { http, admin })
    }

    /// Where the decision API is, and where the admin API is if that is elsewhere.
    pub(super) fn addresses(&self) -> (SocketAddr, Option<SocketAddr>) {
        (self.http.address(), self.admin.as_ref().map(Listeners::address))
    }

    /// Each, with the listener whose they are.
    pub(super) fn bound(self) -> Vec<(Listener, Listeners)> {
        let admin = self.admin.map(|admin| (Listener::ADMIN, admin));
        [(Listener::HTTP, self.http)].into_iter().chain(admin).collect()
    }
}

/// What answers on the HTTP listeners.
pub(super) struct Apis {
    guard: Arc<Guard>,
    decisions: Decisions,
    http: ApiSide,
    admin: Option<ApiSide>,
}

/// What answers on one of them.
struct ApiSide {
    routes: ApiRoutes,
    stats: Arc<Stats>,
}

impl ApiSide {
    fn new(routes: ApiRoutes, cores: usize) -> Self {
        let stats = Arc::new(Stats::new(cores, &names(&routes)));
        Self { routes, stats }
    }

    /// What serves this side, within the bounds of `gate`.
    fn serve(
        self,
        api: impl FnOnce(ApiRoutes) -> ListenerApi,
        operator: &Arc<Operator>,
        gate: &Gate,
        config: HttpConfig,
    ) -> ApiListener {
        let permits = gate.permits.keeping(kept_for_a_listener(gate)).with_operation(OPERATION_CONNECTIONS);
        let gate = Gate { permits, stats: self.stats, ..gate.clone() };
        let names = names(&self.routes);
        let routes = Routes::new(api(self.routes), operator.clone(), names);
        ApiListener { routes, config, gate, console: None }
    }
}

/// The APIs with all that they need, as they come to their listeners. Whether the admin API has one of its own is decided
/// at the start: its routes are at the decision API's listener otherwise.
#[derive(Debug)]
pub(super) struct ListeningApis {
    http: Arc<ApiListener>,
    admin: Option<Arc<ApiListener>>,
}

impl Listening for ListeningApis {
    fn wanted(&self, config: &Config) -> Vec<WantedListener> {
        let wanted = |listener, address, tls: &TlsSettings, server: &Arc<ApiListener>| WantedListener {
            declared: DeclaredListener { listener, address, terms: ListenerTerms::Settings(tls.clone()) },
            server: server.clone(),
        };
        let (http, admin) = (&config.settings.http, &config.settings.admin);
        let apart = self.admin.as_ref().zip(admin.listen);
        let apart = apart.map(|(server, address)| wanted(Listener::ADMIN, address, &admin.tls, server));
        [wanted(Listener::HTTP, http.listen, &http.tls, &self.http)].into_iter().chain(apart).collect()
    }
}

/// What answers on a listener of HTTP.
#[derive(Debug)]
struct ApiListener {
    routes: Routes,
    config: HttpConfig,
    gate: Gate,
    /// The guard of the console's sessions, if the console is here.
    console: Option<Arc<Guard>>,
}

impl ServeListener for ApiListener {
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores) {
        if let Some(guard) = &self.console {
            guard.secure_cookies.store(sockets.has_tls(), Ordering::Relaxed);
        }
        let gate = Gate { drain, ..self.gate.clone() };
        Server::new(self.routes.clone(), self.config.clone(), gate).start(cores, sockets);
    }
}

/// What a process has for its operators alone.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) intake: Arc<IntakeReader>,
    pub(super) load: Arc<ServerLoad>,
    pub(super) runs: Arc<Runs>,
    certificates: Arc<NodeCertificates>,
    pub(super) history: Arc<PastNumbers>,
}

impl Tools {
    pub(super) fn new(
        settings: &Settings,
        configuration: &Configuration,
        secured: &SecuredListeners,
        acme: Option<&Arc<Acme>>,
        gateway: &Arc<Gateway>,
    ) -> Self {
        Self {
            intake: Arc::default(),
            load: ServerLoad::new(configuration.clone()),
            runs: Arc::new(Runs::new(&settings.data_dir)),
            certificates: Arc::new(NodeCertificates::new(secured, acme, gateway)),
            history: Arc::default(),
        }
    }

    /// Reads this intake, and counts what these servers answer.
    pub(super) fn look_at(&self, ingestion: Option<&ServedIntake>, servers: &Servers) {
        if let Some(ingestion) = ingestion {
            self.intake.read(ingestion);
        }
        self.load.of(servers.clone());
    }
}

/// The services whose values the APIs show and change.
pub(super) struct Shown<'a> {
    engine: &'a Arc<Engine>,
    gateway: &'a Arc<Gateway>,
    edge: &'a Arc<ServedEdge>,
    tools: &'a Tools,
    standalone: &'a [Box<dyn Standalone>],
    configuration: &'a Configuration,
    tokens: &'a ListenerTokens,
    events: &'a Events,
}

impl<'a> Shown<'a> {
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        (gateway, edge, tools): (&'a Arc<Gateway>, &'a Arc<ServedEdge>, &'a Tools),
        (configuration, standalone): (&'a Configuration, &'a [Box<dyn Standalone>]),
        tokens: &'a ListenerTokens,
        events: &'a Events,
    ) -> Self {
        Self { engine, gateway, edge, tools, standalone, configuration, tokens, events }
    }
}

impl Apis {
    pub(super) fn new(config: &Config, shown: &Shown<'_>, cores: usize) -> Self {
        let settings = &config.settings;
        let Shown { engine, configuration, gateway, edge, tools, standalone, tokens, events } = *shown;
        let guard = Arc::new(Guard {
            tokens: tokens.http.clone(),
            origins: origins(settings),
            sessions: Sessions::default(),
            secure_cookies: AtomicBool::default(),
        });
        let decisions = Decisions::new(engine.clone(), guard.clone(), api_settings(settings));
        let limits =
            (Arc::new(EngineLimits(engine.clone())) as Arc<dyn admin::Limits>, gateway.keys().clone());
        let explainers = Explainers {
            routes: Some(Arc::new(ExplainedRoutes(gateway.clone()))),
            edge: Some(Arc::new(ExplainedEdge(edge.clone()))),
            requests: gateway.analytics().cloned().map(|analytics| {
                let control = configuration.control().clone();
                Arc::new(GatewayAnalytics { analytics, control }) as _
            }),
            edge_decisions: Some(Arc::new(EdgeDecisions(edge.clone()))),
            traces: Some(Arc::new(KeptTraces(gateway.traces().clone()))),
            breakers: Some(Arc::new(GatewayBreakers(gateway.clone()))),
            candidates: Some(Arc::new(GatewayCandidate { gateway: gateway.clone(), engine: engine.clone() })),
            capacity: Some(tools.load.clone()),
            saturation: Some(tools.runs.clone()),
            intake: Some(tools.intake.clone()),
            history: Some(tools.history.clone()),
            warnings: Some(Arc::new(OfThisProcess)),
            certificates: Some(tools.certificates.clone()),
            settings: config.shown.iter().map(shown_setting).collect(),
        };
        let admin_routes = admin::routes(&guard, configuration.clone(), limits, explainers, events.clone());
        let admin_routes = admin_routes.with(console::routes(&guard));
        let more = standalone.iter().map(|service| service.routes(&guard, configuration));
        let admin_routes = more.fold(admin_routes, ApiRoutes::with);
        let [documents, others] = admin::described();
        let more: Vec<Value> = standalone.iter().map(|service| service.described()).collect();
        let page = |described: Vec<_>| openapi::routes(openapi::document(described), &guard);
        let (http, admin) = match settings.admin.listen {
            None => {
                let page = page([vec![described(), documents, others], more].concat());
                (ApiSide::new(decisions.routes().with(admin_routes).with(page), cores), None)
            }
            Some(_) => {
                let routes = decisions.routes().with(page(vec![described()]));
                // Explanations are made of the decision service's schemas.
                let schemas = json!({ "components": described()["components"] });
                let admin_routes = admin_routes.with(page([vec![documents, others, schemas], more].concat()));
                (ApiSide::new(routes, cores), Some(ApiSide::new(admin_routes, cores)))
            }
        };
        Self { guard, decisions, http, admin }
    }

    /// Who may ask.
    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// What is counted on the listener of the decision API.
    pub(super) fn stats(&self) -> Arc<Stats> {
        self.http.stats.clone()
    }

    /// What is counted on all of them.
    pub(super) fn counted(&self) -> Servers {
        let servers = Servers::default().with(Listener::HTTP.server(), self.stats());
        match &self.admin {
            Some(admin) => servers.with(Listener::ADMIN.server(), admin.stats.clone()),
            None => servers,
        }
    }

    /// What serves them, within the bounds of `gate`.
    pub(super) fn serve(self, settings: &Settings, operator: Operator, gate: &Gate) -> ListeningApis {
        let Self { guard, decisions, http, admin } = self;
        let readers = guard.clone();
        let is_reader =
            move |uri: &Uri, headers: &HeaderMap| readers.admit(Scope::Read, uri, headers).is_ok();
        let operator = Arc::new(operator.with_readers(is_reader));
        let max_body_bytes = whole(settings.limits.body_bytes);
        let api = |routes| Api::new(routes, guard.clone(), FIRST_API_ROUTE, max_body_bytes);
        let decide = |routes| ListenerApi::Decisions(Service::new(decisions, api(routes)));
        let mut http = http.serve(decide, &operator, gate, http_config(settings));
        let manage = |routes| ListenerApi::Admin(api(routes));
        let mut admin = admin.map(|side| side.serve(manage, &operator, gate, http_config(settings)));
        admin.as_mut().unwrap_or(&mut http).console = Some(guard.clone());
        ListeningApis { http: Arc::new(http), admin: admin.map(Arc::new) }
    }
}

fn http_config(settings: &Settings) -> HttpConfig {
    let largest_body = whole(settings.limits.body_bytes);
    HttpConfig {
        head_timeout: settings.limits.header_deadline,
        connection_bytes: HttpConfig::default().connection_bytes.max(2 * largest_body),
        ..HttpConfig::default()
    }
}

fn shown_setting([path, value, origin]: &[String; 3]) -> ShownSetting {
    ShownSetting { path: path.clone(), value: value.clone(), origin: origin.clone() }
}

fn origins(settings: &Settings) -> TrustedOrigins {
    let http = &settings.http;
    TrustedOrigins {
        hosts: http.allowed_hosts.iter().map(ToString::to_string).collect(),
        cors: http.cors_origins.iter().map(ToString::to_string).collect(),
    }
}

/// What the decision API needs to know beside the engine.
fn api_settings(settings: &Settings) -> ApiSettings {
    let http = &settings.http;
    ApiSettings {
        trusted_hops: usize::try_from(http.trusted_proxy_hops).unwrap_or(usize::MAX),
        proxy_headers: http.proxy_headers.into(),
        legacy_headers: http.legacy_headers,
    }
}
