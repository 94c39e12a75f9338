//! The configuration: one TOML file, the environment and flags, made into checked values.
//!
//! ```text
//!   flags ─────────────────┐
//!   environment ───────────┤   Resolver            cross
//!   file ──▶ Document ─────┼──▶ (highest layer ──▶ checks ──▶ Loaded { config, origins }
//!     (tree with places)   │     wins, all            │        or
//!   defaults of the table ─┘     are checked)         └──────▶ Mistakes: all of them, with places
//!                  └──▶ tables of services (`services.rs`) ──▶ each service's check ──▶ its part of Config
//! ```
//!
//! The engine is the crate `settings`: the document, the resolver, the types of values, and mistakes with their places.
//! Here are the table of this program's settings, its services, and the checks across them.
//!
//! [`load`] is total: any bytes, environment and flags give a configuration or a list of mistakes.
//! It reads no file, clock or environment itself, so it can be fuzzed; [`Source`] does the reading
//! and [`watch`] the following of changes.
//!
//! Rejected: deserialising into serde structs. It stops at the first mistake, and loses the place
//! of a value by the time its range can be checked.

mod access;
mod access_log;
mod acme;
mod acme_values;
mod checker;
mod choices;
mod declared;
mod edge;
mod endpoint;
mod explain;
mod file_stamp;
mod files;
mod flags;
mod gateway;
mod intake;
mod intake_lists;
mod listener;
mod networks;
mod policies;
mod reference;
mod secured;
mod service;
mod services;
mod settings;
mod source;
mod tls;
mod token_file;
mod tokens;
pub mod watch;

use std::net::SocketAddr;

use sha2::{Digest, Sha256};
use tidegate_access::tokens::Credential;
use tidegate_control::Layers;
use tidegate_edge::config::ListenerConfig as EdgeListenerConfig;
use tidegate_edge::documents::{EdgeDocuments, EdgeLayer};
use tidegate_gateway::documents::{GatewayLayer, Routes};
use tidegate_limiter::documents::Policies;
use tidegate_limiter::policy_set::FileLayer;
use tidegate_settings::document::Document;
use tidegate_settings::resolve::Resolver;
use tidegate_settings::unknown::KnownKeys;

pub(crate) use access::Access;
pub use access_log::{LineFormat, LogPlace, LoggedShare};
pub use acme_values::{AcmeChallenge, CertificateName, DirectoryUrl, MailAddress};
pub use checker::Checker;
pub use choices::{
    ClientField, Durability, LogFormat, LogLevel, OnMissingPolicy, OnNoMatch, OnStaleKeys, ProxyHeaders,
};
pub use endpoint::{CollectorUrl, WebhookUrl};
pub(crate) use file_stamp::{Stamp, stamp};
pub use flags::Flags;
pub use gateway::GatewayListener;
pub use intake::{Acknowledge, FieldName, IntakeCost, PartitionBy, PolicyName};
pub use intake_lists::IntakeLists;
pub use listener::{Listener, ListenerTls, ServiceListener, TlsSource};
pub(crate) use listener::{bound_addresses, clash, listen_addresses};
pub use networks::AllowedNetwork;
pub use policies::MAX_OVERRIDES;
pub use reference::{reference, schema};
pub use secured::{Secured, TlsMistake};
pub use service::{MakeStandalone, ServiceConfig, Table};
pub use services::SERVICES;
pub use settings::{
    AccessLog, Acme, Admin, Edge, GROUPS, Gateway, Grpc, Http, Intake, Limits, Log, Memory, NodeSettings,
    Resp, Runtime, Settings, Shared, TABLE, Telemetry,
};
pub use source::{OperatorToken, Source};
pub use tidegate_settings::document::MAX_FILE_BYTES;
pub use tidegate_settings::list::{Host, NodeName, RegionName, WebOrigin};
pub use tidegate_settings::mistake::{MAX_MISTAKES, Mistake, Mistakes, Origin, Position};
pub use tidegate_settings::resolve::{
    AGENT_TOKEN_VARIABLE, Environment, FILE_VARIABLE, INTAKE_SERVER_VARIABLE, SERVER_VARIABLE, TOKEN_VARIABLE,
};
pub use tidegate_settings::secret::{Place, Secret, Store};
pub use tidegate_settings::setting::Setting;
pub(crate) use tidegate_settings::table::TlsSettings;
pub use tidegate_settings::telemetry::{ExportFields, Ratio, ResourceAttribute, ServiceName};
pub use tidegate_settings::value::{Bytes, TomlType, Value};
pub use tls::load_tls;
pub(crate) use tls::{load_tls_of, stamps};
pub(crate) use token_file::read as read_token;
pub(crate) use tokens::{Unguarded, unguarded};

use listener::ADDRESS_OF_ITS_OWN;

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
    /// The edge's part: backends, places, and what its listeners do.
    pub edge: EdgeLayer,
    /// Where the edge listens.
    pub edge_listeners: Vec<EdgeListenerConfig>,
    /// The intake's part, settings aside.
    pub intake: IntakeLists,
    /// The file's tokens, with distinct names.
    pub tokens: Vec<Credential>,
    /// Each setting for people: path, value (secrets redacted), origin.
    pub shown: Vec<[String; 3]>,
    /// What the file declares for services that have no field here.
    pub others: Layers,
    /// The services that it was made for.
    pub services: Vec<ServiceConfig>,
}

