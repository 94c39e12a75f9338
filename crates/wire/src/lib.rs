//! Parsers and encoders: bytes in, values out, no input and output of its own.

pub mod bodies;
pub mod caddyfile;
pub mod client_hello;
pub mod dns;
pub mod envoy_limits;
pub mod forwarded;
pub mod grpc;
pub mod http1;
pub mod metrics;
pub mod nginx_conf;
mod object;
pub mod otlp;
pub mod path;
pub mod problem;
mod protobuf;
pub mod proxy_protocol;
pub mod rate_limit_fields;
pub mod resp;
pub mod rls;
pub mod tls_version;
pub mod trace_context;
pub mod x509;
pub mod yaml;
