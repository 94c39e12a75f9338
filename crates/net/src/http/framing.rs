//! Where a request of HTTP/1.1 ends, and which requests are refused because that is in doubt (fault 32).
//!
//! Two readers of one byte stream that disagree about where a request ends let a client smuggle one past
//! the first of them. So what RFC 9112 leaves to the reader's patience is refused here, before hyper or a
//! service sees it, and the connection ends:
//!
//! | in a request | answer |
//! |---|---|
//! | a line that ends in a bare LF; a bare CR; a folded field; NUL; no field name | 400 |
//! | no `Host`, or more than one; one that is no host (HTTP/1.0 may have none) | 400 |
//! | more than one `Content-Length`, equal or not, or one that is not all digits | 400 |
//! | `Transfer-Encoding` beside `Content-Length`, in HTTP/1.0, twice, or other than `chunked` | 400 |
//! | bytes behind a request that asks for an upgrade, before its reply; if it might be granted, then after it | 400 |
//! | a target with a fragment, or bytes that no URI has | 400 |
//! | absolute form (`GET http://host/ HTTP/1.1`): of another scheme, with a user, or not of `Host` | 400 |
//! | authority form, or `*` with a method other than OPTIONS | 400 |
//! | CONNECT: there are no tunnels here | 501 |
//! | a target or a head that is too large, too many fields | 414, 431 |
//! | in chunks: a bare LF, blanks around the size, over 15 digits, a long extension or trailer | 400 |
//! | in HTTP/2: CONNECT, unless it is an offer to go on in another protocol; more than one `host`, or one that differs from `:authority` | 501, 400 |
//!
//! The absolute form of the same host is served: RFC 9112, 3.2.2 wants it.
//!
//! Deliberately absent: what a request means, and stripping of hop-by-hop fields, which nothing here
//! forwards.

use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Uri};
use httparse::Header;

use super::body_end::{Chunks, Framing};
use super::refused::Refused;

/// Header fields that a request may have.
pub(super) const MAX_FIELDS: usize = 100;

/// What RFC 9113 counts for a field beside its name and value.
const FIELD_BYTES: usize = 32;

/// What a head says of the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) body: Framing,
    /// The client offers to change the protocol.
    pub(super) upgrade: bool,
    /// HTTP/1.1 in origin form, a method whose reply has its body, nothing about the connection, no
    /// expectation: a request that [`super::Plain`] may read.
    pub(super) simple: bool,
}

/// Judges a head that was parsed from `raw`.
pub(super) fn judge(
    head: &httparse::Request<'_, '_>,
    raw: &[u8],
    max_target_bytes: usize,
) -> Result<Judged, Refused> {
    if has_bare_lf(raw) {
        return Err(Refused::BARE_LF);
    }
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(Refused::MALFORMED);
    };
    let is_http11 = version == 1;
    let (mut host, mut length, mut coding) = (None, None, None);
    let (mut upgrade, mut simple) = (false, is_http11 && method != "HEAD");
    for Header { name, value } in &*head.headers {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // By length first: nearly every other field is told apart by it alone.
        match name.len() {
            4 if is("host") => {
                let is_second = host.replace(*value).is_some();
                if is_second || !is_host(value) {
                    return Err(Refused::HOST);
                }
            }
            14 if is("content-length") => {
                let digits = decimal(value).ok_or(Refused::LENGTH)?;
                if length.replace(digits).is_some() {
                    return Err(Refused::LENGTH);
                }
            }
            17 if is("transfer-encoding") => {
                let is_second = coding.replace(()).is_some();
                if is_second || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refused::CODING);
                }
            }
            10 if is("connection") => simple &= value.eq_ignore_ascii_case(b"keep-alive"),
            6 if is("expect") => simple = false,
            // A client that takes trailers gets them by way of hyper.
            2 if is("te") => simple = false,
            7 if is("upgrade") => upgrade = true,
            _ => {}
        }
    }
    if host.is_none() && is_http11 {
        return Err(Refused::HOST);
    }
    if coding.is_some() && (length.is_some() || !is_http11) {
        return Err(Refused::CODING);
    }
    let is_path = target_form(method, target, host, max_target_bytes)?;
    let body = match coding {
        Some(()) => Framing::Chunked(Chunks::START),
        None => Framing::Length(length.unwrap_or(0)),
    };
    Ok(Judged { body, upgrade, simple: simple && is_path && !upgrade && coding.is_none() })
}

