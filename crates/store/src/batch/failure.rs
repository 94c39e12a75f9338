//! Failures of a shared store, and whether the charge was made all the same.

use crate::StoreError;

/// Why an operation has no answer. Cheap to copy to every operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing was charged: it never left this node.
    Unsent(String),
    /// Nothing was charged: this server is not, or not now, the one that decides.
    Elsewhere(String),
    /// Nothing was charged: the transaction was rolled back in favour of another.
    RolledBack,
    /// Nothing was charged: the script is not loaded.
    NoScript,
    /// Nothing was charged: the server refused.
    Refused(String),
    /// Nothing was charged: a state that one of the operations needs makes no sense to the server.
    Unreadable(String),
    /// Unknown: no answer in time.
    Timeout,
    /// Unknown: the connection was lost.
    Lost(String),
}

impl Failure {
    /// Whether the connection is of no more use.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Elsewhere(_) | Self::Timeout | Self::Lost(_))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(why) | Failure::Elsewhere(why) => Self::Unreachable(why),
            Failure::NoScript => Self::Refused("the script cannot be loaded".to_owned()),
            Failure::RolledBack => Self::Refused("rolled back in favour of others".to_owned()),
            Failure::Refused(why) => Self::Refused(why),
            Failure::Unreadable(why) => Self::Unreadable(why),
            Failure::Timeout => Self::Timeout,
            Failure::Lost(why) => Self::Lost(why),
        }
    }
}
