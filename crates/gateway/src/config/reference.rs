//! The keys of `[[upstream]]` and `[[route]]`, described for the reference page and the JSON schema.
//!
//! A test reads a document with each key at the ends of its range and beyond, so that this table and what is
//! accepted cannot differ.
//!
//! Over 400 lines because it is one table, read from top to bottom.

use serde_json::{Map, Value, json};

use super::split::PERCENT;

/// One key of a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentKey {
    /// Its place in the document: `breaker.open_seconds`.
    pub path: &'static str,
    /// What it may be.
    pub shape: Shape,
    /// What holds without it; empty: nothing.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A name, as policies have them.
    Name,
    /// A text of so many bytes.
    Text(usize, usize),
    /// A whole number in a range.
    Number(u64, u64),
    /// Percent, one decimal allowed.
    Percent,
    /// Seconds in a range, fractions allowed.
    Seconds(f64, f64),
    /// True or false.
    Flag,
    /// One of some words.
    Word(&'static [&'static str]),
    /// A text, or a list of so many.
    OneOrMore(usize),
    /// A list of so many texts.
    Texts(usize),
    /// A list of so many servers: URLs, or tables of the keys under `servers`.
    Servers(usize),
    /// A list of 2 to so many upstreams with their percentages, which are 100 together.
    Shares(usize),
    /// A table of so many names and texts.
    Pairs(usize),
    /// A table of the keys that follow.
    Table,
}

const fn key(path: &'static str, shape: Shape, default: &'static str, doc: &'static str) -> DocumentKey {
    DocumentKey { path, shape, default, doc }
}

const DAY: f64 = 86_400.0;

const AUTHS: &[&str] = &["key", "jwt", "forward", "certificate"];
const ON_ERRORS: &[&str] = &["deny", "allow"];
const ENCODED_SLASHES: &[&str] = &["same_route", "keep", "refuse"];
const PROTOCOLS: &[&str] = &["http1", "http2", "auto"];
const TLS_VERSIONS: &[&str] = &["1.2", "1.3"];
const PRIORITIES: &[&str] = &["low", "normal", "critical"];
const MODES: &[&str] = &["enforce", "shadow"];
const BALANCES: &[&str] = &["round_robin", "least_requests", "peak_ewma", "ring_hash"];

