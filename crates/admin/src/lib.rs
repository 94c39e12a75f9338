//! The admin API, health, metrics and the pages an operator looks at.
//!
//! ```text
//!   api      ── /v1/policies, /v1/clients, /v1/audit, ... ── control::Configuration, traits of the binary
//!   console  ── /, /console.js, ... ── the files of console/dist
//!   Operator ── /livez, /readyz ── Readiness ── net::drain
//!           └── /metrics ── Metrics ── collectors: servers, process, configuration, lifecycle,
//!                                      and what the binary registers for the other services
//! ```
//!
//! The other services never see this crate: each offers numbers, and the binary registers a
//! collector that reads them when somebody scrapes. A request therefore costs what its own
//! counters cost.

pub mod api;
mod build;
mod certificates;
mod configuration;
pub mod console;
mod exposition;
mod families;
mod health;
mod lifecycle;
mod metrics;
mod process;
mod servers;

pub use build::BuildInfo;
pub use certificates::Certificates;
pub use configuration::ConfigurationStatus;
pub use families::{Buckets, Families, Labels};
pub use health::{Operator, Readiness, TEMPLATES};
pub use lifecycle::Lifecycle;
pub use metrics::{Family, MAX_SCRAPE_BYTES, Metrics};
pub use process::Process;
pub use servers::Servers;