impl Config {
    /// A configuration whose tables are still to be read.
    fn new(services: &[ServiceConfig], settings: Settings, tokens: Vec<Credential>) -> Self {
        Self {
            settings,
            layer: FileLayer::default(),
            gateway: GatewayLayer::default(),
            listeners: Vec::new(),
            edge: EdgeLayer::default(),
            edge_listeners: Vec::new(),
            intake: IntakeLists::default(),
            tokens,
            shown: Vec::new(),
            others: Layers::default(),
            services: services.to_vec(),
        }
    }

    /// What the file declares, for each service: one line for each.
    #[must_use]
    pub fn layers(&self) -> Layers {
        self.others
            .clone()
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
    /// Of the file's bytes.
    digest: Option<[u8; 32]>,
    file: Option<String>,
    origins: Vec<(&'static str, Origin)>,
    /// Where each listener of a list stands.
    listener_origins: Vec<(Listener, Origin)>,
}

/// Makes a configuration from its sources.
///
/// # Errors
/// Everything that is wrong with any of them.
pub fn load(file: Option<File<'_>>, environment: &Environment, flags: &Flags) -> Result<Loaded, Mistakes> {
    load_for(SERVICES, file, environment, flags)
}

/// [`load`], for these services: [`SERVICES`], and perhaps more.
///
/// # Errors
/// Everything that is wrong with any of the sources.
pub fn load_for(
    services: &[ServiceConfig],
    file: Option<File<'_>>,
    environment: &Environment,
    flags: &Flags,
) -> Result<Loaded, Mistakes> {
    let document = file.map_or_else(Document::default, |file| Document::parse(file.bytes));
    let mut resolver = Resolver::new(TABLE, &document, environment, &flags.values);
    let settings = Settings::resolve(&mut resolver);
    let tokens = tokens::check(&document, &mut resolver.found);
    let mut config = Config::new(services, settings, tokens);
    cross_checks(&config, &mut resolver);
    let Resolver { origins, mut found, .. } = resolver;

    let mut checker = Checker::new(&document, &config, &mut found);
    for service in services {
        (service.check)(&mut checker, &mut config);
    }
    let listener_origins = checker.finish();
    let tables: Vec<_> = services.iter().flat_map(|it| it.tables).map(|table| table.path).collect();
    document.find_unknown_keys(KnownKeys { settings: TABLE, groups: GROUPS, tables: &tables }, &mut found);
    let origin = |path: &str| {
        let found = origins.iter().find(|(known, _)| *known == path);
        found.map_or(Origin::Default, |(_, origin)| origin.clone())
    };
    intake_lists::cross_checks(&config, &document, origin, &mut found);
    policies::cross_checks(&config, &document, origin, &mut found);
    found.add_syntax(document.syntax);
    acme::cross_checks(&config, &listener_origins, origin, &mut found);
    if let Some(mistakes) = Mistakes::new(file.map_or("", |file| file.name), found) {
        return Err(mistakes);
    }
    let mut warnings = environment.unknown_variables(TABLE);
    warnings.extend(environment.telemetry_warning().filter(|_| config.settings.telemetry.endpoint.is_some()));
    if config.settings.shared.leases && config.settings.store == Store::Memory {
        warnings.push("shared.leases has no effect, since the store is this process's memory".to_owned());
    }
    warnings.extend(services.iter().flat_map(|service| (service.warnings)(&config)));
    let digest = file.map(|file| Sha256::digest(file.bytes).into());
    let file = file.map(|file| file.name.to_owned());
    let mut loaded = Loaded { config, warnings, digest, file, origins, listener_origins };
    loaded.config.shown = loaded.settings();
    Ok(loaded)
}

/// Rules about several settings at once.
fn cross_checks(config: &Config, resolver: &mut Resolver<'_>) {
    let settings = &config.settings;
    // A secret that is wrong is a mistake of its own. An empty secret counts as absent, and guards nothing.
    let wrong = |path: &str| resolver.found.list().iter().any(|mistake| mistake.path == path);
    let open = unguarded(settings, &Access::new(settings, &config.tokens));
    let open: Vec<_> = open.into_iter().filter(|listener| !listener.secret.is_some_and(wrong)).collect();
    let mut refuse = |path: &str, problem: String, accepted: &str| {
        let origin = resolver.origin(path);
        let (path, accepted) = (path.to_owned(), accepted.to_owned());
        resolver.found.push(Mistake { origin, path, problem, accepted });
    };
    tls::cross_checks(config, &mut refuse);
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
    let listeners = listen_addresses(config);
    for (index, (path, address)) in listeners.iter().enumerate() {
        if let Some(problem) = clash(&listeners[..index], *address) {
            refuse(path, problem, ADDRESS_OF_ITS_OWN);
        }
    }
}
