//! The keys of `[[upstream]]`, and those of a breaker: from these tables come which keys are known, the ranges in which they are read,
//! their rows of the reference page, and the JSON schema.

use tidegate_algorithms::breaker::MAX_CALLS;
use tidegate_upstream::connect::MAX_SOURCES;

use super::part::{DAY, MANY};
use super::reference::DocumentKey;
use super::reference::Shape::{
    Flag, Name, Number, Pairs, Seconds, Servers, Shared, Table, Text, Texts, Word,
};
use super::reference::document_keys;

/// The keys of an upstream.
pub const UPSTREAM_KEYS: &[DocumentKey] = document_keys! {
    /// Its name, for routes and metrics.
    name: Name, "";
    /// The servers, which do the same work: `http://host:port`. At least one, unless there is `app`.
    servers: Servers(1_000), "none";
    /// The app of the registration API whose registered backends are servers, too.
    app: Text(1, 64), "none";
    /// The URL of a server.
    servers.url: Text(1, 8_192), "";
    /// Its share of the requests among the servers; 0: it gets none.
    servers.weight: Number(0, 1_000), "1";
    /// Most requests at this server at once.
    servers.max_requests: Number(1, MANY), "the upstream's";
    /// The protocol to the servers.
    protocol: Word(&["http1", "http2", "auto"]), "http1";
    /// How servers with `https://` prove who they are.
    tls: Table, "none";
    /// The authorities that sign the servers' certificates, in PEM.
    tls.ca: Text(1, 64 << 10), "the system's";
    /// PEM file with the authorities, in place of `ca`; not through the admin API.
    tls.ca_file: Text(1, 4_096), "the system's";
    /// The name that their certificates must have.
    tls.server_name: Text(1, 253), "the server's host";
    /// PEM file with the certificate that servers are shown if they demand one, and those that lead to its authority; not through the admin API.
    tls.certificate_file: Text(1, 4_096), "none";
    /// PEM file with its private key.
    tls.key_file: Text(1, 4_096), "none";
    /// The oldest version of TLS that is spoken with servers.
    tls.min_version: Word(&["1.2", "1.3"]), "1.2";
    /// How the next server is chosen.
    balance: Word(&["round_robin", "least_requests", "peak_ewma", "ring_hash"]), "least_requests";
    /// The value that `ring_hash` hashes: `address`, or `header:NAME`; a request without the field gets any server.
    hash_by: Text(1, 256), "address";
    /// How long a server that came up, is back from an ejection, or came when others served, gets less than its share.
    slow_start_seconds: Seconds(0.0, DAY), "0";
    /// Failed requests in a row that take a server out; 0: servers are never taken out. If all are out, all are asked.
    eject_after: Number(0, MANY), "5";
    /// How long a server is out; longer each time. Then one more failure is enough until a request succeeds.
    eject_seconds: Seconds(0.001, DAY), "10";
    /// How servers are checked in the background.
    check: Table, "none";
    /// The path that a check asks for; without it, a connection is enough.
    check.path: Text(1, 1_024), "none";
    /// The service that is asked for by gRPC's health protocol, in place of `path`; empty: the server.
    check.grpc: Text(0, 127), "none";
    /// The host that a check by `path` or `grpc` names, with or without a port, for servers that go by it. TLS asks for `tls.server_name` instead.
    check.host: Text(1, 255), "the server's";
    /// Further header fields of a check by `path` or `grpc`, in place of its own. Everybody who may read the configuration can read them.
    check.fields: Pairs(20), "none";
    /// Time between two checks of a server, a fifth more or less.
    check.interval_seconds: Seconds(0.01, DAY), "10";
    /// Longest that a check may take.
    check.timeout_seconds: Seconds(0.001, DAY), "5";
    /// Checks in a row that must pass before a server is up.
    check.rise: Number(1, 1_000), "2";
    /// Checks in a row that must fail before a server is down.
    check.fall: Number(1, 1_000), "3";
    /// The status with which a check passes.
    check.status: Number(100, 599), "200 to 299";
    /// When the upstream is no longer asked.
    breaker: Shared(BREAKER_KEYS), "on";
    /// A limit of requests that wait for the servers, found by how long they take: see [the gateway](gateway-requests.md#when-there-is-too-much).
    adaptive_concurrency after max_requests: Table, "none";
    /// Whether the upstream has such a limit.
    adaptive_concurrency.enabled: Flag, "true";
    /// `shadow`: what it has no room for is counted, and not refused.
    adaptive_concurrency.mode: Word(&["enforce", "shadow"]), "enforce";
    /// The least that the limit may be.
    adaptive_concurrency.min: Number(1, MANY), "3";
    /// The most that the limit may be.
    adaptive_concurrency.max: Number(1, MANY), "1000";
    /// How often a request is tried at servers.
    retries: Table, "on";
    /// Most attempts for a request, the first one included.
    retries.attempts: Number(1, 10), "3";
    /// Further attempts, as a share of the requests.
    retries.percent: Number(0, 100), "10";
    /// Further attempts a second that are always allowed.
    retries.least_per_second: Number(0, MANY), "10";
    /// Longest wait for a connection.
    connect_timeout_seconds: Seconds(0.001, DAY), "1";
    /// Addresses of this machine that connections begin at, each in turn; if one has no port left, the next one.
    sources: Texts(MAX_SOURCES, 45), "any";
    /// Most idle connections to each server that a core keeps.
    idle_connections: Number(0, MANY), "1024";
    /// How long an idle connection is kept.
    idle_timeout_seconds: Seconds(0.001, DAY), "30";
    /// Most requests at each server at once.
    max_requests: Number(1, MANY), "10000";
};

/// The keys of a breaker, an upstream's or a route's.
pub(super) const BREAKER_KEYS: &[DocumentKey] = document_keys! {
    /// Whether there is a breaker.
    enabled after trials: Flag, "true";
    /// The number of last calls that the breaker judges.
    calls: Number(1, MAX_CALLS as u64), "100";
    /// The breaker judges the calls of this time, in place of `calls`.
    seconds: Seconds(0.001, DAY), "none";
    /// The breaker stays closed until it has seen this many calls.
    minimum_calls: Number(1, MAX_CALLS as u64), "20";
    /// The share of failed calls that opens the breaker.
    failure_percent: Number(1, 100), "50";
    /// The share of slow calls that opens the breaker.
    slow_percent: Number(1, 100), "50";
    /// A call that takes longer is slow; the time in which the client sends its body does not count.
    slow_seconds: Seconds(0.001, DAY), "3";
    /// How long a breaker that opens lets no call through; twice as long after each round of trials that fails. At most `open_seconds`.
    first_open_seconds: Seconds(0.001, DAY), "1";
    /// The longest that an open breaker lets no call through.
    open_seconds: Seconds(0.001, DAY), "60";
    /// Calls that are let through after that; by them the breaker closes or opens again.
    trials: Number(1, 1_000), "10";
};
