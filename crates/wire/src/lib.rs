//! Parsers and encoders: bytes in, values out, no input and output of its own.

pub mod bodies;
pub mod http1;
pub mod path;
pub mod problem;
pub mod rate_limit_fields;
pub mod resp;
pub mod rls;
pub mod trace_context;
