//! A sink: where a forward sends lines.

use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;
use tidegate_upstream::tls::TlsError;

use super::config::{Destination, ForwardConfig, KafkaTopic};
use super::http::HttpSink;
use super::sent::Sent;
use crate::intake::Intake;

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

/// Why nothing can be sent until the configuration is another one.
#[derive(Debug, Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("this build has no Kafka")]
    NoKafka,
}

/// The other side of a forward, for one partition of the log.
pub(super) enum Sink {
    Http(Box<HttpSink>),
    Topic(Box<dyn TopicSink>),
}

impl Sink {
    /// The other side as it is configured. Nothing is connected yet.
    pub(super) fn new(
        intake: &Arc<Intake>,
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
