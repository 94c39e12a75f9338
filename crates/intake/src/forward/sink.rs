//! A sink: where a forward sends lines, and what became of them there.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tidegate_upstream::tls::TlsError;

use super::config::{Destination, ForwardConfig, KafkaTopic};
use super::http::HttpSink;
use crate::intake::Intake;
use crate::limits::Limits;

/// Makes the other side of forwards to Kafka.
pub trait Topics: std::fmt::Debug + Send + Sync {
    /// What sends lines of the log's partition of this number to a topic. Nothing is connected yet.
    fn sink(&self, forward: &str, topic: &KafkaTopic, partition: u16) -> Box<dyn TopicSink>;
}

/// A topic of Kafka, for one partition of the log.
pub trait TopicSink: Send {
    /// Sends lines. After a failure, those that were not taken come again, with the same ones behind them.
    fn send<'a>(&'a mut self, lines: &'a [&'a [u8]]) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>>;

    /// Gives up what it holds.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What became of lines that were sent.
#[derive(Debug)]
pub struct Sent {
    /// How many were taken, from the first on.
    pub(super) taken: usize,
    /// How many of these the other side says that it has left out.
    pub(super) left_out: u64,
    /// How many of these were not sent, since a later line of their series has their time.
    pub(super) superseded: u64,
    /// What it said to that.
    pub(super) said: String,
    /// Why the others were not taken; there are none if it is absent.
    pub(super) untaken: Option<Untaken>,
}

/// Why lines were not taken.
#[derive(Debug)]
pub(super) enum Untaken {
    /// Another try would be answered the same.
    Refused(String),
    /// They may be taken later.
    Failed {
        why: String,
        /// How long the other side wants to be left alone.
        retry_after: Option<Duration>,
    },
}

impl Sent {
    /// All lines were taken.
    #[must_use]
    pub fn all(lines: usize) -> Self {
        Self { taken: lines, left_out: 0, superseded: 0, said: String::new(), untaken: None }
    }

    /// The first ones were taken, and it may be that the others are later.
    #[must_use]
    pub fn failed(taken: usize, why: String) -> Self {
        let untaken = Some(Untaken::Failed { why, retry_after: None });
        Self { untaken, ..Self::all(taken) }
    }

    /// The first ones were taken, and the others are refused for good.
    #[must_use]
    pub fn refused(taken: usize, why: String) -> Self {
        Self { untaken: Some(Untaken::Refused(why)), ..Self::all(taken) }
    }
}

/// Why nothing can be sent until the configuration is another one.
#[derive(Debug, Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("this build has no Kafka")]
    NoKafka,
}

/// The other side of a forward, for one partition of the log.
pub(super) enum Sink<L> {
    Http(Box<HttpSink<L>>),
    Topic(Box<dyn TopicSink>),
}

impl<L: Limits> Sink<L> {
    /// The other side as it is configured. Nothing is connected yet.
    pub(super) fn new(
        intake: &Arc<Intake<L>>,
        config: &ForwardConfig,
        topics: Option<&dyn Topics>,
        partition: u16,
    ) -> Result<Self, SinkError> {
        match &config.to {
            Destination::Http(to) => Ok(Self::Http(Box::new(HttpSink::new(intake, config, to.clone())?))),
            Destination::Kafka(topic) => {
                let topics = topics.ok_or(SinkError::NoKafka)?;
                Ok(Self::Topic(topics.sink(&config.name, topic, partition)))
            }
        }
    }

    /// Sends lines. After a failure, those that were not taken come again, with the same ones behind them.
    pub(super) async fn send(&mut self, lines: &[&[u8]]) -> Sent {
        match self {
            Self::Http(sink) => sink.send(lines).await,
            Self::Topic(sink) => sink.send(lines).await,
        }
    }

    /// Gives up what it holds.
    pub(super) async fn close(self) {
        match self {
            Self::Http(_) => {}
            Self::Topic(sink) => sink.close().await,
        }
    }
}