/// The same for a request of HTTP/2, whose framing is the protocol's (RFC 9113, 8.3.1).
pub(super) fn judge_http2<B>(
    request: &Request<B>,
    max_target_bytes: usize,
    max_head_bytes: usize,
) -> Result<(), Refused> {
    if request.method() == Method::CONNECT {
        return Err(Refused::TUNNEL);
    }
    let target = request.uri().path_and_query().map(PathAndQuery::as_str).unwrap_or_default();
    if target.len() > max_target_bytes {
        return Err(Refused::TARGET_TOO_LONG);
    }
    // hyper lets bytes pass that are in no URI, and in no target of HTTP/1.1 either.
    if !target.bytes().all(is_in_targets) {
        return Err(Refused::TARGET);
    }
    if header_list_bytes(request) > max_head_bytes {
        return Err(Refused::TOO_LARGE);
    }
    let mut hosts = request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
    let (host, authority) = (hosts.next(), request.uri().authority());
    if hosts.next().is_some() || !host.is_none_or(is_host) {
        return Err(Refused::HOST);
    }
    let authority = authority.map(|authority| authority.as_str().as_bytes());
    match (authority, host) {
        (Some(authority), _) if !is_host(authority) => Err(Refused::HOST),
        (Some(authority), Some(host)) if !host.eq_ignore_ascii_case(authority) => Err(Refused::OTHER_HOST),
        _ => Ok(()),
    }
}

/// The size of a request's header list: names and values, and [`FIELD_BYTES`] for each (RFC 9113, 6.5.2).
fn header_list_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let of_target = |text: Option<&str>| text.map_or(0, |text| text.len() + FIELD_BYTES);
    // The names of `:method`, `:scheme`, `:authority` and `:path` have 29 letters.
    let pseudo = 29
        + request.method().as_str().len()
        + FIELD_BYTES
        + of_target(uri.scheme_str())
        + of_target(uri.authority().map(Authority::as_str))
        + of_target(uri.path_and_query().map(PathAndQuery::as_str));
    let fields =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    pseudo + fields.sum::<usize>()
}

/// Whether the target is in origin form; the others are judged here.
fn target_form(
    method: &str,
    target: &str,
    host: Option<&[u8]>,
    max_target_bytes: usize,
) -> Result<bool, Refused> {
    if target.len() > max_target_bytes {
        return Err(Refused::TARGET_TOO_LONG);
    }
    if method == "CONNECT" {
        return Err(Refused::TUNNEL);
    }
    if !target.bytes().all(is_in_targets) {
        return Err(Refused::TARGET);
    }
    if target.starts_with('/') {
        return Ok(true);
    }
    if target == "*" {
        return if method == "OPTIONS" { Ok(false) } else { Err(Refused::TARGET) };
    }
    let uri: Uri = target.parse().map_err(|_| Refused::TARGET)?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map(Authority::as_str).filter(|it| !it.contains('@'));
    match (authority, host) {
        (Some(authority), _) if !is_web || authority.is_empty() => Err(Refused::TARGET),
        (Some(authority), Some(host)) if !host.eq_ignore_ascii_case(authority.as_bytes()) => {
            Err(Refused::OTHER_HOST)
        }
        (Some(authority), _) if !is_host(authority.as_bytes()) => Err(Refused::HOST),
        (Some(_), _) => Ok(false),
        (None, _) => Err(Refused::TARGET),
    }
}

fn is_in_targets(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && byte != b'#'
}

/// Written so that the compiler can compare many bytes at once: every request passes here.
fn has_bare_lf(raw: &[u8]) -> bool {
    let behind = raw.iter().zip(raw.get(1..).unwrap_or_default());
    let bare = |found: bool, (before, byte): (&u8, &u8)| found | ((*byte == b'\n') & (*before != b'\r'));
    raw.first() == Some(&b'\n') || behind.fold(false, bare)
}

