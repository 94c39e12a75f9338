//! The gateway as a service: what is in force, and how it is replaced. Its place behind a listener is
//! `service/listener.rs`.
//!
//! A request takes the site (`service/site.rs`) that is in force when it comes and keeps it to its end, so that a change
//! fails no request.

mod https;
mod listener;
mod site;
mod status;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use tidegate_access::keys::ApiKeys;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_net::limits::MissingPolicy;
use tidegate_net::runtime::Cores;
use tidegate_net::untrusted_proxy::UntrustedProxy;
use tidegate_upstream::backend::Host;
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::verdicts::Verdicts;
use tokio::runtime;

use crate::authentication::authority::ForwardAuthCounts;
pub use crate::authentication::authority::ForwardAuthStats;
pub use crate::authentication::forward_auth::MAX_BODY_BYTES as MAX_REFUSAL_BYTES;
pub use crate::authentication::identity::IdentityFields;
use crate::authentication::jwt::JwtCounts;
pub use crate::authentication::jwt::{JwtKeysStatus, JwtStats};
use crate::authentication::known::KnownIdentities;
pub use crate::authentication::known::MAX_KNOWN;
pub use crate::forwarding::mirror::{MAX_AT_ONCE as MAX_MIRRORED_AT_ONCE, MirrorStats};
use crate::limits::RequestLimiter;
use crate::observed::access_log::AccessLog;
use crate::observed::analytics::Analytics;
use crate::observed::flow::FlowSet;
use crate::observed::record::{CountsRequests, TRACE};
use crate::observed::spans::Spans;
pub use crate::observed::traces::TraceGuard;
use crate::observed::traces::Traces;
use crate::response::compress::Compressor;
pub use crate::response::compress::{CompressionStats, MAX_AT_ONCE as MAX_COMPRESSED_AT_ONCE};
pub use crate::routes::hedge::HedgeStats;
use crate::routes::shed::Shedder;
pub use crate::servers::adaptive::AdaptiveStatus;
pub use crate::servers::breaker::Judged;
use crate::servers::pool::ConnectionPool;
pub use https::HttpsRules;
pub use listener::{GatewayService, TEMPLATES};
use site::GatewaySite;
pub use status::{BreakerOf, BreakerStatus, UpstreamCertificate, UpstreamStatus};

/// The longest pause between two looks for names whose addresses must be asked for again, and the one between two looks at files.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// How often idle connections are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// What holds for all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// How many proxies in front are trusted to append to `X-Forwarded-For` (fault 48). 0: the field is
    /// not believed.
    pub trusted_hops: usize,
    /// The field that they state it in.
    pub client_from: ClientField,
    /// Whether servers are told in `Forwarded` what is believed of a request.
    pub sends_forwarded: bool,
    /// How long the addresses of a server's name are used before they are looked up again, where DNS does not say.
    pub dns_refresh: Duration,
    /// What becomes of requests whose route lists a policy that is not in force.
    pub missing_policy: MissingPolicy,
    /// Whether clients on this machine are told which server failed them, and why: for a gateway that developers run in front of
    /// their own servers.
    pub explains_failures: bool,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            trusted_hops: 0,
            client_from: ClientField::XForwardedFor,
            sends_forwarded: false,
            dns_refresh: Duration::from_secs(5),
            missing_policy: MissingPolicy::Deny,
            explains_failures: false,
        }
    }
}

/// The field in which trusted proxies state the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientField {
    /// In `X-Forwarded-For`.
    XForwardedFor,
    /// In `Forwarded` (RFC 7239).
    Forwarded,
}

/// A gateway, with a limiter in front of its routes.
#[derive(Debug)]
pub struct Gateway {
    site: ArcSwap<GatewaySite>,
    limits: Arc<RequestLimiter>,
    settings: GatewaySettings,
    clock: Clock,
    resolver: Resolver,
    access_log: Option<Arc<AccessLog>>,
    analytics: Option<Arc<Analytics>>,
    /// What counts each core's requests for it.
    counters: Box<[Arc<dyn CountsRequests>]>,
    traces: Arc<Traces>,
    keys: Arc<ApiKeys>,
    identity_fields: IdentityFields,
    compressor: Arc<Compressor>,
    known: KnownIdentities,
    jwt_counts: JwtCounts,
    forward_auth_counts: ForwardAuthCounts,
    /// `None`: no client may ask for traces.
    trace_guard: Option<TraceGuard>,
    verdicts: Verdicts,
    /// `None`: no request is refused because this process cannot keep up.
    shedder: Option<Arc<Shedder>>,
    /// `None`: no spans are exported.
    spans: Option<Arc<Spans>>,
    /// The runtime of each core, where servers are checked.
    cores: Vec<runtime::Handle>,
    untrusted: UntrustedProxy,
    flows_of_routes: FlowSet,
    flows_of_servers: FlowSet,
}

