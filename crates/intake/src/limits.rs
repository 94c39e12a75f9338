//! The intake's view of a limiter: a trait that the binary implements.

use std::future::Future;
use std::net::IpAddr;

use http::HeaderMap;
use thiserror::Error;

/// What is known of a batch when its limits are asked for.
#[derive(Clone, Copy, Debug)]
pub struct LimitedBatch<'a> {
    /// Whose it is.
    pub client: &'a str,
    /// Where it came from.
    pub address: IpAddr,
    /// How many metrics it has.
    pub metrics: u64,
}

/// What the limits say of one batch.
#[derive(Clone, Debug, Default)]
pub struct Ruling {
    /// Set if the batch is denied.
    pub denial: Option<Denial>,
    /// Fields that tell the client where it stands, `Retry-After` among them if it is denied.
    pub fields: HeaderMap,
}

/// Why a batch does not pass.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// A limit is used up.
    #[error("Rate limit exceeded")]
    Quota,
    /// The batch can never pass: it costs more than a limit holds, or states what has no one reading.
    #[error("{0}")]
    Invalid(String),
    /// The limiter gave no answer.
    #[error("{0}")]
    NoAnswer(String),
}

/// A limiter.
pub trait Limits: Send + Sync + 'static {
    /// Charges a batch: under all limits, or under none.
    fn charge(&self, batch: &LimitedBatch<'_>) -> impl Future<Output = Ruling> + Send;

    /// Gives back what a batch was charged that could not be kept.
    fn refund(&self, batch: &LimitedBatch<'_>) -> impl Future<Output = ()> + Send;
}

/// No limits at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    async fn charge(&self, _batch: &LimitedBatch<'_>) -> Ruling {
        Ruling::default()
    }

    async fn refund(&self, _batch: &LimitedBatch<'_>) {}
}