/// The keys of an upstream.
pub const UPSTREAM_KEYS: &[DocumentKey] = &[
    key("name", Shape::Name, "", "Its name, for routes and metrics."),
    key(
        "servers",
        Shape::Servers(1_000),
        "none",
        "The servers, which do the same work: `http://host:port`. At least one, unless there is `app`.",
    ),
    key(
        "app",
        Shape::Text(1, 64),
        "none",
        "The app of the registration API whose registered backends are servers, too.",
    ),
    key("servers.url", Shape::Text(1, 8_192), "", "The URL of a server."),
    key(
        "servers.weight",
        Shape::Number(0, 1_000),
        "1",
        "Its share of the requests among the servers; 0: it gets none.",
    ),
    key(
        "servers.max_requests",
        Shape::Number(1, 1_000_000),
        "the upstream's",
        "Most requests at this server at once.",
    ),
    key("protocol", Shape::Word(PROTOCOLS), "http1", "The protocol to the servers."),
    key("tls", Shape::Table, "none", "How servers with `https://` prove who they are."),
    key(
        "tls.ca",
        Shape::Text(1, 64 << 10),
        "the system's",
        "The authorities that sign the servers' certificates, in PEM.",
    ),
    key(
        "tls.ca_file",
        Shape::Text(1, 4_096),
        "the system's",
        "PEM file with the authorities, in place of `ca`; not through the admin API.",
    ),
    key(
        "tls.server_name",
        Shape::Text(1, 253),
        "the server's host",
        "The name that their certificates must have.",
    ),
    key(
        "tls.certificate_file",
        Shape::Text(1, 4_096),
        "none",
        "PEM file with the certificate that servers are shown if they demand one, and those that lead to its authority; not through the admin API.",
    ),
    key("tls.key_file", Shape::Text(1, 4_096), "none", "PEM file with its private key."),
    key(
        "tls.min_version",
        Shape::Word(TLS_VERSIONS),
        "1.2",
        "The oldest version of TLS that is spoken with servers.",
    ),
    key("balance", Shape::Word(BALANCES), "least_requests", "How the next server is chosen."),
    key(
        "hash_by",
        Shape::Text(1, 256),
        "address",
        "The value that `ring_hash` hashes: `address`, or `header:NAME`; a request without the field gets any server.",
    ),
    key(
        "slow_start_seconds",
        Shape::Seconds(0.0, DAY),
        "0",
        "How long a server that came up, is back from an ejection, or came when others served, gets less than its share.",
    ),
    key(
        "eject_after",
        Shape::Number(0, 1_000_000),
        "5",
        "Failed requests in a row that take a server out; 0: servers are never taken out. If all are out, all are asked.",
    ),
    key(
        "eject_seconds",
        Shape::Seconds(0.001, DAY),
        "10",
        "How long a server is out; longer each time. Then one more failure is enough until a request succeeds.",
    ),
    key("check", Shape::Table, "none", "How servers are checked in the background."),
    key(
        "check.path",
        Shape::Text(1, 1_024),
        "none",
        "The path that a check asks for; without it, a connection is enough.",
    ),
    key(
        "check.grpc",
        Shape::Text(0, 127),
        "none",
        "The service that is asked for by gRPC's health protocol, in place of `path`; empty: the server.",
    ),
    key(
        "check.host",
        Shape::Text(1, 255),
        "the server's",
        "The host that a check by `path` or `grpc` names, with or without a port, for servers that go by it. TLS asks for `tls.server_name` instead.",
    ),
    key(
        "check.fields",
        Shape::Pairs(20),
        "none",
        "Further header fields of a check by `path` or `grpc`, in place of its own. Everybody who may read the configuration can read them.",
    ),
    key(
        "check.interval_seconds",
        Shape::Seconds(0.01, DAY),
        "10",
        "Time between two checks of a server, a fifth more or less.",
    ),
    key("check.timeout_seconds", Shape::Seconds(0.001, DAY), "5", "Longest that a check may take."),
    key("check.rise", Shape::Number(1, 1_000), "2", "Checks in a row that must pass before a server is up."),
    key(
        "check.fall",
        Shape::Number(1, 1_000),
        "3",
        "Checks in a row that must fail before a server is down.",
    ),
    key("check.status", Shape::Number(100, 599), "200 to 299", "The status with which a check passes."),
    key("breaker", Shape::Table, "on", "When the upstream is no longer asked."),
    key(
        "adaptive_concurrency",
        Shape::Table,
        "none",
        "A limit of requests that wait for the servers, found by how long they take: see [the gateway](gateway-requests.md#when-there-is-too-much).",
    ),
    key("adaptive_concurrency.enabled", Shape::Flag, "true", "Whether the upstream has such a limit."),
    key(
        "adaptive_concurrency.mode",
        Shape::Word(MODES),
        "enforce",
        "`shadow`: what it has no room for is counted, and not refused.",
    ),
    key("adaptive_concurrency.min", Shape::Number(1, 1_000_000), "3", "The least that the limit may be."),
    key("adaptive_concurrency.max", Shape::Number(1, 1_000_000), "1000", "The most that the limit may be."),
    key("retries", Shape::Table, "on", "How often a request is tried at servers."),
    key(
        "retries.attempts",
        Shape::Number(1, 10),
        "3",
        "Most attempts for a request, the first one included.",
    ),
    key("retries.percent", Shape::Number(0, 100), "10", "Further attempts, as a share of the requests."),
    key(
        "retries.least_per_second",
        Shape::Number(0, 1_000_000),
        "10",
        "Further attempts a second that are always allowed.",
    ),
    key("connect_timeout_seconds", Shape::Seconds(0.001, DAY), "1", "Longest wait for a connection."),
    key(
        "sources",
        Shape::Texts(64),
        "any",
        "Addresses of this machine that connections begin at, each in turn; if one has no port left, the next one.",
    ),
    key(
        "idle_connections",
        Shape::Number(0, 1_000_000),
        "1024",
        "Most idle connections to each server that a core keeps.",
    ),
    key("idle_timeout_seconds", Shape::Seconds(0.001, DAY), "30", "How long an idle connection is kept."),
    key("max_requests", Shape::Number(1, 1_000_000), "10000", "Most requests at each server at once."),
];

