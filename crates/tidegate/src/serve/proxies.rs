//! The gateway's listeners: each one a server in front of the same routes.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_access::keys::ApiKeys;
use tidegate_access::tokens::{Scope, bearer};
use tidegate_admin::Servers;
use tidegate_certificates::Acme;
use tidegate_gateway::access_log::AccessLog;
use tidegate_gateway::analytics::Analytics;
use tidegate_gateway::service::{
    Gateway, GatewayService, GatewaySettings, IdentityFields, TEMPLATES, TraceGuard,
};
use tidegate_gateway::shed::Shedder;
use tidegate_limiter::engine::Engine;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::Proxied;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_upstream::verdicts::Verdicts;

use super::route_limits::RouteLimits;
use super::standalone::{BoundService, Door};
use super::{ListenerTokens, StartError, telemetry};
use crate::config::{Config, FieldName, Listener, OnMissingPolicy, Secret, Settings};

/// The gateway of a process that decides, too.
pub(super) type ServedGateway = Gateway<RouteLimits>;

/// A gateway without routes, limited by `engine`. A client with a token with the scope `read` may ask it for traces;
/// where there are no tokens, no client may.
pub(super) fn gateway(
    settings: &Settings,
    engine: &Arc<Engine>,
    tokens: &ListenerTokens,
    (cores, verdicts): (&Cores, Verdicts),
) -> Result<Arc<ServedGateway>, StartError> {
    let limits = RouteLimits { engine: Arc::clone(engine), legacy_fields: settings.http.legacy_headers };
    let trusted_hops = usize::try_from(settings.gateway.trusted_proxy_hops).unwrap_or(usize::MAX);
    let log = settings.access_log.wanted().map(AccessLog::open).transpose().map_err(StartError::AccessLog)?;
    let gateway_settings = GatewaySettings {
        trusted_hops,
        client_from: settings.gateway.client_address_from.into(),
        sends_forwarded: settings.gateway.send_forwarded,
        dns_refresh: settings.gateway.dns_refresh,
        serves_without_policies: settings.gateway.on_missing_policy == OnMissingPolicy::Allow,
        explains_failures: false,
    };
    let tokens = tokens.http.clone();
    let may_trace = move |authorization: &[u8]| {
        let admitted = tokens.load().admit(Scope::Read, bearer(authorization)).map(|token| token.is_some());
        admitted.unwrap_or(false)
    };
    let gateway = Gateway::new(limits, gateway_settings, *engine.clock(), cores).with_verdicts(verdicts);
    let gateway = gateway.with_keys(Arc::new(ApiKeys::new(key_secret(settings))), identity_fields(settings));
    let gateway = gateway.with_analytics(settings.gateway.analytics.then(Arc::default));
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

/// Servers with their sockets bound.
#[derive(Debug)]
pub(super) struct Proxies {
    gateway: Arc<ServedGateway>,
    servers: Vec<(Server<GatewayService<RouteLimits>>, Listeners)>,
    stats: Option<Arc<Stats>>,
}

impl Proxies {
    /// Binds each listener of the file. They share the permits that they have for themselves, and count together.
    pub(super) fn bind(
        config: &Config,
        gateway: &Arc<ServedGateway>,
        acme: Option<&Arc<Acme>>,
        door: &mut Door<'_>,
    ) -> Result<Self, StartError> {
        let mut proxies = Self { gateway: Arc::clone(gateway), servers: Vec::new(), stats: None };
        if config.listeners.is_empty() {
            return Ok(proxies);
        }
        let gate = door.gate(TEMPLATES);
        proxies.stats = Some(Arc::clone(&gate.stats));
        for (place, listener) in config.listeners.iter().enumerate() {
            let listeners = door.listeners(Listener::gateway(place), listener.listen)?;
            let trusted = &listener.proxy_protocol_from;
            let listeners =
                listeners.with_proxied((!trusted.is_empty()).then(|| Proxied::by(trusted.clone())));
            let service = GatewayService::new(Arc::clone(gateway)).with_https(listener.https.clone());
            let challenges = acme.map(|acme| acme.http_challenges()).unwrap_or_default();
            let service = service.with_challenges(challenges);
            let half_closed = listener.half_closed;
            let http = HttpConfig { head_timeout: door.head_timeout, half_closed, ..HttpConfig::default() };
            proxies.servers.push((Server::new(service, http, gate.clone()), listeners));
        }
        Ok(proxies)
    }

    /// Their addresses, with the real ports.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|(_, listeners)| listeners.address()).collect()
    }

    /// What their requests are logged to, if they are.
    pub(super) fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.gateway.access_log().cloned()
    }

    /// What counts their requests, if they are counted.
    pub(super) fn analytics(&self) -> Option<Arc<Analytics>> {
        self.gateway.analytics().cloned()
    }
}

impl BoundService for Proxies {
    fn counted(&self, servers: Servers) -> Servers {
        match &self.stats {
            Some(stats) => servers.with(Listener::gateway(0).server(), Arc::clone(stats)),
            None => servers,
        }
    }

    fn start(self: Box<Self>, cores: &Cores) {
        let Self { gateway, servers, .. } = *self;
        for (server, listeners) in servers {
            server.start(cores, listeners);
        }
        cores.spawn_on(0, async move { gateway.maintain().await });
    }
}
