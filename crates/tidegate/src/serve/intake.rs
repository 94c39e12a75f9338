//! The intake: its log, its listener, and what it asks of tokens and policies.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use tidegate_access::tokens::{self, Scope, TokensInForce};
use tidegate_admin::{Metrics, Operator, Readiness, Servers};
use tidegate_algorithms::policy::Attributes;
use tidegate_intake::access::{Access, AccessError, Right};
use tidegate_intake::alerts::{Alerts, Webhook, alerts};
use tidegate_intake::counters::Counters;
use tidegate_intake::forward::{self, ForwardConfig, ForwardState};
use tidegate_intake::limits::{Denial, LimitedBatch, Limits, Ruling};
use tidegate_intake::settings::IntakeSettings;
use tidegate_intake::statsd::Statsd;
use tidegate_intake::{ClientSeries, Intake, IntakeService, MetricLines, Parts, TEMPLATES};
use tidegate_limiter::engine::{Ask, Engine};
use tidegate_limiter::error::AskError;
use tidegate_limiter::http::quota_fields;
use tidegate_log::{Clock as LogClock, Log, RealFiles};
use tidegate_net::accept::Gate;
use tidegate_net::clock::{monotonic, wall};
use tidegate_net::http::{Body, HttpConfig, Server};
use tidegate_net::listen::{ListenError, Listeners};
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

use super::inherited::Inherited;
use super::intake_metrics::{
    AlertMetrics, ForwardMetrics, IntakeMetrics, LogMetrics, SeriesMetrics, StatsdMetrics,
};
use super::protocols::{Guards, tls_of};
use super::{StartError, permits_of_a_listener, whole};
use crate::config::{Config, IntakeCost, Listener, Settings};

/// What policies know a batch by, beside its client: the attribute `resource`.
const RESOURCE: &str = "metrics";

/// Most findings of a start that are logged.
const MAX_FINDINGS: usize = 20;

/// The core that looks after alerts.
const ALERTS_CORE: usize = 0;

/// The intake's folder in the data directory.
const FOLDER: &str = "intake";

/// An intake with its socket bound.
#[derive(Debug)]
pub(super) struct Ingestion {
    intake: Arc<Intake<IntakeLimits>>,
    server: (Server<IntakeService<IntakeLimits>>, Listeners),
    stats: Arc<Stats>,
    webhook: Option<Webhook>,
    statsd: Option<CountedStatsd>,
    forwards: Vec<(ForwardConfig, Arc<ForwardState>)>,
}

impl Ingestion {
    /// Opens the log and binds the listener, if there is to be one. It shares the drain of `gate` and its permits,
    /// but for those that it has for itself.
    pub(super) fn bind(
        config: &Config,
        engine: &Arc<Engine>,
        workers: NonZeroUsize,
        gate: &Gate,
        guards: &Guards<'_>,
        inherited: &mut Inherited,
    ) -> Result<Option<Self>, StartError> {
        let settings = &config.settings;
        let Some(address) = settings.intake.listen else { return Ok(None) };
        let listeners = inherited.listeners(address, workers)?;
        let listeners = listeners.with_tls(tls_of(guards.tls, Listener::Intake));
        let log = open(settings)?;
        let counters = Arc::new(Counters::default());
        let policies: Vec<Arc<str>> =
            settings.intake.policies.iter().map(|name| name.to_string().into()).collect();
        let limits = IntakeLimits {
            engine: Arc::clone(engine),
            policies,
            cost: settings.intake.cost,
            legacy_fields: settings.http.legacy_headers,
        };
        let (alerts, webhook) =
            alerts(config.intake.alerts.clone(), settings.intake.alert_webhook.clone()).unzip();
        let series = match settings.intake.series_per_client {
            0 => None,
            limit => Some(Arc::new(ClientSeries::new(limit.into(), *engine.clock()))),
        };
        let readiness = Readiness::new(gate.drain.clone());
        let intake = Arc::new(Intake::new(Parts {
            page: Box::new(page(readiness, &log, &counters, alerts.as_ref())),
            log,
            settings: intake_settings(settings),
            access: Arc::new(IntakeTokens(guards.tokens.intake.clone())),
            limits,
            counters,
            drain: gate.drain.clone(),
            clock: *engine.clock(),
            alerts,
            series,
        }));
        let forwards = config.intake.forwards.iter();
        let forwards = forwards
            .map(|forward| (forward.clone(), Arc::new(ForwardState::new(forward, intake.log()))))
            .collect();
        let statsd = statsd(settings, &intake, workers, gate, inherited)?;
        let stats = Arc::new(Stats::new(workers.get(), TEMPLATES));
        let gate = Gate { permits: permits_of_a_listener(gate), stats: Arc::clone(&stats), ..gate.clone() };
        let body_bytes = whole(settings.intake.body_bytes);
        let config = HttpConfig {
            head_timeout: settings.limits.header_deadline,
            connection_bytes: HttpConfig::default().connection_bytes.max(2 * body_bytes),
            ..HttpConfig::default()
        };
        let server = Server::new(IntakeService(Arc::clone(&intake)), config, gate);
        Ok(Some(Self { intake, server: (server, listeners), stats, webhook, statsd, forwards }))
    }

