//! The gateway's last requests, as the admin API and the metrics page have them.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_admin::api::LastTraces;
use tidegate_admin::{Families, Family};
use tidegate_gateway::traces::{MAX_KEPT, Traces, WATCHED};

/// What the gateway keeps for who looks.
#[derive(Debug)]
pub(super) struct KeptTraces(pub(super) Arc<Traces>);

impl LastTraces for KeptTraces {
    fn last(&self) -> Value {
        json!({ "watched_seconds": WATCHED.as_secs(), "traces": self.0.look() })
    }

    fn find(&self, id: &str) -> Option<Value> {
        let trace = self.0.find(id)?;
        // A plain struct with string keys always serialises.
        let mut whole = serde_json::to_value(&*trace).unwrap_or_default();
        whole["steps"] = json!(trace.steps);
        Some(whole)
    }
}

impl Family for KeptTraces {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let (count, kept) = self.0.counts();
        let help = "Requests of the gateway that were kept for the list of the last requests";
        families.counter("tidegate_gateway_traces", help, count)?;
        let help = "Requests of the gateway that are in the list of the last requests now";
        families.gauge("tidegate_gateway_traces_kept", help, kept as u64)?;
        let help =
            "Most requests in the list of the last ones: half of them answered, half refused or failed";
        families.gauge("tidegate_gateway_traces_max", help, 2 * MAX_KEPT as u64)
    }
}
