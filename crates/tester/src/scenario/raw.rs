//! Scenario files as they are written: every key known, nothing checked.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) name: String,
    #[serde(default)]
    pub(super) about: String,
    #[serde(default)]
    pub(super) thresholds: Vec<String>,
    #[serde(default)]
    pub(super) connection: RawConnection,
    #[serde(default)]
    pub(super) request: Vec<RawRequest>,
    #[serde(default)]
    pub(super) good: Good,
    #[serde(default)]
    pub(super) denied: Denied,
    pub(super) data: Option<String>,
    #[serde(default)]
    pub(super) step: Vec<RawStep>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawConnection {
    pub(super) reuse: Option<RawReuse>,
    pub(super) connect_timeout_ms: Option<u64>,
    pub(super) request_timeout_ms: Option<u64>,
    pub(super) connect_rate: Option<f64>,
    #[serde(default)]
    pub(super) sources: Vec<String>,
    #[serde(default)]
    pub(super) http2: bool,
    pub(super) authorities: Option<std::path::PathBuf>,
    #[serde(default)]
    pub(super) any_certificate: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawReuse {
    KeepAlive,
    PerRequest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawRequest {
    pub(super) weight: Option<u32>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<String>,
    pub(super) body_hex: Option<String>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    pub(super) good: Option<Good>,
    pub(super) denied: Option<Denied>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Good {
    pub(super) status: Option<Vec<String>>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body_contains: Vec<String>,
    #[serde(default)]
    pub(super) body_lacks: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Denied {
    pub(super) status: Option<Vec<String>>,
    #[serde(default)]
    pub(super) body_contains: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawStep {
    pub(super) name: Option<String>,
    pub(super) connections: Levels,
    pub(super) requests: Option<u64>,
    pub(super) requests_per_connection: Option<u64>,
    pub(super) duration_s: f64,
    pub(super) warmup_s: Option<f64>,
    pub(super) think_ms: Option<f64>,
    pub(super) rate: Option<f64>,
    pub(super) ramp_to: Option<f64>,
    pub(super) spike_to: Option<f64>,
    pub(super) rates: Option<Vec<(f64, f64)>>,
    pub(super) arrivals: Option<RawArrivals>,
    #[serde(default)]
    pub(super) thresholds: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Levels {
    One(u64),
    Many(Vec<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawArrivals {
    Even,
    Poisson,
}
