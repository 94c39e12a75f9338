//! Header fields on their way through: what is about one connection stays there (RFC 9110, 7.6.1), what
//! a proxy adds is added, and what only the proxy may state is taken off what a client sent.
//!
//! | field | towards the upstream |
//! |---|---|
//! | `Connection` and what it names, `Keep-Alive`, `Proxy-*`, `TE` but trailers, `Transfer-Encoding`, `Upgrade` | removed |
//! | `Trailer` | stays where the body has no stated length, so that there can be trailers |
//! | `Forwarded`, `X-Real-IP` | removed; the first made anew elsewhere, if that is asked for |
//! | any other `X-Forwarded-` | removed, unless a proxy in front is trusted |
//! | `X-Forwarded-For` | the client's chain if a proxy in front is trusted, then the peer's address, in one line |
//! | `X-Forwarded-Proto`, `X-Forwarded-Host` | set, unless a trusted proxy in front has |
//! | `X-Forwarded-Prefix` | what the route strips off the path, after what a trusted proxy in front has |
//! | `X-Request-Id` | kept from a trusted proxy, or made |
//! | `traceparent` | a child of what came, or a new trace; what came twice is none |
//! | `tracestate` | stays with the trace that it came with, removed with a new one |
//! | `Via` | added, with the protocol in which the request came |
//! | the same names with underscores, dots or other marks, which some servers take for them | removed |
//! | `Cookie` in several lines, as HTTP/2 has it | joined (RFC 9113, 8.2.3) |

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use tidegate_wire::trace_context::TraceContext;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const FORWARDED_ANY: &str = "x-forwarded-";
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Most bytes of a reply's head.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most fields of a reply's head.
pub(crate) const MAX_FIELDS: usize = 128;

/// Fields that speak of one connection, `Connection` aside. As text: a list of names would be made anew at each use.
const HOP_BY_HOP: [&str; 8] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Changes to header fields: first remove, then set, then add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Removed.
    pub remove: Vec<HeaderName>,
    /// Set in place of what was there.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Added to what was there.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

/// Whether a field speaks of one connection, or frames a message, so that no configuration may set it.
pub(crate) fn is_of_the_connection(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH || is_hop_by_hop(name.as_str())
}

/// Whether a field speaks of one connection.
fn is_hop_by_hop(name: &str) -> bool {
    name == "connection" || HOP_BY_HOP.contains(&name)
}

/// Whether only a proxy may state a field of this name. Of those that begin with `X-Forwarded-` there are many that
/// servers believe: `-Port`, `-Prefix`, `-Server`, `-Ssl`, ...
fn is_of_the_proxy(name: &str) -> bool {
    name.starts_with(FORWARDED_ANY) || matches!(name, "forwarded" | "x-real-ip" | "x-request-id")
}

/// Whether a name has a character that some servers take for a dash.
fn has_mark(name: &str) -> bool {
    name.bytes().any(|byte| byte != b'-' && !byte.is_ascii_alphanumeric())
}

/// Takes off fields that a server which writes underscores for dashes, as CGI does, or for all but letters and digits, as PHP
/// does for dots, would take for those that address or frame the message, that a proxy states, or that `edits` are about.
fn strip_lookalikes(fields: &mut HeaderMap, edits: &FieldEdits) {
    let is_mark = |character: char| !character.is_ascii_alphanumeric();
    let is_alike = |name: &&HeaderName| {
        let Ok(dashed) = HeaderName::try_from(name.as_str().replace(is_mark, "-")) else { return true };
        dashed == header::HOST
            || is_of_the_connection(&dashed)
            || is_of_the_proxy(dashed.as_str())
            || edits.remove.contains(&dashed)
            || edits.set.iter().chain(&edits.add).any(|(name, _)| *name == dashed)
    };
    let marked = fields.keys().filter(|name| has_mark(name.as_str()));
    let alike: Vec<HeaderName> = marked.filter(is_alike).cloned().collect();
    for name in alike {
        fields.remove(name);
    }
}