    /// Where it listens, with the real port.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.1.address()
    }

    /// `servers` and what its own count.
    pub(super) fn counted(&self, servers: Servers) -> Servers {
        let servers = servers.with(Listener::Intake.server(), Arc::clone(&self.stats));
        match &self.statsd {
            Some((_, stats)) => servers.with_streams("statsd", Arc::clone(stats)),
            None => servers,
        }
    }

    /// Its log, for whom it outlives.
    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(self.intake.log())
    }

    /// What is on the operator's metrics page of it.
    pub(super) fn register(&self, metrics: &mut Metrics) {
        register(metrics, self.intake.log(), self.intake.counters(), self.intake.alerts());
        if let Some(series) = self.intake.series() {
            metrics.register(SeriesMetrics(Arc::clone(series)));
        }
        if let Some((statsd, _)) = &self.statsd {
            metrics.register(StatsdMetrics(statsd.counters()));
        }
        if !self.forwards.is_empty() {
            metrics
                .register(ForwardMetrics(self.forwards.iter().map(|(_, state)| Arc::clone(state)).collect()));
        }
    }

    /// Says which of the policies that limit it are not in force.
    pub(super) fn announce_unknown_policies(&self) {
        self.intake.limits().announce_unknown();
    }

    /// Begins to serve.
    pub(super) fn start(self, cores: &Cores) {
        let (server, listeners) = self.server;
        if let Some(webhook) = self.webhook {
            let (clock, drain) = (self.intake.clock(), self.intake.drain());
            let seed = clock.tick().0;
            cores.spawn_on(ALERTS_CORE, webhook.run(clock, drain, seed));
        }
        forward::start(&self.intake, &self.forwards, cores);
        if let Some((statsd, _)) = self.statsd {
            statsd.start(cores);
        }
        server.start(cores, listeners);
    }
}

/// StatsD, and what its server counts.
type CountedStatsd = (Statsd<IntakeLimits>, Arc<Stats>);

/// Binds StatsD, if there is to be any.
fn statsd(
    settings: &Settings,
    intake: &Arc<Intake<IntakeLimits>>,
    workers: NonZeroUsize,
    gate: &Gate,
    inherited: &mut Inherited,
) -> Result<Option<CountedStatsd>, StartError> {
    let Some(address) = settings.intake.statsd_listen else { return Ok(None) };
    let listeners = inherited.listeners(address, workers)?;
    let stats = Arc::new(Stats::new::<&str>(workers.get(), &[]));
    let gate = Gate { permits: permits_of_a_listener(gate), stats: Arc::clone(&stats), ..gate.clone() };
    let allowed = settings.intake.statsd_allowed.clone();
    let statsd = Statsd::bind(Arc::clone(intake), listeners, allowed, gate)
        .map_err(|source| StartError::Listen(ListenError::System { address, source }))?;
    tracing::info!(address = %statsd.address(), "StatsD over UDP and TCP");
    Ok(Some((statsd, stats)))
}

fn open(settings: &Settings) -> Result<Arc<Log>, StartError> {
    let intake = &settings.intake;
    let mut log = tidegate_log::Settings::new(settings.data_dir.join(FOLDER));
    log.partitions = u16::try_from(intake.partitions).unwrap_or(u16::MAX);
    log.segment_bytes = intake.segment_bytes.0;
    log.segment_age = intake.segment_age;
    log.retain_bytes = Some(intake.retain_bytes.0);
    log.retain_age = Some(intake.retain_age);
    log.queue_bytes = whole(intake.queue_bytes);
    let clock = LogClock { monotonic, wall_ms: || i64::try_from(wall().0 / 1_000_000).unwrap_or(i64::MAX) };
    let (log, recovery) = Log::open(log, Arc::new(MetricLines), Arc::new(RealFiles), clock)?;
    for finding in recovery.findings.iter().take(MAX_FINDINGS) {
        tracing::warn!(%finding, "found in the intake's log");
    }
    if recovery.findings.len() > MAX_FINDINGS {
        let findings = recovery.findings.len();
        tracing::warn!(findings, "more was found in the intake's log than is said here");
    }
    Ok(Arc::new(log))
}

