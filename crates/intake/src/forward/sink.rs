//! What a forward sends lines to, and what became of them.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tidegate_upstream::tls::TlsError;

use super::config::{Destination, ForwardConfig};
use super::http::HttpSink;
#[cfg(feature = "kafka")]
use super::kafka::KafkaSink;
use crate::intake::Intake;
use crate::limits::Limits;

/// What became of lines that were sent.
pub(super) struct Sent {
    /// How many were taken, from the first on.
    pub(super) taken: usize,
    /// How many of these the other side says that it has left out.
    pub(super) left_out: u64,
    /// What it said to that.
    pub(super) said: String,
    /// Why the others were not taken; there are none if it is absent.
    pub(super) untaken: Option<Untaken>,
}

/// Why lines were not taken.
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
    pub(super) fn all(lines: usize) -> Self {
        Self { taken: lines, left_out: 0, said: String::new(), untaken: None }
    }

    /// The first ones were taken, and it may be that the others are later.
    #[cfg(feature = "kafka")]
    pub(super) fn failed(taken: usize, why: String) -> Self {
        let untaken = Some(Untaken::Failed { why, retry_after: None });
        Self { taken, left_out: 0, said: String::new(), untaken }
    }

    /// The first ones were taken, and the others are refused for good.
    pub(super) fn refused(taken: usize, why: String) -> Self {
        Self { taken, left_out: 0, said: String::new(), untaken: Some(Untaken::Refused(why)) }
    }
}

/// Why nothing can be sent until the configuration is another one.
#[derive(Debug, Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[cfg(not(feature = "kafka"))]
    #[error("this build has no Kafka")]
    NoKafka,
}

/// The other side of a forward, for one partition of the log.
pub(super) enum Sink<L> {
    Http(Box<HttpSink<L>>),
    #[cfg(feature = "kafka")]
    Kafka(KafkaSink),
}

impl<L: Limits> Sink<L> {
    /// The other side as it is configured. Nothing is connected yet.
    #[cfg_attr(not(feature = "kafka"), expect(unused_variables, reason = "HTTP knows no partitions"))]
    pub(super) fn new(
        intake: &Arc<Intake<L>>,
        config: &ForwardConfig,
        partition: u16,
    ) -> Result<Self, SinkError> {
        match &config.to {
            Destination::Http(to) => Ok(Self::Http(Box::new(HttpSink::new(intake, config, to.clone())?))),
            #[cfg(feature = "kafka")]
            Destination::Kafka(topic) => {
                Ok(Self::Kafka(KafkaSink::new(&config.name, topic.clone(), partition)))
            }
            #[cfg(not(feature = "kafka"))]
            Destination::Kafka(_) => Err(SinkError::NoKafka),
        }
    }

    /// Sends lines. After a failure, those that were not taken come again, with the same ones behind them.
    pub(super) async fn send(&mut self, lines: &[&[u8]]) -> Sent {
        match self {
            Self::Http(sink) => sink.send(lines).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(sink) => sink.send(lines).await,
        }
    }

    /// Gives up what it holds.
    pub(super) async fn close(self) {
        match self {
            Self::Http(_) => {}
            #[cfg(feature = "kafka")]
            Self::Kafka(sink) => sink.close().await,
        }
    }
}