/// A host and perhaps a port (RFC 9110, 7.2), without the marks that no host in use has. An empty one is what a
/// client sends whose target names no authority. What has two ports, or something behind a bracket, servers read
/// differently.
fn is_host(value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(byte);
    let port = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            if !rest[..end].iter().all(|byte| *byte == b':' || plain(byte)) {
                return false;
            }
            &rest[end + 1..]
        }
        None => {
            let end = value.iter().position(|byte| !plain(byte)).unwrap_or(value.len());
            &value[end..]
        }
    };
    port.is_empty() || port.strip_prefix(b":").is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    // `parse` alone would take a sign.
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Where the head ends that `input` begins with: after its first empty line. `scanned` bytes of it were
/// looked at before, and remembers how many are now.
pub(super) fn head_end(input: &[u8], scanned: &mut usize) -> Option<usize> {
    // Empty lines before a request are none of its own (RFC 9112, 2.2).
    let leading = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    // Back to where an end that was cut in two may begin.
    let from = scanned.saturating_sub(3).max(leading);
    *scanned = input.len();
    let found = input.get(from..)?.windows(2).position(|pair| pair == b"\n\n" || pair == b"\n\r")?;
    let end = from + found + 2;
    match input[end - 1] {
        b'\n' => Some(end),
        // The CR of an empty line: its LF is due, or the head is malformed, which the parser says.
        _ if input.len() > end => Some(end + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(raw: &str) -> Result<Judged, Refused> {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Request::new(&mut fields);
        let parsed = head.parse(raw.as_bytes()).map_err(Refused::unparsed)?;
        assert!(parsed.is_complete(), "{raw:?}");
        judge(&head, raw.as_bytes(), 100)
    }

    /// A server that is sent more of them takes `/caf\u{e9}` for `/caf%C3%A9`, which may be another route's.
    #[test]
    fn a_target_of_http2_has_bytes_that_one_of_http1_may_have() {
        let judged = |target: &str| judge_http2(&Request::get(target).body(()).unwrap(), 100, 1000);
        assert!(judged("http://t/caf%C3%A9?x={|}").is_ok());
        for target in ["http://t/caf\u{e9}", "http://t/?\u{e9}"] {
            assert_eq!(judged(target).unwrap_err().reason, Refused::TARGET.reason, "{target}");
        }
    }

    #[test]
    fn a_head_says_what_follows_it() {
        let plain = judged("POST /a HTTP/1.1\r\nHost: a.example:80\r\ncontent-length: 12\r\n\r\n").unwrap();
        assert_eq!(plain, Judged { body: Framing::Length(12), upgrade: false, simple: true });
        let chunked = judged("POST / HTTP/1.1\r\nhost:\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap();
        assert_eq!((chunked.body, chunked.simple), (Framing::Chunked(Chunks::START), false));
        for doubtless in [
            "GET / HTTP/1.0\r\n\r\n",
            "HEAD / HTTP/1.1\r\nhost: t\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET http://T:80/x HTTP/1.1\r\nhost: t:80\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: [::1]:4000\r\nupgrade: h2c\r\n\r\n",
        ] {
            let judged = judged(doubtless).unwrap();
            assert!(judged.body.is_over() && !judged.simple, "{doubtless:?}");
        }
    }

    #[test]
    fn a_host_has_one_port_and_nothing_behind_its_bracket() {
        for host in
            ["", "a", "a.example:80", "a:", "[::1]", "[::1]:80", "[fe80::1%25eth0]:80", "a_b", "a%20b"]
        {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in
            ["a:80:80", "a:b", "[::1].evil", "[::1]a:80", "[::1", "::1", "a]", "[[::1]]", "a/b", "a@b", "a b"]
        {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut() {
        let head = b"\r\n\r\nGET / HTTP/1.1\r\nhost: t\r\n\r\nrest";
        let end = head.len() - 4;
        for cut in 0..head.len() {
            let mut scanned = 0;
            let first = head_end(&head[..cut], &mut scanned);
            assert_eq!(first, (cut >= end).then_some(end), "cut at {cut}");
            assert_eq!(first.or_else(|| head_end(head, &mut scanned)), Some(end), "cut at {cut}");
        }
        assert_eq!(head_end(b"GET / HTTP/1.1\n\nrest", &mut 0), Some(16), "for the parser to judge");
        assert_eq!(head_end(b"\r\n\r\n\r\n", &mut 0), None);
    }
}