fn intake_settings(settings: &Settings) -> IntakeSettings {
    let intake = &settings.intake;
    IntakeSettings {
        acknowledge: intake.acknowledge.into(),
        batch_metrics: usize::try_from(intake.batch_metrics).unwrap_or(usize::MAX),
        body_bytes: whole(intake.body_bytes),
        repeat_window: intake.repeat_window,
        client_field: intake.client_header.as_ref().map(|field| field.name().clone()),
        partition_by: intake.partition_by.into(),
    }
}

/// What is on a metrics page of an intake.
fn register(metrics: &mut Metrics, log: &Arc<Log>, counters: &Arc<Counters>, alerts: Option<&Arc<Alerts>>) {
    metrics.register(IntakeMetrics(Arc::clone(counters)));
    metrics.register(LogMetrics(Arc::clone(log)));
    if let Some(alerts) = alerts {
        metrics.register(AlertMetrics(Arc::clone(alerts)));
    }
}

/// The intake's own page of numbers.
fn page(
    readiness: Readiness,
    log: &Arc<Log>,
    counters: &Arc<Counters>,
    alerts: Option<&Arc<Alerts>>,
) -> impl Fn(&HeaderMap) -> Response<Body> + Send + Sync + use<> {
    let mut metrics = Metrics::new();
    register(&mut metrics, log, counters, alerts);
    let operator = Operator::new(readiness, metrics);
    move |fields| {
        let mut request = Request::new(());
        *request.uri_mut() = http::Uri::from_static("/metrics");
        *request.headers_mut() = fields.clone();
        operator.answer(&request).map(|(_, response)| response).unwrap_or_default()
    }
}

/// The tokens of the decision service, as the intake's.
struct IntakeTokens(TokensInForce);

impl Access for IntakeTokens {
    fn admit(&self, right: Right, secret: Option<&[u8]>) -> Result<Option<Arc<str>>, AccessError> {
        let scope = match right {
            Right::Ingest => Scope::Ingest,
            Right::Read => Scope::Read,
        };
        let in_force = self.0.load();
        let admitted = in_force.admit(scope, secret).map_err(|denial| match denial {
            tokens::Denial::Unknown => AccessError::Unknown,
            tokens::Denial::Scope(_) => AccessError::Missing(right),
        })?;
        Ok(admitted.map(|credential| credential.name().into()))
    }
}

/// The engine, as the intake's limiter: under the policies that the configuration lists for it.
#[derive(Debug)]
pub(super) struct IntakeLimits {
    engine: Arc<Engine>,
    policies: Vec<Arc<str>>,
    cost: IntakeCost,
    /// Whether replies also carry the fields that older clients read.
    legacy_fields: bool,
}

impl IntakeLimits {
    fn announce_unknown(&self) {
        let set = self.engine.set();
        for name in self.policies.iter().filter(|name| set.policy(name).is_none()) {
            tracing::warn!(policy = %name, "intake.policies lists a policy that is not in force: it limits nothing");
        }
    }
}

impl Limits for IntakeLimits {
    async fn charge(&self, batch: &LimitedBatch<'_>) -> Ruling {
        if self.policies.is_empty() {
            return Ruling::default();
        }
        let address = batch.address.to_string();
        let pairs = [
            ("client_id", batch.client.as_bytes()),
            ("ip", address.as_bytes()),
            ("resource", RESOURCE.as_bytes()),
        ];
        let cost = match self.cost {
            IntakeCost::Batches => 1,
            IntakeCost::Metrics => batch.metrics,
        };
        let ask = Ask { attributes: Attributes::new(&pairs), cost, peek: false, can_release: false };
        let denial = match self.engine.decide_under(&self.policies, &ask).await {
            Ok(decision) => {
                let fields = quota_fields(&decision, self.legacy_fields);
                return Ruling { denial: (!decision.allowed).then_some(Denial::Quota), fields };
            }
            Err(AskError::Store(error)) => Denial::NoAnswer(error.to_string()),
            Err(error) => Denial::Invalid(error.to_string()),
        };
        Ruling { denial: Some(denial), ..Ruling::default() }
    }
}
