//! The gateway's listeners: each one a server in front of the same routes.

use std::sync::Arc;
use std::time::Duration;

use tidegate_access::keys::ApiKeys;
use tidegate_access::tokens::{Scope, bearer};
use tidegate_admin::Servers;
use tidegate_certificates::{Acme, HttpChallenges};
use tidegate_gateway::access_log::AccessLog;
use tidegate_gateway::analytics::Analytics;
use tidegate_gateway::service::{
    Gateway, GatewayService, GatewaySettings, IdentityFields, TEMPLATES, TraceGuard,
};
use tidegate_gateway::shed::Shedder;
use tidegate_limiter::engine::Engine;
use tidegate_net::drain::Drain;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::Proxied;
use tidegate_net::runtime::Cores;
use tidegate_upstream::verdicts::Verdicts;

use super::listeners::{DeclaredListener, ListenerTerms, Listening, ServeListener, WantedListener};
use super::route_limits::RouteLimits;
use super::standalone::{Door, ServerGate};
use super::{ListenerTokens, StartError, telemetry};
use crate::config::{Config, FieldName, GatewayListener, Listener, Secret, Settings};

/// A gateway without routes, limited by `engine`. A client with a token with the scope `read` may ask it for traces;
/// where there are no tokens, no client may.
pub(super) fn gateway(
    settings: &Settings,
    engine: &Arc<Engine>,
    tokens: &ListenerTokens,
    (cores, verdicts): (&Cores, Verdicts),
) -> Result<Arc<Gateway>, StartError> {
    let limits = RouteLimits { engine: Arc::clone(engine), legacy_fields: settings.http.legacy_headers };
    let trusted_hops = usize::try_from(settings.gateway.trusted_proxy_hops).unwrap_or(usize::MAX);
    let log = settings.access_log.wanted().map(AccessLog::open).transpose().map_err(StartError::AccessLog)?;
    let gateway_settings = GatewaySettings {
        trusted_hops,
        client_from: settings.gateway.client_address_from.into(),
        sends_forwarded: settings.gateway.send_forwarded,
        dns_refresh: settings.gateway.dns_refresh,
        missing_policy: settings.gateway.on_missing_policy.into(),
        explains_failures: false,
    };
    let tokens = tokens.http.clone();
    let may_trace = move |authorization: &[u8]| {
        let admitted = tokens.load().admit(Scope::Read, bearer(authorization)).map(|token| token.is_some());
        admitted.unwrap_or(false)
    };
    let gateway =
        Gateway::new(Arc::new(limits), gateway_settings, *engine.clock(), cores).with_verdicts(verdicts);
    let gateway = gateway.with_keys(Arc::new(ApiKeys::new(key_secret(settings))), identity_fields(settings));
    let counts = || Analytics::for_cores(cores.count()).written_every(settings.gateway.analytics_interval);
    let analytics = settings.gateway.analytics.then(|| Arc::new(counts()));
    let gateway = gateway.with_analytics(analytics);
    let shed_after = settings.gateway.shed_after;
    let shedder = (!shed_after.is_zero()).then(|| Arc::new(Shedder::new(cores.count(), shed_after)));
    let gateway = gateway.with_shedder(shedder).with_spans(telemetry::queue(&settings.telemetry));
    Ok(Arc::new(gateway.with_access_log(log).with_traces(TraceGuard::new(may_trace))))
}

/// The secret under which digests of API keys are made.
fn key_secret(settings: &Settings) -> &str {
    settings.gateway.key_secret.as_ref().map_or("", Secret::expose)
}

fn identity_fields(settings: &Settings) -> IdentityFields {
    let name = |field: &Option<FieldName>| field.as_ref().map(|field| field.name().clone());
    let gateway = &settings.gateway;
    IdentityFields {
        consumer: name(&gateway.consumer_field),
        key: name(&gateway.key_field),
        tier: name(&gateway.tier_field),
    }
}

/// What serves the gateway's listeners. They share the permits that they have for themselves, and count together.
#[derive(Debug)]
pub(super) struct Proxies {
    gateway: Arc<Gateway>,
    gate: Arc<ServerGate>,
    /// Answers of names that are proved by HTTP.
    challenges: HttpChallenges,
    head_timeout: Duration,
}

impl Proxies {
    pub(super) fn new(gateway: &Arc<Gateway>, acme: Option<&Arc<Acme>>, door: &Door<'_>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            gate: door.server_gate(TEMPLATES),
            challenges: acme.map(|acme| acme.http_challenges()).unwrap_or_default(),
            head_timeout: door.head_timeout,
        }
    }
}

impl Listening for Proxies {
    fn wanted(&self, config: &Config) -> Vec<WantedListener> {
        let wanted = |(place, listener): (usize, &GatewayListener)| WantedListener {
            declared: DeclaredListener {
                listener: Listener::gateway(place),
                address: listener.listen,
                terms: ListenerTerms::Gateway(Box::new(listener.clone())),
            },
            server: Arc::new(ProxyListener {
                gateway: Arc::clone(&self.gateway),
                gate: Arc::clone(&self.gate),
                challenges: self.challenges.clone(),
                http: HttpConfig {
                    head_timeout: self.head_timeout,
                    half_closed: listener.half_closed,
                    ..HttpConfig::default()
                },
                listener: listener.clone(),
            }),
        };
        config.listeners.iter().enumerate().map(wanted).collect()
    }

    fn counted(&self, servers: Servers) -> Servers {
        servers.with(Listener::gateway(0).server(), self.gate.stats())
    }
}

/// The gateway on a listener.
#[derive(Debug)]
struct ProxyListener {
    gateway: Arc<Gateway>,
    gate: Arc<ServerGate>,
    challenges: HttpChallenges,
    http: HttpConfig,
    listener: GatewayListener,
}

impl ServeListener for ProxyListener {
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores) {
        let GatewayListener { proxy_protocol_from: trusted, https, .. } = &self.listener;
        let sockets = sockets.with_proxied((!trusted.is_empty()).then(|| Proxied::by(trusted.clone())));
        let service = GatewayService::new(Arc::clone(&self.gateway)).with_https(https.clone());
        let service = service.with_challenges(self.challenges.clone());
        let gate = self.gate.open(drain, cores);
        Server::new(service, self.http.clone(), gate).start(cores, sockets);
    }
}
