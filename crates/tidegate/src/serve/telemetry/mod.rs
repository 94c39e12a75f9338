//! Telemetry for an OpenTelemetry collector: spans of the gateway's requests, and the metrics page.
//!
//! ```text
//!   gateway::spans ── a batch is there, or span_delay is over ──> batch ── POST /v1/traces ──> collector
//!      a queue with a bound: what finds no room                     ^ └── no answer, 429, 502 to 504:
//!      is dropped and counted                                       `──── the same again, later each time
//!   metrics page ── metrics_interval ────────────────────────────────── POST /v1/metrics ──> collector
//!                                                                        not again: the next one has later numbers
//! ```
//!
//! What a collector refuses otherwise is dropped and counted: it would refuse the same again. A batch whose answer did not
//! come may arrive twice, under the same identifiers. After a drain, when all requests have ended, what waits is sent once more.
//!
//! | bound | value |
//! |---|---|
//! | spans that wait | `gateway::spans` has their bounds, and one batch of these is under way |
//! | a try | 10 s |
//! | the wait between two tries | 1 s to 30 s; 1 min where the collector asks for it |
//! | the last try, after a drain | 5 s |

mod collector;
mod resource;

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_admin::{Families, Family, Metrics};
use tidegate_algorithms::backoff::Backoff;
use tidegate_algorithms::time::Wall;
use tidegate_gateway::spans::{BATCH, MAX_SPANS, Spans};
use tidegate_net::clock::wall;
use tidegate_net::drain::{Drain, Stage};
use tidegate_upstream::endpoint::EndpointUrl;
use tidegate_wire::otlp::{page, spans};
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::StartError;
use crate::config::{CollectorUrl, Settings, Telemetry as TelemetrySettings};
use collector::{Collector, Outcome, Tries};
use resource::{random, resource};

/// The wait after the first try that failed, at most.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Longest wait that a collector may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);
/// How long a process that ends waits for the collector.
const LAST: Duration = Duration::from_secs(5);

/// The queue of the gateway's spans, if they are sent anywhere.
pub(super) fn queue(settings: &TelemetrySettings) -> Option<Arc<Spans>> {
    let is_on = settings.endpoint.is_some() && settings.traces;
    is_on.then(|| Arc::new(Spans::new(settings.sample_ratio.value())))
}

/// What is sent, and how that fares.
#[derive(Debug)]
pub(super) struct Telemetry {
    /// What is said of this process.
    resource: Vec<(String, String)>,
    /// When this process began to count.
    since: Wall,
    spans: Option<SpanExport>,
    metrics: Option<MetricExport>,
}

#[derive(Debug)]
struct SpanExport {
    queue: Arc<Spans>,
    delay: Duration,
    way: Mutex<SpanWay>,
    /// Spans that the collector has taken, and those that it refused.
    taken: AtomicU64,
    refused: AtomicU64,
    tries: Arc<Tries>,
}

impl SpanExport {
    fn new(
        settings: &TelemetrySettings,
        url: &EndpointUrl,
        queue: &Arc<Spans>,
        instance: [u8; 16],
    ) -> Result<Self, StartError> {
        let seed = u64::from_le_bytes(*instance.first_chunk().unwrap_or(&[0; 8]));
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed);
        let collector = Collector::new(settings, &url.beneath("/v1/traces"))?;
        let tries = Arc::clone(&collector.tries);
        let way = SpanWay { collector, batch: Vec::new(), backoff };
        Ok(Self {
            queue: Arc::clone(queue),
            delay: settings.span_delay,
            way: Mutex::new(way),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            tries,
        })
    }
}

#[derive(Debug)]
struct SpanWay {
    collector: Collector,
    /// What is under way until the collector has taken or refused it.
    batch: Vec<Vec<u8>>,
    backoff: Backoff,
}

#[derive(Debug)]
struct MetricExport {
    interval: Duration,
    collector: Mutex<Collector>,
    /// Points that the collector refused of requests that it took.
    refused: AtomicU64,
    tries: Arc<Tries>,
}

impl MetricExport {
    fn new(settings: &TelemetrySettings, url: &EndpointUrl) -> Result<Self, StartError> {
        let collector = Collector::new(settings, &url.beneath("/v1/metrics"))?;
        let tries = Arc::clone(&collector.tries);
        let (interval, refused) = (settings.metrics_interval, AtomicU64::new(0));
        Ok(Self { interval, collector: Mutex::new(collector), refused, tries })
    }
}

/// How sending a batch fared.
enum Sent {
    /// There was none.
    Nothing,
    /// It is off the queue for good.
    Done,
    /// It is to be sent again after this time.
    Again(Duration),
}

