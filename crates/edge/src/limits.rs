//! The edge's view of a limiter: a trait that the binary implements.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::stats::Refusal;

/// What is known of a connection when its limits are asked for.
#[derive(Clone, Copy, Debug)]
pub struct LimitedConnection<'a> {
    /// The address of its listener.
    pub listener: &'a str,
    /// The app whose backends it is for.
    pub app: &'a str,
    /// Whose it is.
    pub client: IpAddr,
    /// The server name that it asks for, if that was read.
    pub server_name: Option<&'a str>,
    /// The client's country, if it is known.
    pub country: Option<&'a str>,
    /// The name of the client's region, if it is known.
    pub region: Option<&'a str>,
}

/// What a limiter answers with.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a connection holds until it ends: a permit of a concurrency limit. It is given back by being dropped.
pub struct ConnectionPermit {
    _it: Box<dyn Any + Send + Sync>,
}

impl ConnectionPermit {
    /// Holds `it`.
    pub fn new(it: impl Any + Send + Sync) -> Self {
        Self { _it: Box::new(it) }
    }
}

impl fmt::Debug for ConnectionPermit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ConnectionPermit")
    }
}

/// Why a connection does not pass its listener's limits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// Its limits are used up.
    #[error("the quota of a policy is used up: {}", policies.join(", "))]
    Quota {
        /// The policies that denied it.
        policies: Vec<String>,
    },
    /// None of the listed policies applies to it, and such connections are denied.
    #[error("none of the listener's policies applies to the connection, and on_no_match is \"deny\"")]
    NoMatch,
    /// A policy that its listener lists is not in force, so that its verdict is not known.
    #[error("policy {policy:?}, which the listener lists, is not in force")]
    NoPolicy {
        /// Its name.
        policy: String,
    },
    /// The limiter gave no answer.
    #[error("{0}")]
    NoAnswer(String),
}

impl Denial {
    /// What the connection is refused for.
    pub(crate) const fn refusal(&self) -> Refusal {
        match self {
            Self::Quota { .. } => Refusal::Quota,
            Self::NoMatch => Refusal::NoMatch,
            Self::NoPolicy { .. } => Refusal::NoPolicy,
            Self::NoAnswer(_) => Refusal::NoAnswer,
        }
    }
}

/// Units of bytes that a connection may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedUnits {
    /// How many; 0: none yet, ask again.
    pub units: u64,
    /// How long to wait before that.
    pub after: Duration,
}

/// A limiter.
pub trait Limits: fmt::Debug + Send + Sync + 'static {
    /// Charges a connection under the `policies` that its listener lists, and under no others. All are charged, or
    /// none.
    fn admit<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
    ) -> Asked<'a, Result<Option<ConnectionPermit>, Denial>>;

    /// Hears of a connection whose listener lists no policies, which is served without being charged.
    fn pass(&self) {}

    /// Charges up to `most` units of bytes.
    fn take_units<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
        most: u64,
    ) -> Asked<'a, GrantedUnits>;

    /// Gives units back that were charged and did not come.
    fn give_units_back<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
        units: u64,
    ) -> Asked<'a, ()>;
}

/// No limits at all: for an edge whose listeners list no policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    fn admit<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _connection: &'a LimitedConnection<'a>,
    ) -> Asked<'a, Result<Option<ConnectionPermit>, Denial>> {
        Box::pin(async { Ok(None) })
    }

    fn take_units<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _connection: &'a LimitedConnection<'a>,
        most: u64,
    ) -> Asked<'a, GrantedUnits> {
        Box::pin(async move { GrantedUnits { units: most, after: Duration::ZERO } })
    }

    fn give_units_back<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _connection: &'a LimitedConnection<'a>,
        _units: u64,
    ) -> Asked<'a, ()> {
        Box::pin(async {})
    }
}