impl Gateway {
    /// A gateway without routes, for listeners on `cores`.
    #[must_use]
    pub fn new(limits: Arc<RequestLimiter>, settings: GatewaySettings, clock: Clock, cores: &Cores) -> Self {
        let resolver = Resolver::new(settings.dns_refresh);
        let cores: Vec<_> = (0..cores.count()).map(|core| cores.handle(core).clone()).collect();
        let (flows_of_routes, flows_of_servers) = (FlowSet::new(cores.len()), FlowSet::new(cores.len()));
        Self {
            site: ArcSwap::default(),
            limits,
            settings,
            clock,
            resolver,
            access_log: None,
            analytics: None,
            counters: Box::default(),
            traces: Arc::default(),
            keys: Arc::new(ApiKeys::new("")),
            identity_fields: IdentityFields::default(),
            compressor: Arc::default(),
            known: KnownIdentities::default(),
            jwt_counts: JwtCounts::default(),
            forward_auth_counts: ForwardAuthCounts::default(),
            trace_guard: None,
            verdicts: Verdicts::default(),
            shedder: None,
            spans: None,
            cores,
            untrusted: UntrustedProxy::default(),
            flows_of_routes,
            flows_of_servers,
        }
    }

    /// The same that tells other nodes what its checks find, and hears what theirs do.
    #[must_use]
    pub fn with_verdicts(self, verdicts: Verdicts) -> Self {
        Self { verdicts, ..self }
    }

    /// The same that refuses requests as `shedder` says.
    #[must_use]
    pub fn with_shedder(self, shedder: Option<Arc<Shedder>>) -> Self {
        Self { shedder, ..self }
    }

    /// The same gateway, which sends spans of its requests.
    #[must_use]
    pub fn with_spans(self, spans: Option<Arc<Spans>>) -> Self {
        Self { spans, ..self }
    }

    /// The same with an access log.
    #[must_use]
    pub fn with_access_log(self, access_log: Option<Arc<AccessLog>>) -> Self {
        Self { access_log, ..self }
    }

    /// The same gateway, which counts its requests.
    #[must_use]
    pub fn with_analytics(self, analytics: Option<Arc<Analytics>>) -> Self {
        let counters = analytics.as_ref().map(Analytics::counters).unwrap_or_default();
        Self { analytics, counters, ..self }
    }

    /// The same with API keys, and fields by which servers are told whose a request is.
    #[must_use]
    pub fn with_keys(self, keys: Arc<ApiKeys>, identity_fields: IdentityFields) -> Self {
        Self { keys, identity_fields, ..self }
    }

    /// The same for which those that `guard` admits may ask for traces.
    #[must_use]
    pub fn with_traces(self, guard: TraceGuard) -> Self {
        Self { trace_guard: Some(guard), ..self }
    }

    /// Closes idle connections in time, and follows the names of servers and the files of certificates that they are shown, for as
    /// long as it is polled.
    pub async fn maintain(&self) {
        if let Some(shedder) = &self.shedder {
            for (index, core) in self.cores.iter().enumerate() {
                drop(core.spawn(Arc::clone(shedder).watch(index, self.clock)));
            }
        }
        tokio::join!(self.sweep(), self.follow_names(), self.follow_client_certificates());
    }

    /// Reads the certificates that servers are shown again, when their files have changed (fault 42).
    async fn follow_client_certificates(&self) {
        loop {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            let site = self.site.load_full();
            let shown = site.upstreams.iter().filter(|upstream| upstream.has_certificate());
            let shown: Vec<_> = shown.cloned().collect();
            if !shown.is_empty() {
                let look = move || shown.iter().for_each(|upstream| upstream.look_at_certificate());
                tokio::task::spawn_blocking(look).await.unwrap_or_default();
            }
        }
    }

