//! What a limiter says to a service that serves traffic: one set of words for the gateway, the edge and the intake.
//!
//! Each of them says in its own trait what it knows of its traffic, and the binary implements these traits by the engine of the
//! decision service. A denial is told by who was asked, which alone knows whether a request, a connection or a batch was denied.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;

/// What a limiter answers with.
pub type LimitsAnswer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why something does not pass the limits that are listed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A limit is used up.
    Quota {
        /// The policies that denied it.
        policies: Vec<String>,
    },
    /// None of the listed policies applies, and such traffic is denied.
    NoMatch,
    /// It can never pass: it costs more than a limit holds, or states what has no one reading.
    Invalid(String),
    /// A policy that is listed is not in force, so that its verdict is not known.
    NoPolicy {
        /// Its name.
        policy: String,
    },
    /// The limiter gave no answer.
    NoAnswer(String),
}

/// What one policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVerdict {
    /// Its name.
    pub policy: Arc<str>,
    /// Whether it has room.
    pub allowed: bool,
    /// Whether it is only counted, and never denies.
    pub is_shadow: bool,
    /// What is left of it.
    pub remaining: u64,
}

/// What the limits say of one request or batch.
#[derive(Debug, Default)]
pub struct Ruling {
    /// Set if it is denied.
    pub denial: Option<Denial>,
    /// Fields that tell the client where it stands, for the reply of either outcome: `Retry-After` among them if it is denied.
    pub fields: HeaderMap,
    /// What each policy says, if that was asked for.
    pub verdicts: Vec<PolicyVerdict>,
    /// What it holds until it has ended.
    pub held: Option<LimitPermit>,
}

/// A permit of a concurrency limit. It is given back by being dropped.
pub struct LimitPermit {
    _it: Box<dyn Any + Send + Sync>,
}

impl LimitPermit {
    /// Holds `it`.
    pub fn new(it: impl Any + Send + Sync) -> Self {
        Self { _it: Box::new(it) }
    }
}

impl fmt::Debug for LimitPermit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LimitPermit")
    }
}