/// The keys of a breaker, an upstream's or a route's.
const BREAKER_KEYS: &[DocumentKey] = &[
    key("breaker.enabled", Shape::Flag, "true", "Whether there is a breaker."),
    key(
        "breaker.calls",
        Shape::Number(1, 10_000),
        "100",
        "The number of last calls that the breaker judges.",
    ),
    key(
        "breaker.seconds",
        Shape::Seconds(0.001, DAY),
        "none",
        "The breaker judges the calls of this time, in place of `calls`.",
    ),
    key(
        "breaker.minimum_calls",
        Shape::Number(1, 10_000),
        "20",
        "The breaker stays closed until it has seen this many calls.",
    ),
    key(
        "breaker.failure_percent",
        Shape::Number(1, 100),
        "50",
        "The share of failed calls that opens the breaker.",
    ),
    key(
        "breaker.slow_percent",
        Shape::Number(1, 100),
        "50",
        "The share of slow calls that opens the breaker.",
    ),
    key(
        "breaker.slow_seconds",
        Shape::Seconds(0.001, DAY),
        "3",
        "A call that takes longer is slow; the time in which the client sends its body does not count.",
    ),
    key(
        "breaker.first_open_seconds",
        Shape::Seconds(0.001, DAY),
        "1",
        "How long a breaker that opens lets no call through; twice as long after each round of trials that fails. At most `open_seconds`.",
    ),
    key(
        "breaker.open_seconds",
        Shape::Seconds(0.001, DAY),
        "60",
        "The longest that an open breaker lets no call through.",
    ),
    key(
        "breaker.trials",
        Shape::Number(1, 1_000),
        "10",
        "Calls that are let through after that; by them the breaker closes or opens again.",
    ),
];

