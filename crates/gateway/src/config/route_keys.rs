//! The keys of `[[route]]`: from this table come which keys are known, the ranges in which they are read, their rows of the reference
//! page, and the JSON schema.

use tidegate_access::keys::MAX_KEY_SCOPE_BYTES;

use super::auth::WAYS;
use super::part::DAY;
use super::reference::DocumentKey;
use super::reference::Shape::{
    Flag, Name, Number, OneOrMore, Pairs, Percent, Seconds, Shared, Shares, Table, Text, Texts, Word,
};
use super::reference::document_keys;
use super::split::MOST_UPSTREAMS;
use super::upstream_keys::BREAKER_KEYS;

/// Longest URL, path, host or method, in bytes.
const MAX_TEXT: usize = 8_192;

/// Most bytes of a request's body, for a route that states nothing, too.
pub(super) const MAX_BODY: u64 = 1 << 40;

/// The keys of a route.
pub const ROUTE_KEYS: &[DocumentKey] = document_keys! {
    /// Its name, for metrics, the log and limits.
    name: Name, "";
    /// Hosts that the route is for, without a port; `*.example.com`: all names below one.
    host: OneOrMore(100, MAX_TEXT), "all";
    /// Paths that the route is for: `/a`; `/a/*` with all below it; `/a/{id}` with any one part.
    path: Text(1, MAX_TEXT), "all";
    /// Methods that the route is for; not CONNECT or TRACE, which are answered 501.
    method: OneOrMore(20, MAX_TEXT), "all";
    /// Header fields that a request must have, with these values.
    header: Pairs(100), "none";
    /// Cookies that a request must have, with these values.
    cookie: Pairs(20), "none";
    /// Parameters that the query must have, with these values.
    query: Pairs(20), "none";
    /// The upstream that requests go to. A route needs this, `split`, `redirect` or `respond`.
    upstream: Text(1, 64), "";
    /// Upstreams that share the requests, in place of one upstream.
    split: Shares(MOST_UPSTREAMS), "";
    /// An upstream of the split, each once.
    split.upstream: Text(1, 64), "";
    /// How many of a hundred clients it gets; `0.5`: one of two hundred. Each stays at its upstream.
    split.percent: Percent, "";
    /// What stays at its upstream of the split: `client`, `header:NAME` or `cookie:NAME`, as `canary.sticky_by`.
    split_by: Text(1, 256), "client";
    /// A redirect, in place of an upstream.
    redirect: Table, "";
    /// The status: 301, 302, 303, 307 or 308.
    redirect.status: Number(301, 308), "302";
    /// The URL or path. `{host}` after `https://` is the request's host, `{uri}` at the end its path and query as they came: `https://{host}{uri}`.
    redirect.location: Text(1, MAX_TEXT), "";
    /// A fixed reply, in place of an upstream.
    respond: Table, "";
    /// The status of the reply.
    respond.status: Number(200, 599), "200";
    /// The body of the reply.
    respond.body: Text(0, 1 << 20), "empty";
    /// The media type of the body.
    respond.content_type: Text(1, 256), "text/plain; charset=utf-8";
    /// The proof that a request needs: `key`, an API key; `jwt`, a token of an issuer; `forward`, the word of another service; `certificate`, a client certificate. A request without it is answered 401, and charged nothing.
    auth: Word(&WAYS), "none";
    /// In the place of `auth`: two or more of these, one of which a request needs. The first for which it states something decides alone; `forward` is the last.
    auth_any: Texts(4, 64), "none";
    /// In the place of `auth`: two or more of these, all of which a request needs, proved in this order; `forward` is the last.
    auth_all: Texts(4, 64), "none";
    /// Where a request has its key: `header:NAME`, `query:NAME`, `bearer` or `basic`. The first place that has something counts; the key goes no further.
    key_in: Texts(8, 128), "[\"header:x-api-key\", \"bearer\"]";
    /// The scope that a key must have been given. One without it is answered 403, as is one that names other routes only.
    key_scope: Text(1, MAX_KEY_SCOPE_BYTES), "none";
    /// The JSON Web Tokens that `auth = "jwt"` asks for.
    jwt: Table, "";
    /// The issuer (`iss`) of the tokens.
    jwt.issuer: Text(1, 1_024), "";
    /// The audiences that are accepted: the `aud` of a token must have one of them. Without any, a token for some audience is refused.
    jwt.audience: Texts(20, 1_024), "none";
    /// Where a request has its token: `bearer`, `cookie:NAME`, `query:NAME`, or `protocol:NAME`, the subprotocol that a client of WebSocket offers after NAME. The first place that has something counts; the token goes no further, unless `jwt.forward` says so.
    jwt.token_in after keys_file: Texts(8, 128), "[\"bearer\"]";
    /// The URL at which the issuer publishes its keys (JWKS). A route with `jwt` needs this or `keys_file`.
    jwt.keys_url: Text(1, MAX_TEXT), "";
    /// File with the issuer's keys (JWKS), which may have secrets; not through the admin API.
    jwt.keys_file: Text(1, 4_096), "";
    /// How far the times in tokens may be off.
    jwt.leeway_seconds: Number(0, 600), "60";
    /// Claims that tokens must have, with these values (`*`: any); else the answer is 403.
    jwt.required: Pairs(20), "none";
    /// Attributes for limits, each with the claim that it gets its value from: `tier = "plan"`, or `"/org/plan"` for a claim inside another.
    jwt.attributes: Pairs(20), "{ consumer = \"sub\" }";
    /// Fields that servers are sent, each with the claim that it gets its value from; a client's own are removed on all routes.
    jwt.fields: Pairs(20), "none";
    /// Whether servers are sent the token, too.
    jwt.forward: Flag, "false";
    /// The client certificates that `auth = "certificate"` asks for.
    certificate after forward_auth: Table, "";
    /// Names of certificates that are accepted: the first URI, or else the first DNS name. `spiffe://shop/*` fits what begins so, `*.clients.example` DNS names below that, `*` all.
    certificate.names: Texts(100, 512), "";
    /// The service that `auth = "forward"` asks, with GET, before a request goes on.
    forward_auth: Table, "";
    /// The service's upstream.
    forward_auth.upstream: Text(1, 64), "";
    /// The path that the service is asked for.
    forward_auth.path: Text(1, MAX_TEXT), "/";
    /// Longest that the service may take, retries included.
    forward_auth.timeout_seconds: Seconds(0.001, 60.0), "1";
    /// Fields of the request that the service is sent, beside `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`.
    forward_auth.send: Texts(20, 64), "[\"authorization\", \"cookie\"]";
    /// Fields of the service's answer that servers are sent; a client's own are removed on all routes.
    forward_auth.fields: Texts(20, 64), "none";
    /// Attributes for limits, each with the field of the service's answer that it gets its value from.
    forward_auth.attributes: Pairs(20), "none";
    /// Fields of the service's refusal that clients are sent, beside status and body (64 KiB); of an answer that admits the request, only `set-cookie`.
    forward_auth.pass_back: Texts(20, 64), "[\"www-authenticate\", \"location\", \"set-cookie\", \"content-type\", \"retry-after\"]";
    /// How long an answer that admits is used for further requests of the same kind. Refusals are not kept.
    forward_auth.cache_seconds: Seconds(0.0, 3_600.0), "0";
    /// What makes two requests the same: `header:NAME`, `method`, `host`, `path` (as the service is told it). List everything that the answer depends on.
    forward_auth.cache_by: Texts(20, 128), "none";
    /// Whether requests are answered 503 or pass while the service does not answer, or answers 5xx.
    forward_auth.on_error: Word(&["deny", "allow"]), "deny";
    /// Whether preflights (CORS) pass to the server, which answers them, without what `auth` asks for; not beside `cors`. No policy that needs it, or a field of the request, is charged: see [CORS](gateway-reference.md#cors).
    skip_auth_preflight: Flag, "false";
    /// Policies that a request is charged under, and no others; without any, the route has no limits.
    policies: Texts(32, 64), "none";
    /// Taken off the front of the path before it is forwarded; the server is told of it in `X-Forwarded-Prefix`, and a path in its `Location` gets it back.
    strip_prefix: Text(1, MAX_TEXT), "none";
    /// Put in front of the path before it is forwarded.
    add_prefix: Text(1, MAX_TEXT), "none";
    /// The path that is forwarded in place of the request's.
    replace_path: Text(1, MAX_TEXT), "none";
    /// A path with `%2F`, `%5C` or a backslash goes on as it came where slashes in their place would lead to the same route, or always, or is answered 400: see [paths](gateway-reference.md#paths).
    encoded_slash: Word(&["same_route", "keep", "refuse"]), "same_route; with auth = forward: refuse";
    /// Whether servers get one slash for several in a row.
    merge_slashes: Flag, "false; with auth = forward: true";
    /// Which other sites' scripts may use the route; preflights are answered here.
    cors: Table, "none";
    /// Origins whose scripts may use the route, or "*" alone for all.
    cors.origins: Texts(100, 256), "";
    /// Methods that these scripts may use.
    cors.methods: Texts(100, 64), "GET, HEAD, POST";
    /// Fields that these scripts may send.
    cors.headers: Texts(100, 64), "none";
    /// Fields of replies that these scripts may read, beside the gateway's own, such as `RateLimit` and `Retry-After`.
    cors.expose: Texts(100, 64), "none";
    /// Whether browsers may send cookies along.
    cors.credentials: Flag, "false";
    /// How long a browser remembers the answer to a preflight.
    cors.max_age_seconds: Seconds(0.0, DAY), "600";
    /// A reply while the route is out of service.
    maintenance: Table, "none";
    /// Whether the route is out of service.
    maintenance.enabled: Flag, "true";
    /// Networks whose requests pass all the same.
    maintenance.allow: Texts(100, 64), "none";
    /// The seconds in `Retry-After`.
    maintenance.retry_after_seconds: Number(1, 86_400), "60";
    /// The status of the reply.
    maintenance.status: Number(200, 599), "503";
    /// The body of the reply.
    maintenance.body: Text(0, 1 << 20), "empty";
    /// The media type of the body.
    maintenance.content_type: Text(1, 256), "text/plain; charset=utf-8";
    /// Changes to the request's fields: remove, then set, then add.
    request_fields: Shared(EDIT_KEYS), "none";
    /// Changes to the reply's fields, likewise.
    response_fields: Shared(EDIT_KEYS), "none";
    /// Most bytes of a request's header fields.
    max_header_bytes: Number(1, 65_536), "65536";
    /// Most bytes of a request's body.
    max_body_bytes: Number(0, MAX_BODY), "1099511627776";
    /// Longest wait for a reply's head.
    first_byte_timeout_seconds: Seconds(0.001, DAY), "30";
    /// Longest wait for more of a reply's body.
    idle_timeout_seconds: Seconds(0.001, DAY), "60";
    /// Longest that all attempts together may take, up to a reply's head.
    timeout_seconds: Seconds(0.001, DAY), "first_byte_timeout_seconds";
    /// Longest from a request to the last byte of its reply; then the reply is cut.
    reply_timeout_seconds: Seconds(0.001, DAY), "none";
    /// Protocols that a request may change to.
    upgrades: Texts(8, 64), "websocket";
    /// Longest silence in both directions after such a change.
    upgrade_idle_timeout_seconds: Seconds(0.001, DAY), "3600";
    /// A breaker of the route's own, beside the upstream's.
    breaker: Shared(BREAKER_KEYS), "none";
    /// What takes the place of the gateway's own 502, 503 and 504: another upstream, a fixed reply, or the upstream first and then the reply.
    fallback: Table, "none";
    /// Another upstream, which is tried once if that is safe and time is left.
    fallback.upstream: Text(1, 64), "none";
    /// The status of a fixed reply.
    fallback.status: Number(200, 599), "503";
    /// The body of a fixed reply.
    fallback.body: Text(0, 1 << 20), "empty";
    /// The media type of the body.
    fallback.content_type: Text(1, 256), "text/plain; charset=utf-8";
    /// Whether replies are compressed (zstd, br, gzip) for clients that ask for it, where that is allowed and worth it.
    compress after mirror: Flag, "false";
    /// Whether a second server is asked the same, by GET, HEAD or OPTIONS, when the first is later than 95 of a hundred replies of the route.
    hedge after compress: Flag, "false";
    /// Which requests are refused first when this process cannot keep up: see `gateway.shed_after`.
    priority after hedge: Word(&["low", "normal", "critical"]), "normal";
    /// Another upstream for a part of the requests.
    canary: Table, "none";
    /// The canary's upstream. The other requests go to `upstream`.
    canary.upstream: Text(1, 64), "";
    /// How many of a hundred clients it gets; `0.5`: one of two hundred. Each stays on its side; more only add to those that are there.
    canary.percent: Percent, "0";
    /// Fields, all of which send a request to the canary, too.
    canary.header: Pairs(100), "none";
    /// Cookies, all of which send a request to the canary, beside the fields of `header` if there are any.
    canary.cookie: Pairs(20), "none";
    /// What stays on its side: `client` (its proved identity, or its address), `header:NAME` or `cookie:NAME`.
    canary.sticky_by: Text(1, 256), "client";
    /// Another upstream for copies of requests, whose replies are dropped.
    mirror: Table, "none";
    /// The mirror's upstream.
    mirror.upstream: Text(1, 64), "";
    /// How many of a hundred requests are copied.
    mirror.percent: Number(0, 100), "100";
};

/// The keys of changes to header fields, a request's or a reply's.
const EDIT_KEYS: &[DocumentKey] = document_keys! {
    /// Names of fields that are removed.
    remove after set: Texts(100, 256), "none";
    /// Fields that replace those of the same name.
    set after add: Pairs(100), "none";
    /// Fields that are added to those of the same name.
    add: Pairs(100), "none";
};
