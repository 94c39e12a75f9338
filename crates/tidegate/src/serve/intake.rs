//! The intake: its log, its listener, and what it asks of tokens and policies.

use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use tidegate_access::tokens::{self, Scope, TokensInForce};
use tidegate_admin::{Metrics, Operator, Readiness, Servers};
use tidegate_algorithms::policy::Attributes;
use tidegate_intake::EndpointUrl;
use tidegate_intake::access::{Access, AccessError, Right};
use tidegate_intake::alerts::{Alerts, Webhook, alerts};
use tidegate_intake::counters::Counters;
use tidegate_intake::forward::{self, Forwards, Topics};
use tidegate_intake::limits::{Denial, LimitedBatch, Limits, LimitsAnswer, Ruling};
use tidegate_intake::settings::IntakeSettings;
use tidegate_intake::statsd::Statsd;
use tidegate_intake::{ClientSeries, Intake, MetricLines, Parts, TEMPLATES};
use tidegate_limiter::answers;
use tidegate_limiter::engine::{Ask, Engine};
use tidegate_limiter::error::AskError;
use tidegate_limiter::http::quota_fields;
use tidegate_log::{Clock as LogClock, Log, RealFiles};
use tidegate_net::clock::{Clock, monotonic, wall};
use tidegate_net::drain::Drain;
use tidegate_net::http::{Body, HttpConfig};
use tidegate_net::limits::MissingPolicy;
use tidegate_net::listen::ListenError;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

use super::denials::denial;
use super::intake_listener::ListeningIntake;
use super::intake_metrics::{
    AlertMetrics, ForwardMetrics, IntakeMetrics, LogMetrics, SeriesMetrics, StatsdMetrics,
};
use super::standalone::{BoundService, Door};
use super::{StartError, whole};
use crate::config::{AllowedNetwork, Config, IntakeCost, IntakeLists, Listener, Settings, WebhookUrl};

/// What policies know a batch by, beside its client: the attribute `resource`.
const RESOURCE: &str = "metrics";

/// Most findings of a start that are logged.
const MAX_FINDINGS: usize = 20;

/// What forwards to Kafka, in a build that can.
#[cfg(feature = "kafka")]
const TOPICS: Option<&dyn Topics> = Some(&tidegate_kafka::KafkaTopics);
#[cfg(not(feature = "kafka"))]
const TOPICS: Option<&dyn Topics> = None;

/// The core that looks after alerts.
const ALERTS_CORE: usize = 0;

/// The intake's folder in the data directory.
pub(crate) const FOLDER: &str = "intake";

/// An intake whose log is open.
#[derive(Debug)]
pub(super) struct ServedIntake {
    intake: Arc<Intake>,
    settings: IntakeSettings,
    listening: ListeningIntake,
    stats: Arc<Stats>,
    webhook: Webhook,
    statsd: Option<CountedStatsd>,
    running: RunningIntake,
}

/// What of an intake is at hand while it serves: its log, and what other entries of the file change.
#[derive(Clone, Debug)]
pub(super) struct RunningIntake {
    log: Arc<Log>,
    alerts: Arc<Alerts>,
    forwards: Arc<Forwards>,
    clock: Clock,
}

impl RunningIntake {
    /// Puts these alert rules, the webhook and these forwards in force.
    pub(super) fn replace(&self, lists: &IntakeLists, webhook: Option<EndpointUrl>) {
        let IntakeLists { alerts, forwards } = lists.clone();
        let (rules, forwarded) = (alerts.len(), forwards.len());
        // First, so that what ends under the other rules is told to the receiver that is in the file.
        if self.alerts.tell_at(webhook) {
            tracing::info!("alerts are told to another receiver from now on, or to none");
        }
        if self.alerts.replace(alerts, self.clock.tick()) {
            tracing::info!(rules, "the changed alert rules are in force");
        }
        if self.forwards.replace(forwards) {
            tracing::info!(forwards = forwarded, "the changed forwards are in force");
        }
    }

    /// Its log, for parts that run on when it has ended.
    pub(super) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Its forwards.
    pub(super) fn forwards(&self) -> &Arc<Forwards> {
        &self.forwards
    }
}