impl Telemetry {
    /// What the settings ask for, with the gateway's `queue` of spans; `None`: nothing.
    pub(super) fn new(
        settings: &Settings,
        queue: Option<&Arc<Spans>>,
    ) -> Result<Option<Arc<Self>>, StartError> {
        let settings = &settings.telemetry;
        let Some(CollectorUrl(url)) =
            settings.endpoint.as_ref().filter(|_| settings.traces || settings.metrics)
        else {
            return Ok(None);
        };
        let instance = random();
        let spans = queue.map(|queue| SpanExport::new(settings, url, queue, instance)).transpose()?;
        let metrics = settings.metrics.then(|| MetricExport::new(settings, url)).transpose()?;
        let resource = resource(settings, instance);
        Ok(Some(Arc::new(Self { resource, since: wall(), spans, metrics })))
    }

    /// The same with the page that it sends, until `drain` has ended.
    pub(super) fn exporter(self: Arc<Self>, page: &Arc<Metrics>, drain: Drain) -> Exporter {
        Exporter { telemetry: self, page: Arc::clone(page), drain }
    }

    async fn send_for_ever(&self, numbers: &Metrics) {
        tokio::join!(self.spans_for_ever(), self.metrics_for_ever(numbers));
    }

    async fn spans_for_ever(&self) {
        let Some(export) = &self.spans else { return pending().await };
        let mut way = export.way.lock().await;
        loop {
            // Whichever comes first.
            drop(timeout(export.delay, export.queue.batch()).await);
            loop {
                match self.send_spans(export, &mut way).await {
                    Sent::Done if export.queue.counts().0 >= BATCH => {}
                    Sent::Done | Sent::Nothing => break,
                    Sent::Again(wait) => sleep(wait).await,
                }
            }
        }
    }

    async fn metrics_for_ever(&self, numbers: &Metrics) {
        let Some(export) = &self.metrics else { return pending().await };
        let mut ticks = interval(export.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate, when nothing was counted.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.send_metrics(export, numbers).await;
        }
    }

    /// Sends the batch that is under way, or else the next one.
    async fn send_spans(&self, export: &SpanExport, way: &mut SpanWay) -> Sent {
        if way.batch.is_empty() {
            way.batch = export.queue.take();
        }
        if way.batch.is_empty() {
            return Sent::Nothing;
        }
        let body = spans::encode(&self.resource(), &way.batch);
        let many = way.batch.len() as u64;
        match way.collector.post(body).await {
            Outcome::Failed { asked } => {
                let wait = way.backoff.failed();
                return Sent::Again(asked.map_or(wait, |asked| asked.clamp(wait, LONGEST_ASKED)));
            }
            Outcome::Taken { rejected } => {
                export.taken.fetch_add(many.saturating_sub(rejected), Relaxed);
                export.refused.fetch_add(rejected.min(many), Relaxed);
            }
            Outcome::Refused => {
                export.refused.fetch_add(many, Relaxed);
            }
        }
        way.backoff.succeeded();
        way.batch.clear();
        Sent::Done
    }

    async fn send_metrics(&self, export: &MetricExport, numbers: &Metrics) {
        let mut collector = export.collector.lock().await;
        let times = page::Times { since: self.since.0, now: wall().0 };
        let body = page::encode(&self.resource(), &numbers.open_metrics(), times);
        if let Outcome::Taken { rejected } = collector.post(body).await {
            export.refused.fetch_add(rejected, Relaxed);
        }
    }

    /// What waits, once: all of it, or until something is not taken.
    async fn send_last(&self, numbers: &Metrics) {
        let spans = async {
            let Some(export) = &self.spans else { return };
            let mut way = export.way.lock().await;
            while matches!(self.send_spans(export, &mut way).await, Sent::Done) {}
            let lost = way.batch.len() + export.queue.counts().0;
            if lost > 0 {
                tracing::warn!(spans = lost, "the last spans are lost: the collector does not take them");
            }
        };
        let metrics = async {
            if let Some(export) = &self.metrics {
                self.send_metrics(export, numbers).await;
            }
        };
        if timeout(LAST, async { tokio::join!(spans, metrics) }).await.is_err() {
            tracing::warn!(waited = ?LAST, "the last spans and metrics are lost: the collector does not answer");
        }
    }

