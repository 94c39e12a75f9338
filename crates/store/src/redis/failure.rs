//! What an error from Redis says about the charge, and what may be done about it.
//!
//! | reply | was it charged? | what is done |
//! |---|---|---|
//! | `NOSCRIPT` | no | load the script, repeat once |
//! | `READONLY`, `MASTERDOWN`, `NOREPLICAS`, `LOADING`, `CLUSTERDOWN`, `MOVED`, `ASK`, `TRYAGAIN` | no | drop the connection, resolve again, repeat once |
//! | `OOM`, `MISCONF`, `BUSY`, any other reply | no: the script writes only at its end | an error, never a denial |
//! | connection lost, no answer in time | unknown | an error, never repeated |

use redis::RedisError;

use crate::StoreError;

/// Why an operation has no answer. Cheap to copy to every operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was charged: it never left this node.
    Unsent(String),
    /// Nothing was charged: this server is not, or not now, the one that decides.
    Elsewhere(String),
    /// Nothing was charged: the script is not loaded.
    NoScript,
    /// Nothing was charged: the server refused.
    Refused(String),
    /// Unknown: no answer in time.
    Timeout,
    /// Unknown: the connection was lost.
    Lost(String),
}

impl Failure {
    /// Classifies the error of a command that was sent.
    pub(super) fn of(error: &RedisError) -> Self {
        if error.is_timeout() {
            return Self::Timeout;
        }
        let Some(code) = error.code() else { return Self::Lost(error.to_string()) };
        match code {
            "NOSCRIPT" => Self::NoScript,
            "READONLY" | "MASTERDOWN" | "NOREPLICAS" | "LOADING" | "CLUSTERDOWN" | "MOVED" | "ASK"
            | "TRYAGAIN" => Self::Elsewhere(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }

    /// Whether the connection is of no more use.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::Elsewhere(_) | Self::Timeout | Self::Lost(_))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(why) | Failure::Elsewhere(why) => Self::Unreachable(why),
            Failure::NoScript => Self::Refused("the script cannot be loaded".to_owned()),
            Failure::Refused(why) => Self::Refused(why),
            Failure::Timeout => Self::Timeout,
            Failure::Lost(why) => Self::Lost(why),
        }
    }
}