impl ServedIntake {
    /// Opens the log and binds StatsD, if there is to be an intake.
    pub(super) fn bind(
        config: &Config,
        engine: &Arc<Engine>,
        door: &mut Door<'_>,
    ) -> Result<Option<Self>, StartError> {
        let settings = &config.settings;
        if settings.intake.listen.is_none() {
            return Ok(None);
        }
        let log = open(settings)?;
        let counters = Arc::new(Counters::default());
        let policies: Arc<[Arc<str>]> =
            settings.intake.policies.iter().map(|name| name.to_string().into()).collect();
        let limits = IntakeLimits {
            engine: Arc::clone(engine),
            missing: settings.intake.on_missing_policy.into(),
            cost: settings.intake.cost,
            legacy_fields: settings.http.legacy_headers,
        };
        let webhook = settings.intake.alert_webhook.clone().map(|WebhookUrl(url)| url);
        let (alerts, webhook) = alerts(config.intake.alerts.clone(), webhook);
        let series = Arc::new(ClientSeries::new(settings.intake.series_per_client.into(), *engine.clock()));
        let readiness = Readiness::new(door.gate.drain.clone());
        let intake = Arc::new(Intake::new(Parts {
            page: Box::new(page(readiness, &log, &counters, &alerts)),
            log,
            settings: intake_settings(settings),
            access: Arc::new(IntakeTokens(door.tokens.intake.clone())),
            policies,
            limits: Arc::new(limits),
            counters,
            drain: door.gate.drain.clone(),
            clock: *engine.clock(),
            alerts: Some(Arc::clone(&alerts)),
            series,
        }));
        let forwards = Arc::new(Forwards::new(config.intake.forwards.clone(), intake.log()));
        let log = Arc::clone(intake.log());
        let running = RunningIntake { log, alerts, forwards, clock: *engine.clock() };
        let statsd = statsd(settings, &intake, door)?;
        let gate = door.gate(TEMPLATES);
        let stats = Arc::clone(&gate.stats);
        let body_bytes = whole(settings.intake.body_bytes);
        let config = HttpConfig {
            head_timeout: door.head_timeout,
            connection_bytes: HttpConfig::default().connection_bytes.max(2 * body_bytes),
            ..HttpConfig::default()
        };
        let listening = ListeningIntake::new(&intake, config, gate);
        let settings = intake_settings(settings);
        Ok(Some(Self { intake, settings, listening, stats, webhook, statsd, running }))
    }

    /// What serves its listener.
    pub(super) fn listening(&self) -> ListeningIntake {
        self.listening.clone()
    }

    /// What a second intake over its log is made of.
    pub(super) fn lasting(&self) -> (Arc<Log>, IntakeSettings, Drain, Clock) {
        (Arc::clone(self.intake.log()), self.settings.clone(), self.intake.drain(), self.intake.clock())
    }

    /// What of it is at hand while it serves.
    pub(super) fn running(&self) -> &RunningIntake {
        &self.running
    }

    /// What is on the operator's metrics page of it.
    pub(super) fn register(&self, metrics: &mut Metrics) {
        register(metrics, self.intake.log(), self.intake.counters(), &self.running.alerts);
        metrics.register(SeriesMetrics(Arc::clone(self.intake.series())));
        if let Some((statsd, _)) = &self.statsd {
            metrics.register(StatsdMetrics(statsd.counters()));
        }
        metrics.register(ForwardMetrics(Arc::clone(&self.running.forwards)));
    }
}

impl BoundService for ServedIntake {
    fn counted(&self, servers: Servers) -> Servers {
        let servers = servers.with(Listener::INTAKE.server(), Arc::clone(&self.stats));
        match &self.statsd {
            Some((_, stats)) => servers.with_streams(Listener::STATSD.server(), Arc::clone(stats)),
            None => servers,
        }
    }

    fn start(self: Box<Self>, cores: &Cores) {
        let (clock, drain) = (self.intake.clock(), self.intake.drain());
        let seed = clock.tick().0;
        cores.spawn_on(ALERTS_CORE, self.webhook.run(clock, drain, seed));
        forward::start(&self.intake, &self.running.forwards, TOPICS, cores);
        if let Some((statsd, _)) = self.statsd {
            statsd.start(cores);
        }
    }
}

