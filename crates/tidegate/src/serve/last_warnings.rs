//! The last warnings and errors, as the admin API and the metrics page have them.

use std::fmt;

use serde_json::{Value, json};
use tidegate_admin::api::LastWarnings;
use tidegate_admin::{Families, Family};

use crate::warnings::WARNINGS;

/// Those of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfThisProcess;

impl LastWarnings for OfThisProcess {
    fn last(&self) -> Value {
        let (errors, warnings) = WARNINGS.counts();
        json!({ "errors": errors, "warnings": warnings, "last": WARNINGS.last() })
    }
}

impl Family for OfThisProcess {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let (errors, warnings) = WARNINGS.counts();
        let help =
            "Warnings and errors of the log since the process began; GET /v1/warnings has the last 1000";
        families.counters("tidegate_warnings", help, |series| {
            series(&[("level", "error")], errors)?;
            series(&[("level", "warn")], warnings)
        })
    }
}
