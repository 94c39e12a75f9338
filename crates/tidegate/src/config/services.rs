//! The services of this program: what each brings to the configuration, as one value on one line.
//!
//! ```text
//!                 ┌── tables ────▶ which keys of the file are known, and the JSON schema
//!   SERVICES ─────┼── check ─────▶ what the file declares, read into `Config`
//!   (values of    ├── listeners ─▶ whose address is whose, what TLS is read, what the doctor looks at
//!    modules)     └── warnings ──▶ what looks like a mistake
//! ```
//!
//! A service's value stands in its own module here (`gateway.rs`, `edge.rs`, ...), so that whoever adds one
//! writes that module and a line below. Still by name, elsewhere in this folder: the settings, the text of the reference
//! page, `Config::layers`, and which listeners must have a secret (`tokens.rs`).
//!
//! Settings are not in it: they are a group of the one table in `settings.rs`, from which flags and environment
//! variables are made.
//!
//! Rejected: a trait with a method for each of these. There is nothing to keep between the calls.

use super::service::ServiceConfig;
use super::{edge, gateway, intake_lists, policies, tokens};

/// The services of this program, in the order in which they are checked: the edge's listeners must not have the
/// addresses of the gateway's.
pub const SERVICES: &[ServiceConfig] =
    &[policies::SERVICE, intake_lists::SERVICE, tokens::SERVICE, gateway::SERVICE, edge::SERVICE];
