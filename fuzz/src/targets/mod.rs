//! A file for each parser: it takes any bytes, and panics where the parser breaks its promise.

mod caddyfile;
mod client_hello;
#[cfg(feature = "whole")]
mod config_file;
mod dns_question;
mod dns_reply;
mod envoy_import;
mod forwarded;
mod http1_request;
mod http1_response;
mod http1_template;
#[cfg(feature = "whole")]
mod log_folder;
mod metric_requests;
mod nginx_conf;
mod policy;
mod proxy_protocol;
mod request_bodies;
mod resp_command;
mod rls_request;
mod settings_file;
mod snapshot;
mod step_plan;
mod trace_context;
mod x509_validity;

/// What takes any bytes, and panics where its parser breaks a promise.
pub type Run = fn(&[u8]);

/// Every target with its name, which is also its folder's in `seeds/`.
pub const TARGETS: &[(&str, Run)] = &[
    ("caddyfile", caddyfile::run),
    ("client_hello", client_hello::run),
    #[cfg(feature = "whole")]
    ("config_file", config_file::run),
    ("dns_question", dns_question::run),
    ("dns_reply", dns_reply::run),
    ("envoy_import", envoy_import::run),
    ("forwarded", forwarded::run),
    ("http1_request", http1_request::run),
    ("http1_response", http1_response::run),
    ("http1_template", http1_template::run),
    #[cfg(feature = "whole")]
    ("log_folder", log_folder::run),
    ("metric_requests", metric_requests::run),
    ("nginx_conf", nginx_conf::run),
    ("policy", policy::run),
    ("proxy_protocol", proxy_protocol::run),
    ("request_bodies", request_bodies::run),
    ("resp_command", resp_command::run),
    ("rls_request", rls_request::run),
    ("settings_file", settings_file::run),
    ("snapshot", snapshot::run),
    ("step_plan", step_plan::run),
    ("trace_context", trace_context::run),
    ("x509_validity", x509_validity::run),
];

/// The text at the beginning of the bytes.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).expect("valid so far"),
    }
}