    /// Looks the names of servers up again, one after the other: a busy connection would lead to the old address for
    /// ever.
    async fn follow_names(&self) {
        loop {
            tokio::time::sleep(self.settings.dns_refresh.min(FOLLOW_INTERVAL)).await;
            let site = self.site.load_full();
            let servers = || {
                site.upstreams
                    .iter()
                    .flat_map(|upstream| upstream.group.backends().iter().zip(&upstream.pools))
            };
            let named = servers().filter_map(|(backend, pool)| match &backend.target().host {
                Host::Name(name) => Some((&**name, pool)),
                Host::Address(_) => None,
            });
            let named: Vec<(&str, &Arc<ConnectionPool>)> = named.collect();
            let used: HashSet<&str> = named.iter().map(|(name, _)| *name).collect();
            self.resolver.forget(|name| !used.contains(name));
            for (name, pool) in named {
                if let Some(addresses) = self.resolver.again(name).await {
                    pool.keep_to(&addresses);
                }
            }
        }
    }

    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let now = monotonic();
            for upstream in &self.site.load_full().upstreams {
                upstream.pools.iter().for_each(|pool| pool.sweep(now));
            }
        }
    }

    /// As [`Gateway::site`], to hold on to.
    pub(crate) fn site_in_force(&self) -> Arc<GatewaySite> {
        self.site.load_full()
    }

    pub(crate) fn site(&self) -> Guard<Arc<GatewaySite>> {
        self.site.load()
    }

    pub(crate) fn limits(&self) -> &RequestLimiter {
        &*self.limits
    }

    /// The API keys in force.
    #[must_use]
    pub fn keys(&self) -> &Arc<ApiKeys> {
        &self.keys
    }

    /// What became of requests that needed a JWT, and how many identities were forgotten for want of room.
    #[must_use]
    pub fn jwt(&self) -> (JwtStats, u64) {
        (self.jwt_counts.read(), self.known.evicted())
    }

    /// What became of replies that could be compressed.
    #[must_use]
    pub fn compression(&self) -> CompressionStats {
        self.compressor.stats()
    }

    pub(crate) fn compressor(&self) -> &Arc<Compressor> {
        &self.compressor
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// What became of requests about which another service was asked.
    #[must_use]
    pub fn forward_auth(&self) -> ForwardAuthStats {
        self.forward_auth_counts.read()
    }

    pub(crate) fn forward_auth_counts(&self) -> &ForwardAuthCounts {
        &self.forward_auth_counts
    }

    pub(crate) fn known(&self) -> &KnownIdentities {
        &self.known
    }

    pub(crate) fn jwt_counts(&self) -> &JwtCounts {
        &self.jwt_counts
    }

    pub(crate) fn identity_fields(&self) -> &IdentityFields {
        &self.identity_fields
    }

    pub(crate) fn settings(&self) -> GatewaySettings {
        self.settings
    }

    /// What is known of a proxy in front that nothing trusts.
    pub(crate) fn untrusted(&self) -> &UntrustedProxy {
        &self.untrusted
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    pub(crate) fn tick(&self) -> Tick {
        self.clock.tick()
    }

    /// Its access log, if it has one.
    #[must_use]
    pub fn access_log(&self) -> Option<&Arc<AccessLog>> {
        self.access_log.as_ref()
    }

    /// What its requests are counted by, if they are.
    #[must_use]
    pub fn analytics(&self) -> Option<&Arc<Analytics>> {
        self.analytics.as_ref()
    }

    /// What counts the requests of a core, if they are counted.
    pub(crate) fn counter(&self, core: usize) -> Option<&Arc<dyn CountsRequests>> {
        self.counters.get(core % self.counters.len().max(1))
    }

    /// What it refuses because this process cannot keep up, if it does.
    #[must_use]
    pub fn shedder(&self) -> Option<&Arc<Shedder>> {
        self.shedder.as_ref()
    }

    /// The spans of its requests, if they have some.
    #[must_use]
    pub fn spans(&self) -> Option<&Arc<Spans>> {
        self.spans.as_ref()
    }

    /// The last requests, for who looks at them.
    #[must_use]
    pub fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// Whether a request asks for a trace and may. What it asks with goes no further: neither the field, nor the token
    /// that was good for it.
    pub(crate) fn takes_trace(&self, fields: &mut HeaderMap) -> bool {
        let (Some(asked), Some(guard)) = (fields.remove(TRACE), &self.trace_guard) else { return false };
        let admits = |value: &HeaderValue| guard.admits(value.as_bytes());
        let token = [PROXY_AUTHORIZATION, AUTHORIZATION];
        let token = token.into_iter().find(|name| fields.get(name).is_some_and(admits));
        let Some(name) = token else { return false };
        fields.remove(name);
        asked == "1"
    }
}
