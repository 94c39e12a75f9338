//! Header fields on their way through: what is about one connection stays there (RFC 9110, 7.6.1), what
//! a proxy adds is added, and what only the proxy may state is taken off what a client sent.
//!
//! | field | towards the upstream |
//! |---|---|
//! | `Connection` and what it names, `Keep-Alive`, `Proxy-*`, `TE` but trailers, `Transfer-Encoding`, `Upgrade` | removed |
//! | `Trailer` | stays where the body has no stated length, so that there can be trailers |
//! | `Forwarded`, `X-Real-IP` | removed; the first made anew elsewhere, if that is asked for |
//! | any other `X-Forwarded-` | removed, unless a proxy in front is trusted |
//! | `X-Forwarded-For` | the client's chain if a proxy in front is trusted, then the peer's address |
//! | `X-Forwarded-Proto`, `X-Forwarded-Host` | set, unless a trusted proxy in front has |
//! | `X-Request-Id` | kept from a trusted proxy, or made |
//! | `traceparent` | a child of what came, or a new trace; what came twice is none |
//! | `tracestate` | stays with the trace that it came with, removed with a new one |
//! | `Via` | added, with the protocol in which the request came |
//! | the same names with underscores, which some servers take for them | removed |
//! | `Cookie` in several lines, as HTTP/2 has it | joined (RFC 9113, 8.2.3) |

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Response, Version, header};
use tidegate_wire::trace_context::TraceContext;

use crate::config::FieldEdits;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_ANY: &str = "x-forwarded-";
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Most bytes of a reply's head.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most fields of a reply's head.
pub(crate) const MAX_FIELDS: usize = 128;