/// The keys of a route.
pub const ROUTE_KEYS: &[DocumentKey] = &[
    key("name", Shape::Name, "", "Its name, for metrics, the log and limits."),
    key(
        "host",
        Shape::OneOrMore(100),
        "all",
        "Hosts that the route is for, without a port; `*.example.com`: all names below one.",
    ),
    key(
        "path",
        Shape::Text(1, 8_192),
        "all",
        "Paths that the route is for: `/a`; `/a/*` with all below it; `/a/{id}` with any one part.",
    ),
    key(
        "method",
        Shape::OneOrMore(20),
        "all",
        "Methods that the route is for; not CONNECT or TRACE, which are answered 501.",
    ),
    key("header", Shape::Pairs(100), "none", "Header fields that a request must have, with these values."),
    key("cookie", Shape::Pairs(20), "none", "Cookies that a request must have, with these values."),
    key("query", Shape::Pairs(20), "none", "Parameters that the query must have, with these values."),
    key(
        "upstream",
        Shape::Text(1, 64),
        "",
        "The upstream that requests go to. A route needs this, `split`, `redirect` or `respond`.",
    ),
    key("split", Shape::Shares(20), "", "Upstreams that share the requests, in place of one upstream."),
    key("split.upstream", Shape::Text(1, 64), "", "An upstream of the split, each once."),
    key(
        "split.percent",
        Shape::Percent,
        "",
        "How many of a hundred clients it gets; `0.5`: one of two hundred. Each stays at its upstream.",
    ),
    key(
        "split_by",
        Shape::Text(1, 256),
        "client",
        "What stays at its upstream of the split: `client`, `header:NAME` or `cookie:NAME`, as `canary.sticky_by`.",
    ),
    key("redirect", Shape::Table, "", "A redirect, in place of an upstream."),
    key("redirect.status", Shape::Number(301, 308), "302", "The status: 301, 302, 303, 307 or 308."),
    key(
        "redirect.location",
        Shape::Text(1, 8_192),
        "",
        "The URL or path. `{host}` after `https://` is the request's host, `{uri}` at the end its path and query as they came: `https://{host}{uri}`.",
    ),
    key("respond", Shape::Table, "", "A fixed reply, in place of an upstream."),
    key("respond.status", Shape::Number(200, 599), "200", "The status of the reply."),
    key("respond.body", Shape::Text(0, 1 << 20), "empty", "The body of the reply."),
    key(
        "respond.content_type",
        Shape::Text(1, 256),
        "text/plain; charset=utf-8",
        "The media type of the body.",
    ),
    key(
        "auth",
        Shape::Word(AUTHS),
        "none",
        "The proof that a request needs: `key`, an API key; `jwt`, a token of an issuer; `forward`, the word of another service; `certificate`, a client certificate. A request without it is answered 401, and charged nothing.",
    ),
    key(
        "auth_any",
        Shape::Texts(4),
        "none",
        "In the place of `auth`: two or more of these, one of which a request needs. The first for which it states something decides alone; `forward` is the last.",
    ),
    key(
        "auth_all",
        Shape::Texts(4),
        "none",
        "In the place of `auth`: two or more of these, all of which a request needs, proved in this order; `forward` is the last.",
    ),
    key(
        "key_in",
        Shape::Texts(8),
        "[\"header:x-api-key\", \"bearer\"]",
        "Where a request has its key: `header:NAME`, `query:NAME`, `bearer` or `basic`. The first place that has something counts; the key goes no further.",
    ),
    key(
        "key_scope",
        Shape::Text(1, 64),
        "none",
        "The scope that a key must have been given. One without it is answered 403, as is one that names other routes only.",
    ),
    key("jwt", Shape::Table, "", "The JSON Web Tokens that `auth = \"jwt\"` asks for."),
    key("jwt.issuer", Shape::Text(1, 1_024), "", "The issuer (`iss`) of the tokens."),
    key(
        "jwt.audience",
        Shape::Texts(20),
        "none",
        "The audiences that are accepted: the `aud` of a token must have one of them. Without any, a token for some audience is refused.",
    ),
    key(
        "jwt.token_in",
        Shape::Texts(8),
        "[\"bearer\"]",
        "Where a request has its token: `bearer`, `cookie:NAME`, `query:NAME`, or `protocol:NAME`, the subprotocol that a client of WebSocket offers after NAME. The first place that has something counts; the token goes no further, unless `jwt.forward` says so.",
    ),
    key(
        "jwt.keys_url",
        Shape::Text(1, 8_192),
        "",
        "The URL at which the issuer publishes its keys (JWKS). A route with `jwt` needs this or `keys_file`.",
    ),
    key(
        "jwt.keys_file",
        Shape::Text(1, 4_096),
        "",
        "File with the issuer's keys (JWKS), which may have secrets; not through the admin API.",
    ),
    key("jwt.leeway_seconds", Shape::Number(0, 600), "60", "How far the times in tokens may be off."),
    key(
        "jwt.required",
        Shape::Pairs(20),
        "none",
        "Claims that tokens must have, with these values (`*`: any); else the answer is 403.",
    ),
    key(
        "jwt.attributes",
        Shape::Pairs(20),
        "{ consumer = \"sub\" }",
        "Attributes for limits, each with the claim that it gets its value from: `tier = \"plan\"`, or `\"/org/plan\"` for a claim inside another.",
    ),
    key(
        "jwt.fields",
        Shape::Pairs(20),
        "none",
        "Fields that servers are sent, each with the claim that it gets its value from; a client's own are removed on all routes.",
    ),
    key("jwt.forward", Shape::Flag, "false", "Whether servers are sent the token, too."),
    key("certificate", Shape::Table, "", "The client certificates that `auth = \"certificate\"` asks for."),
    key(
        "certificate.names",
        Shape::Texts(100),
        "",
        "Names of certificates that are accepted: the first URI, or else the first DNS name. `spiffe://shop/*` fits what begins so, `*.clients.example` DNS names below that, `*` all.",
    ),
    key(
        "forward_auth",
        Shape::Table,
        "",
        "The service that `auth = \"forward\"` asks, with GET, before a request goes on.",
    ),
    key("forward_auth.upstream", Shape::Text(1, 64), "", "The service's upstream."),
    key("forward_auth.path", Shape::Text(1, 8_192), "/", "The path that the service is asked for."),
    key(
        "forward_auth.timeout_seconds",
        Shape::Seconds(0.001, 60.0),
        "1",
        "Longest that the service may take, retries included.",
    ),
    key(
        "forward_auth.send",
        Shape::Texts(20),
        "[\"authorization\", \"cookie\"]",
        "Fields of the request that the service is sent, beside `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`.",
    ),
    key(
        "forward_auth.fields",
        Shape::Texts(20),
        "none",
        "Fields of the service's answer that servers are sent; a client's own are removed on all routes.",
    ),
    key(
        "forward_auth.attributes",
        Shape::Pairs(20),
        "none",
        "Attributes for limits, each with the field of the service's answer that it gets its value from.",
    ),
    key(
        "forward_auth.pass_back",
        Shape::Texts(20),
        "[\"www-authenticate\", \"location\", \"set-cookie\", \"content-type\", \"retry-after\"]",
        "Fields of the service's refusal that clients are sent, beside status and body (64 KiB); of an answer that admits the request, only `set-cookie`.",
    ),
    key(
        "forward_auth.cache_seconds",
        Shape::Seconds(0.0, 3_600.0),
        "0",
        "How long an answer that admits is used for further requests of the same kind. Refusals are not kept.",
    ),
    key(
        "forward_auth.cache_by",
        Shape::Texts(20),
        "none",
        "What makes two requests the same: `header:NAME`, `method`, `host`, `path` (as the service is told it). List everything that the answer depends on.",
    ),
    key(
        "forward_auth.on_error",
        Shape::Word(ON_ERRORS),
        "deny",
        "Whether requests are answered 503 or pass while the service does not answer, or answers 5xx.",
    ),
    key(
        "skip_auth_preflight",
        Shape::Flag,
        "false",
        "Whether preflights (CORS) pass to the server, which answers them, without what `auth` asks for; not beside `cors`. No policy that needs it, or a field of the request, is charged: see [CORS](gateway-reference.md#cors).",
    ),
    key(
        "policies",
        Shape::Texts(32),
        "none",
        "Policies that a request is charged under, and no others; without any, the route has no limits.",
    ),
    key(
        "strip_prefix",
        Shape::Text(1, 8_192),
        "none",
        "Taken off the front of the path before it is forwarded; the server is told of it in `X-Forwarded-Prefix`, and a path in its `Location` gets it back.",
    ),
    key("add_prefix", Shape::Text(1, 8_192), "none", "Put in front of the path before it is forwarded."),
    key(
        "replace_path",
        Shape::Text(1, 8_192),
        "none",
        "The path that is forwarded in place of the request's.",
    ),
    key(
        "encoded_slash",
        Shape::Word(ENCODED_SLASHES),
        "same_route; with auth = forward: refuse",
        "A path with `%2F`, `%5C` or a backslash goes on as it came where slashes in their place would lead to the same route, or always, or is answered 400: see [paths](gateway-reference.md#paths).",
    ),
    key(
        "merge_slashes",
        Shape::Flag,
        "false; with auth = forward: true",
        "Whether servers get one slash for several in a row.",
    ),
    key(
        "cors",
        Shape::Table,
        "none",
        "Which other sites' scripts may use the route; preflights are answered here.",
    ),
    key(
        "cors.origins",
        Shape::Texts(100),
        "",
        "Origins whose scripts may use the route, or \"*\" alone for all.",
    ),
    key("cors.methods", Shape::Texts(100), "GET, HEAD, POST", "Methods that these scripts may use."),
    key("cors.headers", Shape::Texts(100), "none", "Fields that these scripts may send."),
    key(
        "cors.expose",
        Shape::Texts(100),
        "none",
        "Fields of replies that these scripts may read, beside the gateway's own, such as `RateLimit` and `Retry-After`.",
    ),
    key("cors.credentials", Shape::Flag, "false", "Whether browsers may send cookies along."),
    key(
        "cors.max_age_seconds",
        Shape::Seconds(0.0, DAY),
        "600",
        "How long a browser remembers the answer to a preflight.",
    ),
    key("maintenance", Shape::Table, "none", "A reply while the route is out of service."),
    key("maintenance.enabled", Shape::Flag, "true", "Whether the route is out of service."),
    key("maintenance.allow", Shape::Texts(100), "none", "Networks whose requests pass all the same."),
    key("maintenance.retry_after_seconds", Shape::Number(1, 86_400), "60", "The seconds in `Retry-After`."),
    key("maintenance.status", Shape::Number(200, 599), "503", "The status of the reply."),
    key("maintenance.body", Shape::Text(0, 1 << 20), "empty", "The body of the reply."),
    key(
        "maintenance.content_type",
        Shape::Text(1, 256),
        "text/plain; charset=utf-8",
        "The media type of the body.",
    ),
    key(
        "request_fields",
        Shape::Table,
        "none",
        "Changes to the request's fields: remove, then set, then add.",
    ),
    key("request_fields.remove", Shape::Texts(100), "none", "Names of fields that are removed."),
    key("request_fields.set", Shape::Pairs(100), "none", "Fields that replace those of the same name."),
    key("request_fields.add", Shape::Pairs(100), "none", "Fields that are added to those of the same name."),
    key("response_fields", Shape::Table, "none", "Changes to the reply's fields, likewise."),
    key("response_fields.remove", Shape::Texts(100), "none", "Names of fields that are removed."),
    key("response_fields.set", Shape::Pairs(100), "none", "Fields that replace those of the same name."),
    key("response_fields.add", Shape::Pairs(100), "none", "Fields that are added to those of the same name."),
    key("max_header_bytes", Shape::Number(1, 65_536), "65536", "Most bytes of a request's header fields."),
    key("max_body_bytes", Shape::Number(0, 1 << 40), "1099511627776", "Most bytes of a request's body."),
    key("first_byte_timeout_seconds", Shape::Seconds(0.001, DAY), "30", "Longest wait for a reply's head."),
    key("idle_timeout_seconds", Shape::Seconds(0.001, DAY), "60", "Longest wait for more of a reply's body."),
    key(
        "timeout_seconds",
        Shape::Seconds(0.001, DAY),
        "first_byte_timeout_seconds",
        "Longest that all attempts together may take, up to a reply's head.",
    ),
    key(
        "reply_timeout_seconds",
        Shape::Seconds(0.001, DAY),
        "none",
        "Longest from a request to the last byte of its reply; then the reply is cut.",
    ),
    key("upgrades", Shape::Texts(8), "websocket", "Protocols that a request may change to."),
    key(
        "upgrade_idle_timeout_seconds",
        Shape::Seconds(0.001, DAY),
        "3600",
        "Longest silence in both directions after such a change.",
    ),
    key("breaker", Shape::Table, "none", "A breaker of the route's own, beside the upstream's."),
    key(
        "fallback",
        Shape::Table,
        "none",
        "What takes the place of the gateway's own 502, 503 and 504: another upstream, a fixed reply, or the upstream first and then the reply.",
    ),
    key(
        "fallback.upstream",
        Shape::Text(1, 64),
        "none",
        "Another upstream, which is tried once if that is safe and time is left.",
    ),
    key("fallback.status", Shape::Number(200, 599), "503", "The status of a fixed reply."),
    key("fallback.body", Shape::Text(0, 1 << 20), "empty", "The body of a fixed reply."),
    key(
        "fallback.content_type",
        Shape::Text(1, 256),
        "text/plain; charset=utf-8",
        "The media type of the body.",
    ),
    key(
        "compress",
        Shape::Flag,
        "false",
        "Whether replies are compressed (zstd, br, gzip) for clients that ask for it, where that is allowed and worth it.",
    ),
    key(
        "hedge",
        Shape::Flag,
        "false",
        "Whether a second server is asked the same, by GET, HEAD or OPTIONS, when the first is later than 95 of a hundred replies of the route.",
    ),
    key(
        "priority",
        Shape::Word(PRIORITIES),
        "normal",
        "Which requests are refused first when this process cannot keep up: see `gateway.shed_after`.",
    ),
    key("canary", Shape::Table, "none", "Another upstream for a part of the requests."),
    key(
        "canary.upstream",
        Shape::Text(1, 64),
        "",
        "The canary's upstream. The other requests go to `upstream`.",
    ),
    key(
        "canary.percent",
        Shape::Percent,
        "0",
        "How many of a hundred clients it gets; `0.5`: one of two hundred. Each stays on its side; more only add to those that are there.",
    ),
    key(
        "canary.header",
        Shape::Pairs(100),
        "none",
        "Fields, all of which send a request to the canary, too.",
    ),
    key(
        "canary.cookie",
        Shape::Pairs(20),
        "none",
        "Cookies, all of which send a request to the canary, beside the fields of `header` if there are any.",
    ),
    key(
        "canary.sticky_by",
        Shape::Text(1, 256),
        "client",
        "What stays on its side: `client` (its proved identity, or its address), `header:NAME` or `cookie:NAME`.",
    ),
    key(
        "mirror",
        Shape::Table,
        "none",
        "Another upstream for copies of requests, whose replies are dropped.",
    ),
    key("mirror.upstream", Shape::Text(1, 64), "", "The mirror's upstream."),
    key("mirror.percent", Shape::Number(0, 100), "100", "How many of a hundred requests are copied."),
];

