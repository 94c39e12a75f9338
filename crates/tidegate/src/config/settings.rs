//! The table of all settings: path, type, default, range, documentation.
//!
//! From this one table come the checked [`Settings`], the names of environment variables and
//! flags, the list of unknown keys, the reference page and the JSON schema, so they cannot differ.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_settings::list::{Host, NodeName, RegionName, WebOrigin};
use tidegate_settings::secret::{Place, Secret, Store};
use tidegate_settings::telemetry::{ExportFields, Ratio, ResourceAttribute, ServiceName};
use tidegate_settings::value::Bytes;

use super::access_log::{LineFormat, LogPlace, LoggedShare};
use super::acme_values::{AcmeChallenge, CertificateName, DirectoryUrl, MailAddress};
use super::choices::{
    ClientField, Durability, LogFormat, LogLevel, OnMissingPolicy, OnNoMatch, OnStaleKeys, ProxyHeaders,
};
use super::endpoint::{CollectorUrl, WebhookUrl};
use super::intake::{Acknowledge, FieldName, IntakeCost, PartitionBy, PolicyName};
use super::networks::AllowedNetwork;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Settings {
    /// The URL of the database that holds the stored configuration; `None`: the data directory.
    #[must_use]
    pub fn control_url(&self) -> Option<&Secret> {
        match (&self.control, &self.store) {
            (Place::Postgres(url), _) | (Place::Auto, Store::Postgres(url)) => Some(url),
            (Place::Auto | Place::Local, _) => None,
        }
    }
}

