//! An intake in this process, on a log in a scratch folder, and clients that speak HTTP or bytes.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

pub mod disk;
pub mod forwarding;
pub mod receiver;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_intake::EndpointUrl;
use tidegate_intake::access::{Access, Open};
use tidegate_intake::alerts::{AlertRule, alerts};
use tidegate_intake::counters::Counters;
use tidegate_intake::limits::{BatchLimiter, LimitedBatch, Limits, Unlimited};
use tidegate_intake::settings::IntakeSettings;
use tidegate_intake::{ClientSeries, Intake, IntakeService, MetricLines, PartitionBy, Parts, TEMPLATES};
use tidegate_log::{Clock, Durability, Files, Log, RealFiles};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::{Clock as ProcessClock, monotonic, wall};
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{Body, HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

/// Longer than anything here should take; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a test's intake is like.
pub struct Setup {
    pub settings: IntakeSettings,
    pub log: Box<dyn Fn(&mut tidegate_log::Settings)>,
    pub files: Arc<dyn Files>,
    pub access: Arc<dyn Access>,
    /// The policies that its limiter is asked about.
    pub policies: Arc<[Arc<str>]>,
    pub limits: Arc<BatchLimiter>,
    pub connections: usize,
    pub alerts: Vec<AlertRule>,
    pub webhook: Option<EndpointUrl>,
    pub series_per_client: u64,
}

impl Default for Setup {
    fn default() -> Self {
        let mut setup = Self::limited(Unlimited);
        setup.policies = Arc::default();
        setup
    }
}

impl Setup {
    pub fn limited(limits: impl for<'b> Limits<LimitedBatch<'b>>) -> Self {
        let settings = IntakeSettings {
            acknowledge: Durability::Fsync,
            batch_metrics: 1_000,
            body_bytes: 1 << 20,
            repeat_window: Duration::from_secs(600),
            client_field: None,
            partition_by: PartitionBy::Client,
        };
        Self {
            settings,
            log: Box::new(|_| {}),
            files: Arc::new(RealFiles),
            access: Arc::new(Open),
            policies: Arc::new([Arc::<str>::from("per-client")]),
            limits: Arc::new(limits),
            connections: 10_000,
            alerts: Vec::new(),
            webhook: None,
            series_per_client: 0,
        }
    }
}

/// A running intake.
pub struct TestIntake {
    pub address: SocketAddr,
    pub intake: Arc<Intake>,
    pub drain: Drain,
    pub folder: Arc<tempfile::TempDir>,
    cores: Option<Cores>,
}

pub fn start() -> TestIntake {
    TestIntake::start(Setup::default())
}

impl TestIntake {
    pub fn start(setup: Setup) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), setup)
    }

    pub fn start_in(folder: Arc<tempfile::TempDir>, setup: Setup) -> Self {
        let count = NonZeroUsize::new(2).unwrap();
        let cores = Cores::start(count).unwrap();
        let mut settings = tidegate_log::Settings::new(folder.path());
        (setup.log)(&mut settings);
        let clock = Clock { monotonic, wall_ms: || i64::try_from(wall().0 / 1_000_000).unwrap() };
        let (log, _recovery) = Log::open(settings, Arc::new(MetricLines), setup.files, clock).unwrap();
        let drain = Drain::new();
        let stats = Arc::new(Stats::new(2, TEMPLATES));
        let permits = Permits::new(setup.connections);
        let gate = Gate { permits, buffers: Buffers::new(256 << 20), drain: drain.clone(), stats };
        let (alerts, webhook) = alerts(setup.alerts, setup.webhook);
        let clock = ProcessClock::start();
        cores.spawn_on(0, webhook.run(clock, drain.clone(), 0));
        let intake = Arc::new(Intake::new(Parts {
            log: Arc::new(log),
            settings: setup.settings,
            access: setup.access,
            policies: setup.policies,
            limits: setup.limits,
            counters: Arc::new(Counters::default()),
            page: Box::new(|_| http::Response::new(Body::from("the page"))),
            drain: drain.clone(),
            clock,
            alerts: Some(alerts),
            series: Arc::new(ClientSeries::new(setup.series_per_client, clock)),
        }));
        let listeners = Listeners::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap(), count)).unwrap();
        let address = listeners.address();
        Server::new(IntakeService(Arc::clone(&intake)), HttpConfig::default(), gate).start(&cores, listeners);
        drain.advance(Stage::Ready);
        Self { address, intake, drain, folder, cores: Some(cores) }
    }

    /// The threads that it runs on.
    pub fn cores(&self) -> &Cores {
        self.cores.as_ref().unwrap()
    }

    /// Ends it as SIGTERM does.
    pub fn drain(&self) -> Drained {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let drained = runtime.block_on(self.drain.run(DrainTiming::default()));
        self.intake.log().close();
        drained
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a batch, and reads the reply.
    pub fn post(&self, path: &str, body: &[u8]) -> Answer {
        self.send(path, &[("content-type", "application/json")], body)
    }

    pub fn send(&self, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = agent().post(self.url(path));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Answer::of(request.send(body).unwrap())
    }

    pub fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut request = agent().get(self.url(path));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Answer::of(request.call().unwrap())
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes on a connection of their own, and reads to its end.
    pub fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut reply = Vec::new();
        // A reset ends it as well.
        drop(stream.read_to_end(&mut reply));
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// The lines that readers see, of all partitions.
    pub fn kept(&self) -> Vec<Value> {
        let log = self.intake.log();
        let mut lines = Vec::new();
        for partition in 0..log.partitions() {
            let mut at = log.offsets(partition).unwrap().start;
            loop {
                let read = log.read(partition, at, u64::MAX, usize::MAX).unwrap();
                if read.count == 0 {
                    break;
                }
                let texts = read.lines.split_inclusive(|byte| *byte == b'\n');
                lines.extend(texts.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
                at = read.next_offset;
            }
        }
        lines
    }

    /// The lines on the disk, of all partitions' open segments. A line that is being written is left out.
    pub fn lines(&self) -> Vec<Value> {
        let mut files = Vec::new();
        for partition in 0.. {
            let Ok(entries) = std::fs::read_dir(self.folder.path().join(partition.to_string())) else {
                break;
            };
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
        files.retain(|path: &PathBuf| path.extension().is_some_and(|ending| ending == "jsonl"));
        files.sort();
        files.iter().flat_map(|path| whole_lines(&std::fs::read(path).unwrap())).collect()
    }
}

/// The lines of a file that end in a line feed.
fn whole_lines(file: &[u8]) -> Vec<Value> {
    let end = file.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let texts = file[..end].split_inclusive(|byte| *byte == b'\n');
    texts.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

impl Drop for TestIntake {
    fn drop(&mut self) {
        self.drain.advance(Stage::Stopped);
        if let Some(cores) = self.cores.take() {
            cores.stop();
        }
        self.intake.log().close();
    }
}

/// A reply.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: http::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    fn of(mut reply: http::Response<ureq::Body>) -> Self {
        let body = reply.body_mut().read_to_vec().unwrap();
        Self { status: reply.status().as_u16(), fields: reply.headers().clone(), body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }
}

pub fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
    config.build().into()
}

/// Asks until what is asked for is there.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = monotonic();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}

/// A batch of so many metrics.
pub fn batch(count: usize) -> Vec<u8> {
    let metric = |number| serde_json::json!({"name": format!("metric.{number}"), "value": number});
    let metrics: Vec<Value> = (0..count).map(metric).collect();
    serde_json::json!({ "metrics": metrics }).to_string().into_bytes()
}
