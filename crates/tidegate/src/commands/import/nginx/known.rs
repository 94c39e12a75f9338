//! Known directives: read by a part of this import, without effect on replies, or not understood.

use super::files::Node;

/// The block that a directive stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Main,
    Http,
    Server,
    Location,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Something here reads it.
    Read,
    /// It has no counterpart, and replies do not depend on it; why.
    Ignored(&'static str),
    Unknown,
}

/// Directives that hold in any of the three blocks, and are read where they are in force.
const INHERITED: [&str; 32] = [
    "proxy_set_header",
    "proxy_hide_header",
    "proxy_pass_header",
    "proxy_read_timeout",
    "proxy_connect_timeout",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "proxy_pass_request_body",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_name",
    "proxy_ssl_server_name",
    "proxy_ssl_verify",
    "proxy_http_version",
    "add_header",
    "client_max_body_size",
    "default_type",
    "gzip",
    "limit_req",
    "limit_req_status",
    "limit_req_dry_run",
    "limit_conn",
    "limit_conn_status",
    "limit_conn_dry_run",
    "auth_request",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_verify_client",
    "root",
    "index",
];

const OF_MAIN: [&str; 1] = ["http"];
const OF_HTTP: [&str; 5] = ["server", "upstream", "limit_req_zone", "limit_conn_zone", "map"];
const OF_SERVER: [&str; 6] = ["listen", "server_name", "location", "return", "http2", "auth_request_set"];
const OF_LOCATION: [&str; 4] = ["proxy_pass", "return", "internal", "auth_request_set"];

/// Names without effect on replies; one that ends with `*` stands for all that begin so.
const IGNORED: [(&str, &[&str]); 7] = [
    (
        "is about nginx's process: has no counterpart",
        &[
            "user",
            "worker_*",
            "pid",
            "daemon",
            "events",
            "load_module",
            "pcre_jit",
            "thread_pool",
            "env",
            "timer_resolution",
            "lock_file",
            "master_process",
            "server_tokens",
            "types",
            "types_hash_*",
            "variables_hash_*",
            "server_names_hash_*",
            "proxy_headers_hash_*",
            "map_hash_*",
            "http2_*",
        ],
    ),
    (
        "has no effect: connections have bounds of their own, [limits] and docs/gateway-reference.md",
        &[
            "sendfile",
            "sendfile_max_chunk",
            "tcp_nopush",
            "tcp_nodelay",
            "aio",
            "directio",
            "output_buffers",
            "keepalive_*",
            "send_timeout",
            "client_header_timeout",
            "client_body_timeout",
            "client_header_buffer_size",
            "large_client_header_buffers",
            "reset_timedout_connection",
            "lingering_*",
            "connection_pool_size",
            "request_pool_size",
            "postpone_output",
            "proxy_send_timeout",
            "proxy_socket_keepalive",
            "client_body_buffer_size",
        ],
    ),
    (
        "has no effect: bodies are passed on as they come",
        &[
            "proxy_buffering",
            "proxy_buffer_size",
            "proxy_buffers",
            "proxy_busy_buffers_size",
            "proxy_request_buffering",
            "proxy_max_temp_file_size",
            "proxy_temp_*",
            "client_body_temp_path",
            "client_body_in_*",
        ],
    ),
    (
        "has no effect: [access_log] says what is logged",
        &[
            "access_log",
            "error_log",
            "log_format",
            "log_not_found",
            "log_subrequest",
            "open_log_file_cache",
            "limit_req_log_level",
            "limit_conn_log_level",
        ],
    ),
    (
        "has no effect: TLS 1.2 and 1.3 are spoken, with the library's ciphers",
        &[
            "ssl_ciphers",
            "ssl_prefer_server_ciphers",
            "ssl_session_*",
            "ssl_dhparam",
            "ssl_ecdh_curve",
            "ssl_stapling*",
            "ssl_trusted_certificate",
            "ssl_buffer_size",
            "ssl_conf_command",
            "ssl_early_data",
            "ssl_verify_depth",
            "proxy_ssl_ciphers",
            "proxy_ssl_session_reuse",
            "proxy_ssl_verify_depth",
        ],
    ),
    ("has no effect: names are looked up by the system", &["resolver", "resolver_timeout", "zone"]),
    (
        "has no effect: compress decides by type and size, and nothing is cached",
        &["gzip_*", "proxy_cache", "proxy_cache_*", "proxy_no_cache", "proxy_store", "open_file_cache*"],
    ),
];

/// What becomes of `node`.
pub(super) fn fate(node: &Node, context: Context) -> Fate {
    let name = node.name.as_str();
    let own: &[&str] = match context {
        Context::Main => &OF_MAIN,
        Context::Http => &OF_HTTP,
        Context::Server => &OF_SERVER,
        Context::Location => &OF_LOCATION,
    };
    if name == "map" {
        return if is_upgrade_map(node) { Fate::Read } else { Fate::Unknown };
    }
    match (name, &node.words()[..]) {
        ("proxy_redirect", ["default"]) => return Fate::Ignored("has no effect: Location passes as it is"),
        ("proxy_redirect", ["off"]) | ("proxy_pass_request_headers", ["on"]) => return Fate::Read,
        ("proxy_redirect" | "proxy_pass_request_headers", _) => return Fate::Unknown,
        ("ssl_protocols" | "proxy_ssl_protocols", _)
            if context != Context::Main && is_tls_1_3_alone(node) =>
        {
            return Fate::Read;
        }
        ("ssl_protocols" | "proxy_ssl_protocols", _) => {
            return Fate::Ignored(
                "has no effect: TLS 1.2 and 1.3 are spoken where TLSv1.3 is not listed alone",
            );
        }
        ("error_page", words) if !words.iter().any(|word| word.starts_with(['=', '@'])) => {
            return Fate::Ignored(
                "has no effect: errors of the gateway are problem documents, or a fallback",
            );
        }
        ("error_page", _) => return Fate::Unknown,
        _ => {}
    }
    if own.contains(&name) || context != Context::Main && INHERITED.contains(&name) {
        return Fate::Read;
    }
    let fits = |known: &&str| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => *known == name,
    };
    let ignored = IGNORED.iter().find(|(_, names)| names.iter().any(fits));
    ignored.map_or(Fate::Unknown, |(why, _)| Fate::Ignored(why))
}

/// Whether a list of versions of TLS has the newest one alone. Other lists are left to the default.
pub(super) fn is_tls_1_3_alone(versions: &Node) -> bool {
    matches!(versions.words()[..], ["TLSv1.3"])
}

/// The map that everybody has for WebSocket, which passes without it here.
fn is_upgrade_map(node: &Node) -> bool {
    matches!(node.words()[..], ["$http_upgrade", "$connection_upgrade"])
}
