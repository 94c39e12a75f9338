//! The settings of an intake, and the choices in them.

use std::time::Duration;

use http::HeaderName;
use tidegate_log::Durability;

use crate::partitioning::PartitionBy;

/// The settings of an intake.
#[derive(Clone, Debug)]
pub struct IntakeSettings {
    /// What a reply to a batch promises, unless the request says otherwise.
    pub acknowledge: Durability,
    /// Most metrics of a batch.
    pub batch_metrics: usize,
    /// Most bytes of a body, as it comes and as it is without its compression.
    pub body_bytes: usize,
    /// How long a batch that is sent again is known.
    pub repeat_window: Duration,
    /// The header field that names the client, where no token does.
    pub client_field: Option<HeaderName>,
    /// The property that lines of a partition share.
    pub partition_by: PartitionBy,
}
