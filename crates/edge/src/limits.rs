//! What the edge tells a limiter of a connection, and what it says of a denial.

use std::net::IpAddr;

pub use tidegate_net::limits::{Denial, GrantedUnits, LimitPermit, Limits, LimitsAnswer, Ruling, Unlimited};

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

/// A limiter of connections, and of the bytes on them.
pub type ConnectionLimiter = dyn for<'c> Limits<LimitedConnection<'c>>;