/// Makes one line of several cookies: HTTP/2 may send them apart, HTTP/1.1 may not.
fn join_cookies(fields: &mut HeaderMap) {
    let lines: Vec<&[u8]> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
    {
        fields.insert(header::COOKIE, joined);
    }
}

/// Whether a reply leaves open where its body ends. After one to GET its server closes the connection; some do so after one to HEAD,
/// too, without a word, and a request that is on its way there then meets the close.
pub(crate) fn says_no_length<B>(reply: &Response<B>) -> bool {
    let has_none = matches!(reply.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let stated = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    !has_none && !stated.iter().any(|name| reply.headers().contains_key(name))
}

/// How long a server keeps its connection, as it says in whole seconds: `Keep-Alive: timeout=5, max=100` (RFC 2068, 19.7.1.1).
pub(crate) fn idle_time(reply: &HeaderMap) -> Option<Duration> {
    let stated = reply.get(KEEP_ALIVE)?.to_str().ok()?.split(',').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())
    });
    stated?.map(Duration::from_secs)
}

/// Whether an `Authorization` proves to a server of HTTP/1.1 whose its connection is, and not whose the request is: by NTLM, which
/// goes by the name of Negotiate, too (RFC 4559, 6). All that follows on the connection is then that client's.
pub(crate) fn is_proof_of_connection(authorization: &HeaderValue) -> bool {
    // Some servers take a tab for a blank.
    let scheme = authorization.as_bytes().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    [&b"ntlm"[..], b"negotiate"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Takes off what speaks of the connection that the message came on.
pub(crate) fn strip_hop_by_hop(fields: &mut HeaderMap) {
    // Most messages have none of these.
    if !fields.keys().any(|name| is_hop_by_hop(name.as_str())) {
        return;
    }
    if let header::Entry::Occupied(entry) = fields.entry(header::CONNECTION) {
        let (_, lines) = entry.remove_entry_mult();
        let lines: Vec<HeaderValue> = lines.collect();
        for word in lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b',')) {
            // What frames or addresses the message is not the client's to have taken off. `TE` is looked at below.
            if let Ok(name) = HeaderName::from_bytes(word.trim_ascii())
                && !matches!(name, header::CONTENT_LENGTH | header::HOST | header::TE)
            {
                fields.remove(name);
            }
        }
    }
    let wants_trailers = fields.get(header::TE).is_some_and(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    let has_length = fields.contains_key(header::CONTENT_LENGTH);
    for name in HOP_BY_HOP.into_iter().filter(|name| has_length || *name != "trailer") {
        fields.remove(name);
    }
    if wants_trailers {
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes off a message's trailers what only its head may state: who merges the two must not be told by a trailer what
/// the head was kept from saying.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap, edits: &FieldEdits) {
    strip_lookalikes(trailers, edits);
    let is_of_the_head = |name: &&HeaderName| {
        **name == header::HOST
            || is_of_the_connection(name)
            || is_of_the_proxy(name.as_str())
            || edits.remove.contains(name)
            || edits.set.iter().any(|(set, _)| set == *name)
    };
    let refused: Vec<HeaderName> = trailers.keys().filter(is_of_the_head).cloned().collect();
    for name in refused {
        trailers.remove(name);
    }
}

/// Fields that [`onward`] adds, at most.
const ADDED: usize = 7;

/// What a proxy knows of a request and tells its upstream.
pub(crate) struct Onward<'a> {
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
    /// A proxy in front is trusted: what it stated stays.
    pub(crate) is_trusted: bool,
    pub(crate) trace: TraceContext,
    /// The protocol in which the request came.
    pub(crate) received: Version,
    /// What is stripped off the front of its path; empty: nothing.
    pub(crate) prefix: &'a str,
    pub(crate) edits: &'a FieldEdits,
}

/// What a request's fields are about, as one pass over their names says: most requests have none of these fields, and
/// looking for each by its name takes far longer.
#[derive(Debug, Default, PartialEq, Eq)]
struct SeenFields {
    trace: bool,
    cookie: bool,
    hop_by_hop: bool,
    marked: bool,
    of_the_proxy: bool,
}

impl SeenFields {
    fn of(fields: &HeaderMap) -> Self {
        let mut seen = Self::default();
        for name in fields.keys().map(HeaderName::as_str) {
            seen.trace |= matches!(name, "traceparent" | "tracestate");
            seen.cookie |= name == "cookie";
            seen.hop_by_hop |= is_hop_by_hop(name);
            seen.marked |= has_mark(name);
            seen.of_the_proxy |= is_of_the_proxy(name);
        }
        seen
    }
}

/// Makes a request's fields those that the upstream gets.
pub(crate) fn onward(fields: &mut HeaderMap, about: &Onward<'_>) {
    let seen = SeenFields::of(fields);
    // It speaks of the caller's trace (W3C trace context, 3.3.1.3 and 4.3).
    if seen.trace && caller(fields).is_none() {
        fields.remove(TRACESTATE);
    }
    if seen.hop_by_hop {
        strip_hop_by_hop(fields);
    }
    if seen.marked {
        strip_lookalikes(fields, about.edits);
    }
    if seen.cookie {
        join_cookies(fields);
    }
    if seen.of_the_proxy {
        strip_proxys(fields, about.is_trusted);
    }
    fields.reserve(ADDED);
    let peer = address_value(about.peer.ip().to_canonical());
    match about.is_trusted && seen.of_the_proxy {
        true => add_to_chain(fields, &peer),
        false => drop(fields.insert(FORWARDED_FOR, peer)),
    }
    let scheme = HeaderValue::from_static(if about.is_tls { "https" } else { "http" });
    fields.entry(FORWARDED_PROTO).or_insert(scheme);
    if let Some(host) = fields.get(header::HOST).cloned() {
        fields.entry(FORWARDED_HOST).or_insert(host);
    }
    if !about.prefix.is_empty() {
        add_to_prefix(fields, about.prefix);
    }
    fields.entry(REQUEST_ID).or_insert_with(|| digits(&about.trace.trace_id().digits()));
    fields.insert(TRACEPARENT, digits(&about.trace.field()));
    fields.append(header::VIA, HeaderValue::from_static(via(about.received)));
    edit(fields, about.edits);
}

/// Takes off what only a proxy may state; of a trusted one, what this gateway does not pass on.
fn strip_proxys(fields: &mut HeaderMap, is_trusted: bool) {
    let is_dropped = |name: &&HeaderName| {
        let is_kept = is_trusted && **name != header::FORWARDED && **name != REAL_IP;
        is_of_the_proxy(name.as_str()) && !is_kept
    };
    let dropped: Vec<HeaderName> = fields.keys().filter(is_dropped).cloned().collect();
    for name in dropped {
        fields.remove(name);
    }
}

/// Most bytes of an address as text.
const ADDRESS_BYTES: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();

fn address_value(address: IpAddr) -> HeaderValue {
    let mut text = [0; ADDRESS_BYTES];
    let mut rest = &mut text[..];
    // Invariant: it fits.
    let _infallible = write!(rest, "{address}");
    let left = rest.len();
    digits(&text[..ADDRESS_BYTES - left])
}

/// Puts what is stripped here behind what proxies in front have stripped, so that a server can make links that lead back to it.
fn add_to_prefix(fields: &mut HeaderMap, stripped: &str) {
    let before = fields.get(FORWARDED_PREFIX).and_then(|before| before.to_str().ok());
    let before = before.map_or("", |before| before.trim_end_matches('/'));
    if let Ok(prefix) = HeaderValue::try_from(format!("{before}{stripped}")) {
        fields.insert(FORWARDED_PREFIX, prefix);
    }
}

/// Adds the peer to the chain of addresses. It is one line then, however many came: who reads the first or the last line only
/// would take another's word for it.
fn add_to_chain(fields: &mut HeaderMap, peer: &HeaderValue) {
    let lines = fields.get_all(FORWARDED_FOR).iter().map(|line| line.as_bytes().trim_ascii());
    let mut chain: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    chain.push(peer.as_bytes());
    if let Ok(chain) = HeaderValue::from_bytes(&chain.join(&b", "[..])) {
        fields.insert(FORWARDED_FOR, chain);
    }
}

/// Makes strong tags of the weak ones in `If-Match`, for a route that compresses: a server's strong tag is weak for who got its
/// reply compressed, and no weak tag ever matches there (RFC 9110, 13.1.1). Tags that were weak before still match nothing.
pub(crate) fn strengthen_tags(fields: &mut HeaderMap) {
    let header::Entry::Occupied(mut entry) = fields.entry(header::IF_MATCH) else { return };
    for line in entry.iter_mut() {
        let tags = line.to_str().map(|tags| tags.replace("W/\"", "\""));
        if let Ok(tags) = tags.map(HeaderValue::try_from)
            && let Ok(tags) = tags
        {
            *line = tags;
        }
    }
}

/// This proxy and the protocol in which it got a message (RFC 9110, 7.6.3).
fn via(received: Version) -> &'static str {
    match received {
        Version::HTTP_10 => "1.0 tidegate",
        Version::HTTP_2 => "2.0 tidegate",
        _ => "1.1 tidegate",
    }
}

