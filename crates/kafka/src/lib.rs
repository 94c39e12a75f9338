//! Lines to a topic of Kafka: each once in a session of the producer, in order, and at least once over crashes.
//!
//! ```text
//!   a batch of lines ── librdkafka: idempotent, acks=all ──> partition p % n of the topic
//!        ^                  tries again for ever │
//!        │                                       ├─ all reports are good ── taken
//!        └── a new producer, from there on <─────┴─ the first bad one: nothing behind it is taken
//! ```
//!
//! Partition `p` of the log goes to partition `p % n` of the topic's `n`, so an order stays an order. A record's
//! value is the line without its line feed; it has no key, and the time at which it is sent.
//!
//! A batch that was handed over is not taken back while brokers are away: librdkafka tries again, and a record that it
//! gave up would leave a gap that later ones have passed already. What it does give up ends its session
//! (`enable.gapless.guarantee`), and the next producer begins with the first line that has no good report.
//!
//! | bound | value |
//! |---|---|
//! | records that librdkafka holds | one batch: 5,000 lines, 1 MiB unless a line is longer |
//! | a look at the topic's partitions | 5 s |
//! | until an outage is reported | 30 s; at once when no broker can be reached |
//! | between two tries to reach a broker | 0.1 to 1 s |
//!
//! TLS and SASL are not there: librdkafka takes them from OpenSSL, which the workspace does without.
//!
//! The intake knows this crate as a value of [`Topics`]. A binary without the feature `kafka` has none.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use tidegate_intake::forward::{KafkaTopic, Sent, TopicSink, Topics};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// Until an outage is reported of which librdkafka says nothing.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest look at the topic's partitions.
const LOOK: Duration = Duration::from_secs(5);

/// What librdkafka is told; the servers are added.
const SETTINGS: [(&str, &str); 8] = [
    ("client.id", "tidegate"),
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    // For ever: see the header.
    ("message.timeout.ms", "0"),
    ("compression.type", "lz4"),
    // A batch is handed over at once, so nothing more comes that is worth a wait.
    ("linger.ms", "1"),
    ("reconnect.backoff.max.ms", "1000"),
    ("queue.buffering.max.messages", "10000"),
];

/// Makes producers for the topics of forwards.
#[derive(Debug)]
pub struct KafkaTopics;

impl Topics for KafkaTopics {
    fn sink(&self, forward: &str, topic: &KafkaTopic, partition: u16) -> Box<dyn TopicSink> {
        Box::new(KafkaSink { forward: forward.to_owned(), topic: topic.clone(), partition, session: None })
    }
}

/// A topic, and the producer that is connected to it.
struct KafkaSink {
    forward: String,
    topic: KafkaTopic,
    /// Of the log.
    partition: u16,
    session: Option<ProducerSession>,
}

/// A producer, and what it has under way.
struct ProducerSession {
    producer: Arc<ThreadedProducer<Reports>>,
    trouble: Arc<Trouble>,
    /// Of the topic.
    partition: i32,
    under_way: Option<oneshot::Receiver<Reported>>,
}

/// What is known of a batch when all its reports have come: the first line that was not taken, and why.
type Reported = Option<(usize, KafkaError)>;

impl TopicSink for KafkaSink {
    fn send<'a>(&'a mut self, lines: &'a [&'a [u8]]) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(self.deliver(lines))
    }

    fn close(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.disconnect().await })
    }
}

impl KafkaSink {
    /// Sends lines. While they are under way a failure is only told, and the same lines come again.
    async fn deliver(&mut self, lines: &[&[u8]]) -> Sent {
        if self.session.is_none() {
            match self.connect().await {
                Ok(session) => self.session = Some(session),
                Err(why) => return Sent::failed(0, why),
            }
        }
        let Some(session) = &mut self.session else { return Sent::failed(0, "no session".to_owned()) };
        let under_way = session.under_way.get_or_insert_with(|| {
            session.trouble.forget();
            produce(&session.producer, &self.topic.name, session.partition, lines)
        });
        let reported = tokio::select! {
            reported = under_way => reported,
            why = session.trouble.told() => return Sent::failed(0, why),
            () = sleep(DEADLINE) => {
                return Sent::failed(0, format!("it did not answer within {} s", DEADLINE.as_secs()));
            }
        };
        session.under_way = None;
        let (taken, error) = match reported {
            Ok(None) => return Sent::all(lines.len()),
            Ok(Some(failed)) => failed,
            Err(_) => (0, KafkaError::Canceled),
        };
        // What was behind the first failure may be in any state: only a new producer knows where it begins.
        self.disconnect().await;
        let why = error.to_string();
        if is_for_good(&error) { Sent::refused(taken, why) } else { Sent::failed(taken, why) }
    }

    async fn connect(&self) -> Result<ProducerSession, String> {
        let trouble = Arc::<Trouble>::default();
        let reports = Reports { forward: self.forward.clone(), trouble: Arc::clone(&trouble) };
        let (topic, own) = (self.topic.clone(), self.partition);
        let connected = on_a_thread(move || connect(&topic, own, reports)).await;
        let (producer, partition) = connected.map_err(|error| error.to_string())?;
        Ok(ProducerSession { producer: Arc::new(producer), trouble, partition, under_way: None })
    }

    /// Ends the session. What is under way is given up, which takes up to half a second.
    async fn disconnect(&mut self) {
        let session = self.session.take();
        // An error says that the process ends.
        drop(tokio::task::spawn_blocking(move || drop(session)).await);
    }
}

