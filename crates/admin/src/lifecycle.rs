//! Where in its life the process is, as a metric.

use std::fmt;

use tidegate_net::drain::{Drain, Stage};

use crate::{Families, Family};

/// `tidegate_lifecycle_stage`: 1 for the present stage, 0 for the others.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    /// The process's lifecycle.
    pub drain: Drain,
}

impl Family for Lifecycle {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let present = self.drain.stage();
        let help = "1 for the stage the process is in";
        families.gauges("tidegate_lifecycle_stage", help, |series| {
            Stage::ALL
                .iter()
                .try_for_each(|stage| series(&[("stage", stage.name())], u64::from(*stage == present)))
        })
    }
}