tidegate_settings::settings! {
    {
        /// Where counters live: in this process, in Redis or in PostgreSQL.
        store: Store = "memory", ();
        /// Where policies and overrides are that the admin API changes: `auto` is PostgreSQL if `store` is, and else the data directory; `local` is the data directory; a URL is PostgreSQL, for all nodes.
        control: Place = "auto", ();
        /// Directory of the configuration database, or of the copy of a shared one, and of snapshots of counters. Created with mode 0700.
        data_dir: PathBuf = "./tidegate-data", ();
        /// What a request is answered that no policy applies to. It is marked in the reply, counted in `tidegate_unmatched_requests_total`, and its attributes are named in a warning.
        on_no_match: OnNoMatch = "allow", ();
    }

    /// The decision API, and the admin API unless it has a listener of its own.
    http: Http {
        /// Address of the HTTP listener. A public address needs `admin.token` or a `[[token]]`.
        listen: SocketAddr = "127.0.0.1:4000", ();
        /// Proxies in front whose `X-Forwarded-For` entries are believed, counted from the right.
        trusted_proxy_hops: u32 = "0", 0..=16;
        /// Header fields by which a proxy in front says which request it asks `/v1/check` about, as `path` and `method`: `original` is X-Original-URI and X-Original-Method (nginx), `forwarded` is X-Forwarded-Uri and X-Forwarded-Method (Traefik, Caddy). The others are not believed, and both at once are refused.
        proxy_headers: ProxyHeaders = "none", ();
        /// Whether decisions also carry `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
        legacy_headers: bool = "false", ();
        /// Hosts, beside this machine's own, under which the configuration may be reached without a token: `name`, or `name:port`. With a token every host is good.
        allowed_hosts: Vec<Host> = "", ();
        /// Origins whose pages may ask from a browser (CORS). None: no other site's page can read a reply.
        cors_origins: Vec<WebOrigin> = "", ();
    }
    tls {
    }

    /// The Envoy rate-limit service.
    grpc: Grpc {
        /// Address of the gRPC listener; `"off"` or an empty text: there is none. A public address needs `grpc.token`, a `[[token]]` with the scope `decide`, or `grpc.tls_client_ca`.
        listen: Option<SocketAddr> = "127.0.0.1:4001", ();
    }
    tls {
        /// Token that calls must carry as metadata, `authorization: Bearer ...`. Without one, and without a
        /// `[[token]]` with the scope `decide`, they need none.
        token: Option<Secret> = "", 16;
    }

    /// The Redis protocol.
    resp: Resp {
        /// Address of the RESP listener; `"off"` or an empty text: there is none. A public address needs `resp.password`, a `[[token]]` with the scope `decide`, or `resp.tls_client_ca`.
        listen: Option<SocketAddr> = "127.0.0.1:6380", ();
    }
    tls {
        /// Password that clients must give with AUTH or HELLO. Without one, and without a `[[token]]` with the
        /// scope `decide`, they need none.
        password: Option<Secret> = "", 16;
    }

    /// The gateway. Its listeners are `[[gateway.listener]]`.
    gateway: Gateway {
        /// Proxies in front whose `X-Forwarded-For` entries are believed, counted from the right.
        trusted_proxy_hops: u32 = "0", 0..=16;
        /// The field in which they say whose request it is. With `forwarded`, what a request has of `X-Forwarded-` is not believed, and one whose `Forwarded` breaks the grammar of RFC 7239 is 400.
        client_address_from: ClientField = "x-forwarded-for", ();
        /// Whether servers are told in `Forwarded`, too, what is believed of a request: made anew, never passed on.
        send_forwarded: bool = "false", ();
        /// What a route answers that lists a policy which is not in force, since another node or a new file has taken it away: 503, or what it would without that policy.
        on_missing_policy: OnMissingPolicy = "deny", ();
        /// How long the addresses of a server's name are used before the system is asked again, where the servers of `/etc/resolv.conf` do not say how long they hold (the TTL; at least 1 s and at most an hour of it counts). A connection to an address that the name has no longer gets no further request.
        dns_refresh: Duration = "5s", Duration::from_millis(100)..=seconds(3_600);
        /// How late a core may come to what is ready, for good, before requests are refused: those of routes whose `priority` is `low` first, `critical` last. 0: none are.
        shed_after: Duration = "0ms", Duration::ZERO..=seconds(10);
        /// Secret under which digests of API keys are made, the same at all nodes. Whoever changes it makes every key unknown. Without one, digests are made under an empty secret: a key has 256 bits of chance, which its digest does not give away.
        key_secret: Option<Secret> = "", 16;
        /// How old this node's API keys may get before `on_stale_keys` says what becomes of them: for how long the database that nodes share has not answered. Until then, a key that was revoked elsewhere may still be good here.
        keys_max_age: Duration = "1m", seconds(5)..=seconds(86_400);
        /// What requests with an API key are answered once the keys are older than `keys_max_age`: what they would be with the keys that are known, or 503. A data directory's keys are never old.
        on_stale_keys: OnStaleKeys = "serve", ();
        /// Header field that tells servers who uses the API key of a request. It is taken off whatever clients send, on all routes, as the next two are.
        consumer_field: Option<FieldName> = "x-consumer-id", ();
        /// Header field that tells servers the id of the API key.
        key_field: Option<FieldName> = "x-credential-identifier", ();
        /// Header field that tells servers the tier of the API key.
        tier_field: Option<FieldName> = "x-consumer-tier", ();
        /// Whether requests are counted by route, API key, server and status, for `GET /v1/analytics`.
        analytics: bool = "true", ();
        /// The pause between two writes of these counts to where the configuration is kept. From a minute on, each minute with requests is written once, when it is over; with less, nodes know sooner of one another's requests, and a process that is killed loses less of them.
        analytics_interval: Duration = "1m", seconds(1)..=seconds(600);
    }

    /// Certificates that are ordered by ACME, for listeners of gateway and edge with `tls_acme = true`.
    acme: Acme {
        /// Names to order certificates for, one each. What clients ask for is never ordered.
        names: Vec<CertificateName> = "", ();
        /// Where the authority's directory is. For tries, Let's Encrypt has `https://acme-staging-v02.api.letsencrypt.org/directory`.
        directory: DirectoryUrl = "https://acme-v02.api.letsencrypt.org/directory", ();
        /// Whether you agree to the authority's terms of service. Without it nothing is ordered.
        agree_to_terms: bool = "false", ();
        /// Mail addresses that the authority may write to.
        contact: Vec<MailAddress> = "", ();
        /// How the authority is shown that the names are this server's: by a gateway listener without TLS, which it reaches on port 80, or by a TLS listener with `tls_acme`, which it reaches on port 443.
        challenge: AcmeChallenge = "http-01", ();
        /// PEM file with the authorities that may have signed the certificate of the directory itself. Without it, the system's.
        ca_file: Option<PathBuf> = "", ();
    }

    /// The gateway's access log: a line for each request, with what was done for it step by step.
    access_log: AccessLog {
        /// Where lines go: `off`, `stdout`, or the path of a file, which is opened again on SIGHUP.
        to: LogPlace = "off", ();
        /// How lines look: a JSON object each, or Apache's combined format with the steps as one more text in quotes.
        format: LineFormat = "json", ();
        /// What the file may grow to. Then it is renamed to `FILE.1`, what was `FILE.1` to `FILE.2`, and so on.
        max_bytes: Bytes = "100 MiB", Bytes(64 << 10)..=Bytes(1 << 40);
        /// How many renamed files are kept.
        keep: u32 = "5", 0..=1_000;
        /// Which requests have a line: `ROUTE/STATUS=PERCENT`, of which the first that fits decides. `*` is any route or status, `5xx` a class of statuses. A request that no rule fits has one.
        sample: Vec<LoggedShare> = "", ();
    }

    /// The TCP edge. Its listeners are `[[edge.listener]]`, its backends `[[edge.backend]]`, and `[[edge.place]]` says where clients are.
    edge: Edge {
        /// The region of this node: backends there are preferred to those elsewhere, behind those of the client's own country and region.
        region: Option<RegionName> = "", ();
        /// Database of countries in MaxMind's format, for clients that no network of an `[[edge.place]]` has. Read again when it changes. None is part of Tidegate.
        country_database: Option<PathBuf> = "", ();
        /// Round trips below which a backend is of the first, the second and the third tier: `["10ms", "40ms", "100ms"]`. With them, the time that connecting to a backend takes decides its tier once it is known, in place of countries and regions. None: it is not looked at.
        round_trip_tiers: Option<TierBounds> = "", ();
        /// Address of the registration API, which listens where there is an `[[edge.listener]]`, or an `[[upstream]]` with an `app`; `"off"` or an empty text: nowhere. A public address needs `edge.api_token`, `admin.token` or a `[[token]]`.
        api_listen: Option<SocketAddr> = "127.0.0.1:8081", ();
        /// Token of backends that register, called `edge`, with the scopes `read` and `configure` at the registration API alone. Without any token, requests need none.
        api_token: Option<Secret> = "", 16;
        /// Networks of the addresses that may register. None: any, but for loopback addresses, which may if the API listens on one, and link-local ones, which never may.
        api_allowed: Vec<AllowedNetwork> = "", ();
        /// Address of the server of names, by UDP and TCP, which listens where there is an `[[edge.listener]]` at the start; `"off"` or an empty text: nowhere.
        dns_listen: Option<SocketAddr> = "", ();
        /// Networks whose questions about names are answered, beside this machine's own.
        dns_allowed: Vec<AllowedNetwork> = "", ();
        /// Addresses at which clients reach this node, as `REGION.pops.internal` has them at all nodes. None: those that its listeners are on, but for `0.0.0.0` and `[::]`, which are no address of one machine.
        advertise: Vec<IpAddr> = "", ();
        /// How long the addresses of a backend's name are used before the system is asked again, where the servers of `/etc/resolv.conf` do not say how long they hold (the TTL; at least 1 s and at most an hour of it counts).
        dns_refresh: Duration = "5s", Duration::from_millis(100)..=seconds(3_600);
        /// What becomes of the connections of a listener that lists a policy which is not in force, since another node or a new file has taken it away: they are refused, or not limited by it.
        on_missing_policy: OnMissingPolicy = "deny", ();
        /// How long a registered backend stays without a heartbeat.
        heartbeat_ttl: Duration = "1m", seconds(1)..=seconds(86_400);
    }

    /// The metrics intake. Its alert rules are `[[intake.alert]]`, and `[[intake.forward]]` says where its lines go on to.
    intake: Intake {
        /// Address of the intake's listener; `"off"` or an empty text: there is none. A public address needs a `[[token]]` with the scope `ingest`, or `intake.tls_client_ca`.
        listen: Option<SocketAddr> = "127.0.0.1:4002", ();
        /// How safe a batch is when it is acknowledged, unless its request asks for something else: `memory` is in the queue to the disk, `written` is given to the operating system, `fsync` is on the disk.
        acknowledge: Acknowledge = "fsync", ();
        /// Most metrics of a batch of JSON.
        batch_metrics: u32 = "1000", 1..=100_000;
        /// Largest request body, as it comes and without its compression.
        body_bytes: Bytes = "4 MiB", Bytes(1 << 10)..=Bytes(1 << 30);
        /// Header field that names the client of a request without a token. Without one, and in requests that lack it, the client is the address.
        client_header: Option<FieldName> = "", ();
        /// Policies that limit each client. They can look at `client_id`, `ip` and `resource`, which is `metrics`. None: nothing limits it.
        policies: Vec<PolicyName> = "", ();
        /// What a batch costs under these policies: 1, or 1 for each metric.
        cost: IntakeCost = "batches", ();
        /// What becomes of batches while a policy that `intake.policies` lists is not in force, since another node or a new file has taken it away: they are answered 503, or not limited by it.
        on_missing_policy: OnMissingPolicy = "deny", ();
        /// How long a batch that is sent again, under the same `Idempotency-Key` or as the same bytes of a remote write, is answered without being kept again. Up to 100000 batches are known.
        repeat_window: Duration = "10m", seconds(0)..=seconds(86_400);
        /// Partitions of the log. It cannot be changed while the log has lines.
        partitions: u32 = "1", 1..=64;
        /// Which lines are in one partition, in the order in which they came: those of a `client`, or those of a `series`, which is a name with its tags. Lines that the log has stay where they are when it changes.
        partition_by: PartitionBy = "client", ();
        /// Size at which a segment of the log ends and the next begins.
        segment_bytes: Bytes = "64 MiB", Bytes(1 << 16)..=Bytes(1 << 40);
        /// Age at which a segment ends.
        segment_age: Duration = "1h", seconds(1)..=seconds(86_400 * 30);
        /// Most disk that the log takes, over all partitions; the oldest segments go first.
        retain_bytes: Bytes = "2 GiB", Bytes(1 << 20)..=Bytes(1 << 50);
        /// Age at which lines go.
        retain_age: Duration = "7d", seconds(60)..=seconds(86_400 * 3_650);
        /// Most bytes of lines that wait for the disk. What does not fit is answered 503; a client that has more than its share there, 429.
        queue_bytes: Bytes = "64 MiB", Bytes(1 << 20)..=Bytes(1 << 40);
        /// Most series that a client may have: names with their tags. A line of one more is refused by name, and those that it has go on; one that is silent for one to two hours makes room. One of a hundred new ones may pass beyond the limit. 0: no limit.
        series_per_client: u32 = "0", 0..=1_000_000;
        /// Where alerts are told, in the form of Alertmanager's second API: `http://alertmanager:9093/api/v2/alerts`. Without it they are only shown by `GET /v1/intake/alerts` and as metrics.
        alert_webhook: Option<WebhookUrl> = "", ();
        /// Address of StatsD, over UDP and TCP; `"off"` or an empty text: there is none. 8125 is the customary port. It knows no tokens, so a public address needs `intake.statsd_allowed`.
        statsd_listen: Option<SocketAddr> = "", ();
        /// Networks, beside this machine, that may send by StatsD.
        statsd_allowed: Vec<AllowedNetwork> = "", ();
    }
    tls {
    }

    /// The admin API, and who may change the configuration.
    admin: Admin {
        /// Address of a listener of its own for the admin API and the operator's pages. Without it, the admin API is on `http.listen`. A public address needs `admin.token` or a `[[token]]`.
        listen: Option<SocketAddr> = "", ();
    }
    tls {
        /// Token of the operator, called `admin`, with the scopes `refund`, `read` and `configure`. Without it and
        /// without a `[[token]]`, only loopback may change the configuration.
        token: Option<Secret> = "", 16;
    }

    /// The memory store.
    memory: Memory {
        /// Most memory that counters may take.
        max_bytes: Bytes = "1 GiB", Bytes(1 << 20)..=Bytes(1 << 40);
        /// Whether counters are saved, so that a restart does not hand everyone a fresh window.
        snapshot: bool = "true", ();
        /// Time between two saves; one more is made at shutdown.
        snapshot_interval: Duration = "1m", seconds(1)..=seconds(86_400);
    }

    /// A store that several nodes share: Redis or PostgreSQL.
    shared: Shared {
        /// Nodes that share it. While it is away, each counts its share of every limit by itself.
        instances: u32 = "1", 1..=10_000;
        /// Longest wait for its answer.
        deadline: Duration = "10ms", Duration::from_millis(1)..=seconds(60);
        /// What of counters in PostgreSQL survives a crash of its server: nothing, all but the last moments, or everything that was answered. Unlogged or not is decided when the table is made.
        durability: Durability = "asynchronous", ();
        /// Whether nodes take units of hot keys ahead, so that a hot key costs the store a call per lease. Off, counting is exact; what leases can cost is said by `tidegate check`.
        leases: bool = "false", ();
        /// Longest that units are held unspent; a limit's window if that is less. All nodes together hold at most what comes back in a thirtieth of it, or in a tenth of the window if that is less.
        lease_lifetime: Duration = "30s", Duration::from_millis(100)..=seconds(600);
    }

    /// What this process is called among the nodes that share a configuration.
    node: NodeSettings {
        /// The name of this node in `GET /v1/nodes`, the console and `tidegate doctor`: one of its own for each node. None: the name of the machine.
        name: Option<NodeName> = "", ();
    }

    /// Bounds on what clients may take.
    limits: Limits {
        /// Most connections at once, over all listeners. Each listener has a tenth of them for itself. Beyond them, `/livez`, `/readyz` and `/metrics` are answered on up to 64 more, and anything else there with 503.
        connections: u32 = "15000", 1..=1_000_000;
        /// Largest request body.
        body_bytes: Bytes = "1 MiB", Bytes(1 << 10)..=Bytes(1 << 30);
        /// Most memory for request bodies that are being read and replies that are being sent, and for the commands and replies of Redis clients, over all connections, beyond the 64 KiB that each connection always has. What does not fit is answered 503, or with an error to Redis clients.
        buffered_bytes: Bytes = "256 MiB", Bytes(1 << 20)..=Bytes(1 << 40);
        /// How long a client may take to send a request's header, the first one's from connecting, and how long for a TLS handshake.
        header_deadline: Duration = "10s", Duration::from_millis(100)..=seconds(600);
        /// How long requests in flight, streams, WebSockets and connections of the edge may take to finish after SIGTERM.
        drain_deadline: Duration = "30s", seconds(0)..=seconds(3_600);
    }

    /// What is written to standard error.
    log: Log {
        /// How log lines look.
        format: LogFormat = "text", ();
        /// The least severe line that is logged.
        level: LogLevel = "info", ();
    }

    /// What an OpenTelemetry collector is sent, by OTLP over HTTP: spans of the gateway's requests, and the metrics page.
    telemetry: Telemetry {
        /// Where the collector is, as `http://127.0.0.1:4318`: spans go to `/v1/traces` beneath it, metrics to `/v1/metrics`. None: nothing is recorded and nothing sent.
        endpoint: Option<CollectorUrl> = "", ();
        /// Header fields of each request to it, as `authorization=Bearer%20...`.
        headers: ExportFields = "", ();
        /// What this service is called there. None: what `resource` says, or `tidegate`.
        service_name: Option<ServiceName> = "", ();
        /// What else is said of this process. `service.version` and a `service.instance.id` that each start draws anew are said unless they are here.
        resource: Vec<ResourceAttribute> = "", ();
        /// Whether spans are sent.
        traces: bool = "true", ();
        /// Whether metrics are sent.
        metrics: bool = "true", ();
        /// The part of the requests that are recorded of those whose client sends no `traceparent`. Where there is one, its sampled flag decides.
        sample_ratio: Ratio = "1", ();
        /// How long spans wait for others before they are sent, if they do not fill a request before.
        span_delay: Duration = "5s", Duration::from_millis(100)..=seconds(60);
        /// Time between two exports of the metrics.
        metrics_interval: Duration = "1m", Duration::from_millis(100)..=seconds(86_400);
    }

    /// The machine's resources.
    runtime: Runtime {
        /// Worker threads; 0 means one per core.
        workers: u32 = "0", 0..=1_024;
        /// Whether ports may be shared with another process of the same user, whose listeners are then beside these until it is stopped: a new version takes over without a refused connection. Each process needs a `data_dir` of its own. The port of StatsD over UDP is not shared.
        share_ports: bool = "false", ();
    }
}
