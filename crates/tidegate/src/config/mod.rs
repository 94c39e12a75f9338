//! The configuration: one TOML file, the environment and flags, made into checked values.
//!
//! ```text
//!   flags ─────────────────┐
//!   environment ───────────┤   Resolver            cross
//!   file ──▶ Document ─────┼──▶ (highest layer ──▶ checks ──▶ Loaded { config, origins }
//!     (tree with places)   │     wins, all            │        or
//!   defaults of the table ─┘     are checked)         └──────▶ Mistakes: all of them, with places
//!                  ├──▶ [[policy]], [[override]], [attributes] ──▶ algorithms::policy ──▶ FileLayer
//!                  ├──▶ [[upstream]], [[route]] ──▶ gateway::config ──▶ GatewayLayer
//!                  ├──▶ [[edge.*]] ──▶ edge::config ──▶ EdgeConfig
//!                  └──▶ [[intake.*]] ──▶ intake::alerts, intake::forward ──▶ IntakeLists
//! ```
//!
//! [`load`] is total: any bytes, environment and flags give a configuration or a list of mistakes.
//! It reads no file, clock or environment itself, so it can be fuzzed; [`Source`] does the reading
//! and [`watch`] the following of changes.
//!
//! Rejected: deserialising into serde structs. It stops at the first mistake, and loses the place
//! of a value by the time its range can be checked.

mod access_log;
mod choices;
mod document;
mod edge;
mod explain;
mod flags;
mod gateway;
mod intake;
mod intake_lists;
mod list;
mod mistake;
mod policies;
mod reference;
mod resolve;
mod secret;
mod settings;
mod source;
mod tls;
mod tokens;
mod value;
pub mod watch;

use std::net::SocketAddr;

use tidegate_access::tokens::Credential;
use tidegate_control::Layers;
use tidegate_edge::config::{EdgeConfig, ListenerConfig as EdgeListenerConfig};
use tidegate_edge::documents::EdgeDocuments;
use tidegate_gateway::documents::{GatewayLayer, Routes};
use tidegate_limiter::documents::Policies;
use tidegate_limiter::policy_set::FileLayer;

pub use access_log::{LineFormat, LogPlace};
pub use choices::{OnMissingPolicy, OnNoMatch, ProxyHeaders};
pub use document::MAX_FILE_BYTES;
pub use gateway::GatewayListener;
pub use intake::{Acknowledge, FieldName, IntakeCost, PartitionBy, PolicyName};
pub use intake_lists::IntakeLists;
pub use list::{Host, RegionName, WebOrigin};
pub use mistake::{MAX_MISTAKES, Mistake, Mistakes, Origin, Position};
pub use policies::MAX_OVERRIDES;
pub use reference::{reference, schema};
pub use resolve::{Environment, FILE_VARIABLE, Flags, TOKEN_VARIABLE};
pub use secret::{Place, Secret, Store};
pub use settings::{
    AccessLog, Admin, Edge, GROUPS, Gateway, Grpc, Http, Intake, Limits, Log, Memory, Resp, Runtime, Setting,
    Settings, Shared, TABLE,
};
pub use source::Source;
pub(crate) use tls::stamps;
pub use tls::{Listener, Secured, TlsMistake, load_tls};
pub(crate) use tokens::{Access, unguarded};
pub use value::{Bytes, Durability, LogFormat, LogLevel, TomlType, Value};

use document::Document;
use edge::FileEdge;
use gateway::FileGateway;
use resolve::Resolver;

/// The file's name, for messages, and its contents.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// As the user gave it.
    pub name: &'a str,
    /// As they are on the disk.
    pub bytes: &'a [u8],
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every setting.
    pub settings: Settings,
    /// The file's policies with distinct names, and its overrides, each client and policy once.
    pub layer: FileLayer,
    /// The file's upstreams and routes.
    pub gateway: GatewayLayer,
    /// Where the gateway listens.
    pub listeners: Vec<GatewayListener>,
    /// The edge's part, listeners aside.
    pub edge: EdgeConfig,
    /// Where the edge listens.
    pub edge_listeners: Vec<EdgeListenerConfig>,
    /// The intake's part, settings aside.
    pub intake: IntakeLists,
    /// The file's tokens, with distinct names.
    pub tokens: Vec<Credential>,
    /// Each setting for people: path, value (secrets redacted), origin.
    pub shown: Vec<[String; 3]>,
}

impl Config {
    /// What the file declares, for each service: one line for each.
    #[must_use]
    pub fn layers(&self) -> Layers {
        Layers::default()
            .with::<Policies>(self.layer.clone())
            .with::<Routes>(self.gateway.clone())
            .with::<EdgeDocuments>(self.edge.clone())
    }
}

/// A checked configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is not wrong but looks like a mistake.
    pub warnings: Vec<String>,
    file: Option<String>,
    origins: Vec<(&'static str, Origin)>,
    listener_origins: Vec<Origin>,
    edge_listener_origins: Vec<Origin>,
}

