//! The decision service: which policies apply to a request, and what they say.
//!
//! ```text
//!   http | grpc | resp | routed protocols: bytes to Ask, Decision to bytes
//!          |
//!        engine --- policy_set  which policies apply, under which key and numbers
//!          |            ^
//!        store          `------ configuration: file and control store, assembled and swapped whole
//! ```

pub mod ad_hoc;
mod announce;
pub mod answers;
pub mod candidate;
pub mod connections;
pub mod decision;
pub mod denied;
pub mod documents;
pub mod engine;
pub mod error;
pub mod explain;
pub mod grpc;
pub mod http;
mod missing;
pub mod nearest;
pub mod no_match;
pub mod policy_set;
pub mod resp;
pub mod routed;
mod routed_permits;
pub mod simple;
pub mod sources;
pub mod tally;