/// Runs what waits for brokers where it holds nobody up.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, KafkaError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(KafkaError::Canceled))
}

/// A producer, and the partition of the topic that takes those of the log's partition `own`.
fn connect(
    topic: &KafkaTopic,
    own: u16,
    reports: Reports,
) -> Result<(ThreadedProducer<Reports>, i32), KafkaError> {
    let mut config = ClientConfig::new();
    for (name, value) in SETTINGS {
        config.set(name, value);
    }
    config.set("bootstrap.servers", topic.servers.join(","));
    let producer = ThreadedProducer::from_config_and_context(&config, reports)?;
    let metadata = producer.client().fetch_metadata(Some(&topic.name), LOOK)?;
    let found = metadata.topics().first();
    if let Some(error) = found.and_then(|topic| topic.error()) {
        return Err(KafkaError::MetadataFetch(error.into()));
    }
    let count = found.map_or(0, |topic| topic.partitions().len());
    if count == 0 {
        return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition));
    }
    // Invariant: the rest is below 65,536.
    Ok((producer, i32::try_from(usize::from(own) % count).unwrap_or_default()))
}

/// Hands lines over, in order, until one is not taken.
fn produce(
    producer: &ThreadedProducer<Reports>,
    topic: &str,
    partition: i32,
    lines: &[&[u8]],
) -> oneshot::Receiver<Reported> {
    let (batch, reported) = KafkaBatch::begin();
    for (number, line) in lines.iter().enumerate() {
        let value = line.strip_suffix(b"\n").unwrap_or(line);
        let place = Box::new(LineInFlight { batch: Arc::clone(&batch), number });
        let record: BaseRecord<'_, (), [u8], _> = BaseRecord::with_opaque_to(topic, place);
        batch.expect_one_more();
        if let Err((error, _)) = producer.send(record.partition(partition).payload(value)) {
            batch.report(number, Some(error));
            break;
        }
    }
    batch.report(lines.len(), None);
    reported
}

/// A batch under way.
#[derive(Debug)]
struct KafkaBatch(Mutex<AwaitedReports>);

#[derive(Debug)]
struct AwaitedReports {
    /// Reports that are to come, with the one that all lines were handed over.
    reports: usize,
    failed: Reported,
    done: Option<oneshot::Sender<Reported>>,
}

impl KafkaBatch {
    fn begin() -> (Arc<Self>, oneshot::Receiver<Reported>) {
        let (done, reported) = oneshot::channel();
        (Arc::new(Self(Mutex::new(AwaitedReports { reports: 1, failed: None, done: Some(done) }))), reported)
    }

    fn expect_one_more(&self) {
        self.0.lock().reports += 1;
    }

    /// What became of one line.
    fn report(&self, number: usize, error: Option<KafkaError>) {
        let mut waiting = self.0.lock();
        waiting.reports -= 1;
        if let Some(error) = error
            && waiting.failed.as_ref().is_none_or(|(first, _)| number < *first)
        {
            waiting.failed = Some((number, error));
        }
        if waiting.reports == 0
            && let Some(done) = waiting.done.take()
        {
            // The receiver is gone if the process ends.
            drop(done.send(waiting.failed.take()));
        }
    }
}

/// A line of a batch, while librdkafka has it.
#[derive(Debug)]
struct LineInFlight {
    batch: Arc<KafkaBatch>,
    number: usize,
}

/// What librdkafka says that concerns no line by itself.
#[derive(Debug, Default)]
struct Trouble {
    last: Mutex<Option<String>>,
    changed: Notify,
}

impl Trouble {
    fn tell(&self, why: String) {
        *self.last.lock() = Some(why);
        self.changed.notify_one();
    }

    /// What was told before concerns nobody any more.
    fn forget(&self) {
        *self.last.lock() = None;
    }

    /// The next thing that is told.
    async fn told(&self) -> String {
        loop {
            self.changed.notified().await;
            if let Some(why) = self.last.lock().take() {
                return why;
            }
        }
    }
}

/// Where librdkafka's reports go.
struct Reports {
    forward: String,
    trouble: Arc<Trouble>,
}

impl ClientContext for Reports {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(forward = self.forward, facility, message, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(forward = self.forward, %error, reason, "librdkafka");
        // It goes on after others, and tells of a batch itself.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.trouble.tell(reason.to_owned());
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<LineInFlight>;

    fn delivery(&self, result: &DeliveryResult<'_>, place: Box<LineInFlight>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        place.batch.report(place.number, error);
    }
}

/// Whether the same lines would be refused again.
fn is_for_good(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidRecord)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_reported_once_with_its_first_failure() {
        let error = || Some(KafkaError::MessageProduction(RDKafkaErrorCode::Fatal));
        let (batch, mut reported) = KafkaBatch::begin();
        for _ in 0..4 {
            batch.expect_one_more();
        }
        batch.report(3, error());
        batch.report(0, None);
        batch.report(4, None);
        batch.report(1, error());
        assert!(reported.try_recv().is_err(), "the report of line 2 is to come");
        batch.report(2, error());
        assert_eq!(reported.try_recv().unwrap().map(|(number, _)| number), Some(1));
    }

    #[test]
    fn a_batch_without_failures_is_taken() {
        let (batch, mut reported) = KafkaBatch::begin();
        batch.expect_one_more();
        batch.report(0, None);
        batch.report(1, None);
        assert_eq!(reported.try_recv().unwrap(), None);
    }
}