/// Makes a configuration from its sources.
///
/// # Errors
/// Everything that is wrong with any of them.
pub fn load(file: Option<File<'_>>, environment: &Environment, flags: &Flags) -> Result<Loaded, Mistakes> {
    let document = file.map(|file| Document::parse(file.bytes));
    let mut resolver = Resolver::new(document.as_ref(), environment, flags);
    let settings = Settings::resolve(&mut resolver);
    let tokens = document.as_ref().map(|document| tokens::check(document, &mut resolver.found));
    let tokens = tokens.unwrap_or_default();
    cross_checks(&settings, &tokens, &mut resolver);
    let Resolver { origins, mut found, .. } = resolver;

    let mut layer = FileLayer::default();
    let mut gateway = FileGateway::default();
    let mut edge = FileEdge::default();
    let mut intake = IntakeLists::default();
    if let Some(document) = document {
        layer = policies::check(&document, &mut found);
        gateway = gateway::check(&document, &settings, &mut found);
        edge = edge::check(&document, &settings, &gateway.listeners, &mut found);
        intake = intake_lists::check(&document, &mut found);
        document.find_strangers(&mut found);
        found.add_syntax(document.syntax);
    }
    if let Some(mistakes) = Mistakes::new(file.map_or("", |file| file.name), found) {
        return Err(mistakes);
    }
    let mut warnings = environment.strangers();
    if settings.shared.leases && settings.store == Store::Memory {
        warnings.push("shared.leases has no effect, since the store is this process's memory".to_owned());
    }
    let FileGateway { layer: routing, listeners, origins: listener_origins } = gateway;
    if listeners.is_empty() && routing.counts().1 > 0 {
        warnings.push("no route has an effect, since there is no [[gateway.listener]]".to_owned());
    }
    let FileEdge { layer: mut edge, listeners: edge_listeners, origins: edge_listener_origins } = edge;
    edge.region = settings.edge.region.as_ref().map(|RegionName(name)| name.as_str().into());
    edge.database = settings.edge.country_database.clone();
    edge.round_trip_tiers = settings.edge.round_trip_tiers;
    warnings.extend(edge::warnings(&edge, &edge_listeners));
    warnings.extend(intake_lists::warnings(&settings, &intake));
    let shown = Vec::new();
    let config =
        Config { settings, layer, gateway: routing, listeners, edge, edge_listeners, intake, tokens, shown };
    let file = file.map(|file| file.name.to_owned());
    let mut loaded = Loaded { config, warnings, file, origins, listener_origins, edge_listener_origins };
    loaded.config.shown = loaded.settings();
    Ok(loaded)
}

/// Rules about several settings at once.
fn cross_checks(settings: &Settings, tokens: &[Credential], resolver: &mut Resolver<'_>) {
    // A secret that was given and is wrong is a mistake of its own.
    let given = |path: &str| resolver.origin(path) != Origin::Default;
    let open = unguarded(settings, &Access::new(settings, tokens));
    let open: Vec<_> = open.into_iter().filter(|listener| !listener.secret.is_some_and(given)).collect();
    let mut refuse = |path: &str, problem: String, accepted: &str| {
        let origin = resolver.origin(path);
        let (path, accepted) = (path.to_owned(), accepted.to_owned());
        resolver.found.push(Mistake { origin, path, problem, accepted });
    };
    tls::cross_checks(settings, &mut refuse);
    let is_open = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    if settings.intake.statsd_allowed.is_empty()
        && let Some(address) = settings.intake.statsd_listen.filter(is_open)
    {
        let problem = format!("is {address}, which others can reach, and StatsD knows no tokens");
        refuse(
            "intake.statsd_listen",
            problem,
            "a loopback address, or intake.statsd_allowed with the networks that may send",
        );
    }
    for listener in open {
        refuse(listener.path, listener.problem(), &listener.accepted());
    }
    let listeners = listen_addresses(settings);
    for (index, (path, address)) in listeners.iter().enumerate() {
        let taken = listeners[..index].iter().find(|(_, other)| other == address && address.port() != 0);
        if let Some((first, _)) = taken {
            refuse(path, format!("is {address}, as is {first}"), "an address of its own");
        }
    }
}

/// The addresses that settings name, with their paths.
fn listen_addresses(settings: &Settings) -> Vec<(&'static str, SocketAddr)> {
    let always = [
        ("http.listen", settings.http.listen),
        ("grpc.listen", settings.grpc.listen),
        ("resp.listen", settings.resp.listen),
    ];
    let intake = settings.intake.listen.map(|address| ("intake.listen", address));
    let statsd = settings.intake.statsd_listen.map(|address| ("intake.statsd_listen", address));
    let admin = settings.admin.listen.map(|address| ("admin.listen", address));
    let api = settings.edge.api_listen.map(|address| ("edge.api_listen", address));
    let names = settings.edge.dns_listen.map(|address| ("edge.dns_listen", address));
    always.into_iter().chain(intake).chain(statsd).chain(admin).chain(api).chain(names).collect()
}