/// StatsD, and what its server counts.
type CountedStatsd = (Statsd, Arc<Stats>);

/// Binds StatsD, if there is to be any.
fn statsd(
    settings: &Settings,
    intake: &Arc<Intake>,
    door: &mut Door<'_>,
) -> Result<Option<CountedStatsd>, StartError> {
    let Some(address) = settings.intake.statsd_listen else { return Ok(None) };
    let listeners = door.listeners(Listener::STATSD, address)?;
    let gate = door.gate::<&str>(&[]);
    let stats = Arc::clone(&gate.stats);
    let allowed = AllowedNetwork::networks(&settings.intake.statsd_allowed);
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
    log.own_groups = Some(forward::GROUP_PREFIX);
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
fn register(metrics: &mut Metrics, log: &Arc<Log>, counters: &Arc<Counters>, alerts: &Arc<Alerts>) {
    metrics.register(IntakeMetrics(Arc::clone(counters)));
    metrics.register(LogMetrics(Arc::clone(log)));
    metrics.register(AlertMetrics(Arc::clone(alerts)));
}

/// The intake's own page of numbers.
fn page(
    readiness: Readiness,
    log: &Arc<Log>,
    counters: &Arc<Counters>,
    alerts: &Arc<Alerts>,
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

/// The engine, as the intake's limiter.
#[derive(Debug)]
pub(super) struct IntakeLimits {
    engine: Arc<Engine>,
    /// What becomes of batches while one of the intake's policies is not in force.
    missing: MissingPolicy,
    cost: IntakeCost,
    /// Whether replies also carry the fields that older clients read.
    legacy_fields: bool,
}

impl IntakeLimits {
    fn cost(&self, batch: &LimitedBatch<'_>) -> u64 {
        match self.cost {
            IntakeCost::Batches => 1,
            IntakeCost::Metrics => batch.metrics,
        }
    }

    async fn ruling(&self, policies: &[Arc<str>], batch: &LimitedBatch<'_>) -> Ruling {
        if let Some(denial) = self.engine.denial_without(policies, self.missing) {
            return Ruling { denial: Some(denial), ..Ruling::default() };
        }
        let address = batch.address.to_string();
        let pairs = attributes(batch, &address);
        let cost = self.cost(batch);
        let ask = Ask {
            attributes: Attributes::new(&pairs),
            cost,
            peek: false,
            can_release: false,
            door: answers::Door::Intake,
        };
        let denial = match self.engine.decide_under(policies, &ask).await {
            Ok(decision) => {
                let fields = quota_fields(&decision, self.legacy_fields);
                return Ruling { denial: denial(&decision), fields, ..Ruling::default() };
            }
            Err(AskError::Store(error)) => Denial::NoAnswer(error.to_string()),
            Err(error) => Denial::Invalid(error.to_string()),
        };
        Ruling { denial: Some(denial), ..Ruling::default() }
    }

    async fn give_back(&self, policies: &[Arc<str>], batch: &LimitedBatch<'_>) {
        let address = batch.address.to_string();
        let pairs = attributes(batch, &address);
        let cost = self.cost(batch);
        let ask = Ask {
            attributes: Attributes::new(&pairs),
            cost,
            peek: false,
            can_release: false,
            door: answers::Door::Intake,
        };
        if let Err(error) = self.engine.refund_under(policies, &ask).await {
            tracing::debug!(%error, "a batch that was not kept stays charged");
        }
    }
}

impl<'b> Limits<LimitedBatch<'b>> for IntakeLimits {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        batch: &'a LimitedBatch<'b>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(self.ruling(policies, batch))
    }

    fn pass(&self, _batch: &LimitedBatch<'b>) {
        self.engine.answers().count_unlimited(answers::Door::Intake);
    }

    fn refund<'a>(&'a self, policies: &'a [Arc<str>], batch: &'a LimitedBatch<'b>) -> LimitsAnswer<'a, ()> {
        Box::pin(self.give_back(policies, batch))
    }
}

/// What policies know of a batch.
fn attributes<'a>(batch: &LimitedBatch<'a>, address: &'a str) -> [(&'static str, &'a [u8]); 3] {
    [("client_id", batch.client.as_bytes()), ("ip", address.as_bytes()), ("resource", RESOURCE.as_bytes())]
}