/// Fields that speak of one connection, `Connection` aside.
const HOP_BY_HOP: [HeaderName; 8] = [
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Whether a field speaks of one connection, or frames a message, so that no configuration may set it.
pub(crate) fn is_of_the_connection(name: &HeaderName) -> bool {
    *name == header::CONNECTION || *name == header::CONTENT_LENGTH || HOP_BY_HOP.contains(name)
}

/// Whether only a proxy may state a field of this name. Of those that begin with `X-Forwarded-` there are many that
/// servers believe: `-Port`, `-Prefix`, `-Server`, `-Ssl`, ...
fn is_of_the_proxy(name: &str) -> bool {
    name.starts_with(FORWARDED_ANY)
        || [header::FORWARDED, REAL_IP, REQUEST_ID].iter().any(|known| known == name)
}

/// Takes off fields that a server which writes underscores for dashes, as CGI does, would take for those that
/// address or frame the message, that a proxy states, or that `edits` are about.
fn strip_lookalikes(fields: &mut HeaderMap, edits: &FieldEdits) {
    let is_alike = |name: &&HeaderName| {
        let Ok(dashed) = HeaderName::try_from(name.as_str().replace('_', "-")) else { return true };
        dashed == header::HOST
            || is_of_the_connection(&dashed)
            || is_of_the_proxy(dashed.as_str())
            || edits.remove.contains(&dashed)
            || edits.set.iter().chain(&edits.add).any(|(name, _)| *name == dashed)
    };
    let underscored = fields.keys().filter(|name| name.as_str().contains('_'));
    let alike: Vec<HeaderName> = underscored.filter(is_alike).cloned().collect();
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

/// Whether a reply may be passed on: it is beyond doubt where it ends, for its length is stated once or it comes in
/// chunks, and not both; and its head is not too large. Of any other, a client and this proxy might read two
/// different replies.
pub(crate) fn is_sound<B>(reply: &Response<B>) -> bool {
    let only = |name: HeaderName| {
        let mut lines = reply.headers().get_all(name).iter();
        (lines.next().map(HeaderValue::as_bytes), lines.next().is_some())
    };
    let is_whole = match (only(header::CONTENT_LENGTH), only(header::TRANSFER_ENCODING)) {
        ((None, _), (None, _)) => true,
        ((Some(length), false), (None, _)) => length.iter().all(u8::is_ascii_digit),
        ((None, _), (Some(coding), false)) => coding.eq_ignore_ascii_case(b"chunked"),
        _ => false,
    };
    // The protocol below checks this before it reads, not after.
    let bytes: usize =
        reply.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    is_whole && bytes <= MAX_HEAD_BYTES
}

/// Takes off what speaks of the connection that the message came on.
pub(crate) fn strip_hop_by_hop(fields: &mut HeaderMap) {
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
    // Most messages have none of these.
    if !fields.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let wants_trailers = fields.get(header::TE).is_some_and(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    let has_length = fields.contains_key(header::CONTENT_LENGTH);
    for name in HOP_BY_HOP.iter().filter(|name| has_length || **name != header::TRAILER) {
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
const ADDED: usize = 6;

/// What a proxy knows of a request and tells its upstream.
pub(crate) struct Onward<'a> {
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
    /// A proxy in front is trusted: what it stated stays.
    pub(crate) is_trusted: bool,
    pub(crate) trace: TraceContext,
    /// The protocol in which the request came.
    pub(crate) received: Version,
    pub(crate) edits: &'a FieldEdits,
}

/// Makes a request's fields those that the upstream gets.
pub(crate) fn onward(fields: &mut HeaderMap, about: &Onward<'_>) {
    // It speaks of the caller's trace (W3C trace context, 3.3.1.3 and 4.3).
    if caller(fields).is_none() {
        fields.remove(TRACESTATE);
    }
    strip_hop_by_hop(fields);
    strip_lookalikes(fields, about.edits);
    join_cookies(fields);
    let is_dropped = |name: &&HeaderName| {
        let is_kept = about.is_trusted && **name != header::FORWARDED && **name != REAL_IP;
        is_of_the_proxy(name.as_str()) && !is_kept
    };
    let dropped: Vec<HeaderName> = fields.keys().filter(is_dropped).cloned().collect();
    for name in dropped {
        fields.remove(name);
    }
    fields.reserve(ADDED);
    fields.append(FORWARDED_FOR, value(about.peer.ip().to_canonical().to_string()));
    let scheme = HeaderValue::from_static(if about.is_tls { "https" } else { "http" });
    fields.entry(FORWARDED_PROTO).or_insert(scheme);
    if let Some(host) = fields.get(header::HOST).cloned() {
        fields.entry(FORWARDED_HOST).or_insert(host);
    }
    fields.entry(REQUEST_ID).or_insert_with(|| digits(&about.trace.trace_id().digits()));
    fields.insert(TRACEPARENT, digits(&about.trace.field()));
    fields.append(header::VIA, HeaderValue::from_static(via(about.received)));
    edit(fields, about.edits);
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

/// Makes a reply's fields those that the client gets. The server writes its own date.
pub(crate) fn back(fields: &mut HeaderMap, edits: &FieldEdits) {
    strip_hop_by_hop(fields);
    fields.remove(header::DATE);
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

/// A text of digits, letters and punctuation that this program wrote, as a field's value.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

pub(crate) fn digits(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn about(edits: &FieldEdits, is_trusted: bool) -> Onward<'_> {
        let peer = "[::ffff:10.0.0.1]:5".parse().expect("an address");
        let (trace, received) = (TraceContext::root(1, 2), Version::HTTP_11);
        Onward { peer, is_tls: false, is_trusted, trace, received, edits }
    }

    #[test]
    fn fields_of_the_connection_and_those_it_names_stay_there() {
        let mut sent = fields(&[
            ("connection", "close, x-mine, content-length, te, host"),
            ("x-mine", "1"),
            ("keep-alive", "5"),
            ("te", "gzip, Trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "x"),
            ("content-length", "3"),
            ("host", "a"),
            ("x-yours", "2"),
        ]);
        strip_hop_by_hop(&mut sent);
        let left = fields(&[("te", "trailers"), ("content-length", "3"), ("host", "a"), ("x-yours", "2")]);
        assert_eq!(sent, left);
    }

    #[test]
    fn the_state_of_another_trace_does_not_go_on_with_a_new_one() {
        const PARENT: (&str, &str) =
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03");
        const STATE: (&str, &str) = ("tracestate", "vendor=1");
        let sent = |pairs: &[(&'static str, &'static str)]| {
            let mut sent = fields(pairs);
            let trace = trace(&sent, [5, 6, 7]);
            onward(&mut sent, &Onward { trace, ..about(&FieldEdits::default(), false) });
            assert_eq!(sent.get_all("traceparent").iter().count(), 1);
            (sent["traceparent"].to_str().unwrap().to_owned(), sent.get_all("tracestate").iter().count())
        };
        let child = "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-03".to_owned();
        assert_eq!(sent(&[PARENT, STATE, ("tracestate", "other=2")]), (child, 2));
        let root = ("00-00000000000000050000000000000006-0000000000000007-02".to_owned(), 0);
        let other = ("traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        for new in [
            &[STATE][..],
            &[("traceparent", "garbage"), STATE],
            &[PARENT, other, STATE],
            &[PARENT, PARENT, STATE],
        ] {
            assert_eq!(sent(new), root, "{new:?}");
        }
    }

    #[test]
    fn fault_49_what_only_a_proxy_may_state_is_taken_off_what_a_client_sent() {
        let stated = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "bank"),
            ("x-forwarded-prefix", "/evil"),
            ("x_forwarded_port", "6"),
            ("x-real-ip", "6.6.6.6"),
            ("forwarded", "for=6.6.6.6"),
            ("x-request-id", "mine"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x_user", "root"),
            ("transfer_encoding", "chunked"),
            ("x_mine", "1"),
            ("host", "a"),
        ];
        let user = (HeaderName::from_static("x-user"), HeaderValue::from_static("nobody"));
        let edits = FieldEdits { set: vec![user], ..FieldEdits::default() };
        let mut from_client = fields(&stated);
        onward(&mut from_client, &about(&edits, false));
        assert_eq!(from_client["x-forwarded-for"], "10.0.0.1");
        assert_eq!(from_client["x-forwarded-proto"], "http");
        assert_eq!(from_client["x-forwarded-host"], "a");
        assert_eq!(from_client["x-request-id"], "00000000000000000000000000000001");
        for name in ["x-real-ip", "forwarded", "x-forwarded-prefix"] {
            assert!(!from_client.contains_key(name), "{name}");
        }
        let underscored: Vec<&str> =
            from_client.keys().map(HeaderName::as_str).filter(|name| name.contains('_')).collect();
        assert_eq!((underscored, &from_client["x-user"]), (vec!["x_mine"], &value("nobody".to_owned())));
        let mut from_proxy = fields(&stated);
        onward(&mut from_proxy, &about(&edits, true));
        let chain: Vec<&HeaderValue> = from_proxy.get_all("x-forwarded-for").iter().collect();
        assert_eq!(chain, ["6.6.6.6", "10.0.0.1"]);
        assert_eq!(
            ["x-forwarded-proto", "x-request-id", "x-forwarded-prefix"].map(|name| &from_proxy[name]),
            ["https", "mine", "/evil"]
        );
        assert_eq!(from_proxy["via"], "1.1 tidegate");
    }

    #[test]
    fn via_names_the_protocol_in_which_the_request_came() {
        for (received, said) in [(Version::HTTP_10, "1.0 tidegate"), (Version::HTTP_2, "2.0 tidegate")] {
            let mut sent = fields(&[("via", "1.0 fred")]);
            onward(&mut sent, &Onward { received, ..about(&FieldEdits::default(), false) });
            assert_eq!(sent.get_all("via").iter().collect::<Vec<_>>(), ["1.0 fred", said]);
        }
    }

    #[test]
    fn edits_remove_then_set_then_add() {
        let name = HeaderName::from_static("a");
        let pair = |text| (name.clone(), HeaderValue::from_static(text));
        let edits = FieldEdits { remove: vec![name.clone()], set: vec![pair("2")], add: vec![pair("3")] };
        let mut map = fields(&[("a", "0"), ("b", "1")]);
        edit(&mut map, &edits);
        let left: Vec<&HeaderValue> = map.get_all("a").iter().collect();
        assert_eq!(left, ["2", "3"]);
        assert_eq!(map["b"], "1");
    }
}
