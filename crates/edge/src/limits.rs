//! The edge's view of a limiter: a trait that the binary implements.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use tidegate_net::limits::{Denial, LimitPermit, LimitsAnswer};

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

/// What a connection is refused for that its listener's limits deny.
pub(crate) const fn refused_for(denial: &Denial) -> Refusal {
    match denial {
        Denial::Quota { .. } => Refusal::Quota,
        Denial::NoMatch => Refusal::NoMatch,
        Denial::NoPolicy { .. } => Refusal::NoPolicy,
        Denial::Invalid(_) | Denial::NoAnswer(_) => Refusal::NoAnswer,
    }
}

/// What the log says of it.
pub(crate) fn denied(denial: &Denial) -> String {
    match denial {
        Denial::Quota { policies } => format!("the quota of a policy is used up: {}", policies.join(", ")),
        Denial::NoMatch => {
            "none of the listener's policies applies to the connection, and on_no_match is \"deny\""
                .to_owned()
        }
        Denial::NoPolicy { policy } => {
            format!("policy {policy:?}, which the listener lists, is not in force")
        }
        Denial::Invalid(why) | Denial::NoAnswer(why) => why.clone(),
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
    ) -> LimitsAnswer<'a, Result<Option<LimitPermit>, Denial>>;

    /// Hears of a connection whose listener lists no policies, which is served without being charged.
    fn pass(&self) {}

    /// Charges up to `most` units of bytes.
    fn take_units<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
        most: u64,
    ) -> LimitsAnswer<'a, GrantedUnits>;

    /// Gives units back that were charged and did not come.
    fn give_units_back<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        connection: &'a LimitedConnection<'a>,
        units: u64,
    ) -> LimitsAnswer<'a, ()>;
}

/// No limits at all: for an edge whose listeners list no policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    fn admit<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _connection: &'a LimitedConnection<'a>,
    ) -> LimitsAnswer<'a, Result<Option<LimitPermit>, Denial>> {
        Box::pin(async { Ok(None) })
    }

    fn take_units<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _connection: &'a LimitedConnection<'a>,
        most: u64,
    ) -> LimitsAnswer<'a, GrantedUnits> {
        Box::pin(async move { GrantedUnits { units: most, after: Duration::ZERO } })
    }

    fn give_units_back<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _connection: &'a LimitedConnection<'a>,
        _units: u64,
    ) -> LimitsAnswer<'a, ()> {
        Box::pin(async {})
    }
}