    fn resource(&self) -> Vec<(&str, &str)> {
        self.resource.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

/// Sends spans and metrics until the process ends.
#[derive(Clone, Debug)]
pub(super) struct Exporter {
    telemetry: Arc<Telemetry>,
    page: Arc<Metrics>,
    drain: Drain,
}

impl Exporter {
    /// Works until the drain has ended.
    pub(super) async fn run(self) {
        tokio::select! {
            () = self.drain.reached(Stage::Stopped) => {}
            () = self.telemetry.send_for_ever(&self.page) => {}
        }
    }

    /// Sends what waits, when the drain has ended.
    pub(super) async fn finish(&self) {
        self.telemetry.send_last(&self.page).await;
    }
}

/// What has become of what was to be sent.
pub(super) struct TelemetryMetrics(pub(super) Arc<Telemetry>);

impl Family for TelemetryMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Telemetry { spans, metrics, .. } = &*self.0;
        let help = "Requests to the OpenTelemetry collector: failed ones are sent again if they had spans, refused ones are dropped";
        families.counters("tidegate_telemetry_requests", help, |series| {
            let signals = [
                ("metrics", metrics.as_ref().map(|export| &export.tries)),
                ("traces", spans.as_ref().map(|export| &export.tries)),
            ];
            signals.into_iter().filter_map(|(signal, tries)| Some((signal, tries?))).try_for_each(
                |(signal, tries)| {
                    series(&[("result", "taken"), ("signal", signal)], tries.taken.load(Relaxed))?;
                    series(&[("result", "failed"), ("signal", signal)], tries.failed.load(Relaxed))?;
                    series(&[("result", "refused"), ("signal", signal)], tries.refused.load(Relaxed))
                },
            )
        })?;
        if let Some(export) = metrics {
            let help =
                "Points of metrics that the OpenTelemetry collector refused in requests that it accepted";
            let refused = export.refused.load(Relaxed);
            families.counter("tidegate_telemetry_points_refused", help, refused)?;
        }
        let Some(export) = spans else { return Ok(()) };
        let (waiting, dropped) = export.queue.counts();
        let help = "Spans of requests, by what became of them: dropped ones found too many waiting";
        families.counters("tidegate_telemetry_spans", help, |series| {
            series(&[("result", "taken")], export.taken.load(Relaxed))?;
            series(&[("result", "refused")], export.refused.load(Relaxed))?;
            series(&[("result", "dropped")], dropped)
        })?;
        let help = "Spans that wait to be sent, beside up to 512 under way";
        families.gauge("tidegate_telemetry_spans_waiting", help, waiting as u64)?;
        families.gauge(
            "tidegate_telemetry_spans_waiting_max",
            "Most spans that may wait to be sent",
            MAX_SPANS as u64,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::config::{Environment, Flags, load};

    fn settings(environment: &[(&str, &str)]) -> Settings {
        load(None, &environment.iter().copied().collect::<Environment>(), &Flags::default())
            .unwrap()
            .config
            .settings
    }

    #[test]
    fn without_an_endpoint_or_with_both_signals_off_there_is_nothing() {
        let endpoint = ("TIDEGATE_TELEMETRY_ENDPOINT", "http://127.0.0.1:1");
        let (no_traces, no_metrics) = (("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none"));
        for (environment, has_spans, has_metrics) in [
            (vec![], false, false),
            (vec![endpoint], true, true),
            (vec![endpoint, no_traces], false, true),
            (vec![endpoint, no_metrics], true, false),
            (vec![endpoint, no_metrics, no_traces], false, false),
            (
                vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"), ("OTEL_SDK_DISABLED", "true")],
                false,
                false,
            ),
        ] {
            let settings = settings(&environment);
            let queue = queue(&settings.telemetry);
            let made = Telemetry::new(&settings, queue.as_ref()).unwrap();
            let has = made.as_ref().map(|made| (made.spans.is_some(), made.metrics.is_some()));
            let expected = (has_spans || has_metrics).then_some((has_spans, has_metrics));
            assert_eq!((queue.is_some(), has), (has_spans, expected), "{environment:?}");
        }
    }

    #[tokio::test]
    async fn points_that_a_collector_refuses_of_what_it_takes_are_counted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1 << 16];
            assert_ne!(stream.read(&mut request).unwrap(), 0);
            // A partial success: three points are refused.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x03").unwrap();
            while stream.read(&mut request).is_ok_and(|read| read > 0) {}
        });
        let settings = settings(&[("TIDEGATE_TELEMETRY_ENDPOINT", &endpoint)]);
        let telemetry = Telemetry::new(&settings, None).unwrap().unwrap();
        let export = telemetry.metrics.as_ref().unwrap();
        telemetry.send_metrics(export, &Metrics::new()).await;
        assert_eq!((export.refused.load(Relaxed), export.tries.taken.load(Relaxed)), (3, 1));
    }
}