/// By which name the upstream knows the request.
pub(crate) fn request_id(fields: &HeaderMap) -> Option<HeaderValue> {
    fields.get(REQUEST_ID).cloned()
}

/// Where the caller stands in a trace, if it says so in one field that can be read.
pub(crate) fn caller(fields: &HeaderMap) -> Option<TraceContext> {
    let mut lines = fields.get_all(TRACEPARENT).iter();
    let (only, None) = (lines.next()?, lines.next()) else { return None };
    TraceContext::parse(only.as_bytes())
}

/// The trace that a request belongs to: a child of the caller's, or its own.
pub(crate) fn trace(fields: &HeaderMap, random: [u64; 3]) -> TraceContext {
    let [high, low, span] = random;
    match caller(fields) {
        Some(parent) => parent.child(span),
        None => TraceContext::root((u128::from(high) << 64) | u128::from(low), span),
    }
}

/// The protocol that a request offers to go on in, if it is among those that its route allows. That of a whole new
/// connection, h2c, would let requests pass that no route sees; so only what is named is allowed.
pub(crate) fn offered_protocol(fields: &HeaderMap, allowed: &[Box<str>]) -> Option<HeaderValue> {
    let mut lines = fields.get_all(header::UPGRADE).iter();
    let (only, None) = (lines.next()?, lines.next()) else { return None };
    allowed.iter().any(|name| only.as_bytes().eq_ignore_ascii_case(name.as_bytes())).then(|| only.clone())
}

/// Makes a reply's fields those that the client gets. A server's date stays, since `Age` and `Expires` go by it (RFC 9110, 6.6.1);
/// of two, neither: then ours is added.
pub(crate) fn back(fields: &mut HeaderMap, edits: &FieldEdits) {
    strip_hop_by_hop(fields);
    if fields.get_all(header::DATE).iter().nth(1).is_some() {
        fields.remove(header::DATE);
    }
    edit(fields, edits);
}

pub(crate) fn edit(fields: &mut HeaderMap, edits: &FieldEdits) {
    for name in &edits.remove {
        fields.remove(name);
    }
    for (name, value) in &edits.set {
        fields.insert(name, value.clone());
    }
    for (name, value) in &edits.add {
        fields.append(name, value.clone());
    }
}

/// Digits and letters that this program wrote, as the value of a field.
pub(crate) fn digits(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;