impl DocumentKey {
    /// What is accepted, in words.
    #[must_use]
    pub fn accepted(&self) -> String {
        match self.shape {
            Shape::Name => "1 to 64 of a-z, 0-9, `-`, `_`, `.`, starting with a letter".to_owned(),
            Shape::Text(least, most) => format!("a string of {least} to {most} bytes"),
            Shape::Number(least, most) => format!("a whole number from {least} to {most}"),
            Shape::Percent => PERCENT.to_owned(),
            Shape::Seconds(least, most) => format!("seconds from {least} to {most}"),
            Shape::Flag => "true, false".to_owned(),
            Shape::Word(words) => words.join(", "),
            Shape::OneOrMore(most) => format!("a string, or a list of up to {most}"),
            Shape::Texts(most) => format!("a list of up to {most} strings"),
            Shape::Servers(most) => format!("a list of 1 to {most} URLs, or tables"),
            Shape::Shares(most) => format!("a list of 2 to {most} tables"),
            Shape::Pairs(most) => format!("a table of up to {most} strings"),
            Shape::Table => "a table".to_owned(),
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.shape {
            Shape::Name => json!({ "type": "string", "pattern": "^[a-z][a-z0-9._-]{0,63}$" }),
            Shape::Text(least, most) => json!({ "type": "string", "minLength": least, "maxLength": most }),
            Shape::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Shape::Percent => json!({ "type": "number", "minimum": 0, "maximum": 100 }),
            Shape::Seconds(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
            Shape::Flag => json!({ "type": "boolean" }),
            Shape::Word(words) => json!({ "enum": words }),
            Shape::OneOrMore(most) => json!({ "oneOf": [
                { "type": "string" },
                { "type": "array", "maxItems": most, "items": { "type": "string" } },
            ] }),
            Shape::Texts(most) => json!({ "type": "array", "maxItems": most, "items": { "type": "string" } }),
            Shape::Servers(most) => json!({ "type": "array", "minItems": 1, "maxItems": most }),
            Shape::Shares(most) => json!({ "type": "array", "minItems": 2, "maxItems": most }),
            Shape::Pairs(most) => json!({
                "type": "object", "maxProperties": most, "additionalProperties": { "type": "string" },
            }),
            Shape::Table => json!({ "type": "object" }),
        };
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("description".to_owned(), Value::from(self.doc));
        }
        schema
    }
}

/// The keys with those of a breaker after its own.
pub fn with_breaker(keys: &'static [DocumentKey]) -> impl Iterator<Item = &'static DocumentKey> {
    keys.iter().flat_map(|key| {
        let inner = if key.path == "breaker" { BREAKER_KEYS } else { &[] };
        std::iter::once(key).chain(inner)
    })
}

/// The JSON schema of a document with these keys, of which `required` must be there.
#[must_use]
pub fn schema(keys: &'static [DocumentKey], required: &[&str]) -> Value {
    let mut schema = table(with_breaker(keys).collect(), "");
    schema["required"] = json!(required);
    schema
}

/// The schema of the keys right below `prefix`.
fn table(keys: Vec<&DocumentKey>, prefix: &str) -> Value {
    let mut properties = Map::new();
    for key in &keys {
        let Some(name) = key.path.strip_prefix(prefix).filter(|name| !name.contains('.')) else { continue };
        let inner = format!("{}.", key.path);
        let mut schema = key.schema();
        if keys.iter().any(|other| other.path.starts_with(&inner)) {
            let inner = table(keys.clone(), &inner);
            match key.shape {
                Shape::Servers(_) => {
                    schema["items"] = json!({ "oneOf": [{ "type": "string" }, inner] });
                }
                Shape::Shares(_) => schema["items"] = inner,
                _ => {
                    schema["additionalProperties"] = json!(false);
                    schema["properties"] = inner["properties"].clone();
                }
            }
        }
        properties.insert(name.to_owned(), schema);
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

#[cfg(test)]
mod tests;
