//! Compressed replies, on routes that want them, for clients that ask (RFC 9110, 12.5.3): zstd, brotli or gzip.
//!
//! A reply is left as it is if it is small, encoded already, a part of something (206), of a type that does not get
//! smaller, or not to be changed: `Cache-Control: no-transform` of either side, or a digest of what is sent. Whether it
//! is compressed or not, a cache is told that it depends on `Accept-Encoding`. HEAD and 304 have the fields that the
//! compressed reply would have.
//!
//! What has come of a streamed reply is sent whenever no more is there, so that events are not held back. Bodies are
//! never gathered: a reply costs the memory of one encoder, about 1 MiB, and [`MAX_AT_ONCE`] replies have one.

mod encode;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body as HttpBody;
use tidegate_net::http::{Body, BoxError};

use encode::{BodyEncoder, CompressedBody, whole};

/// Most streamed replies that are compressed at once; beyond it they pass as they are.
pub const MAX_AT_ONCE: usize = 256;

/// A smaller reply is left as it is.
const MIN_BYTES: u64 = 1_024;

/// Digests of what is sent, which would be wrong.
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// How a reply can be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    fn word(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// What a request says of its reply's encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedEncoding {
    coding: Option<Coding>,
    is_head: bool,
}

impl WantedEncoding {
    pub(crate) fn of(request: &Parts) -> Self {
        let coding = wanted(&request.headers).filter(|_| !is_fixed(&request.headers));
        Self { coding, is_head: request.method == Method::HEAD }
    }
}

/// What became of replies that could be compressed for who asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// They were.
    pub compressed: u64,
    /// Too many were at that time.
    pub no_room: u64,
    /// Streamed ones that are being compressed.
    pub at_once: usize,
}

/// Compresses the replies of a process.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    at_once: AtomicUsize,
    compressed: AtomicU64,
    no_room: AtomicU64,
}

/// Room for one streamed reply.
struct CompressionPlace(Arc<Compressor>);

impl Drop for CompressionPlace {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Relaxed);
    }
}

impl Compressor {
    pub(crate) fn stats(&self) -> CompressionStats {
        CompressionStats {
            compressed: self.compressed.load(Relaxed),
            no_room: self.no_room.load(Relaxed),
            at_once: self.at_once.load(Relaxed),
        }
    }

    fn place(self: &Arc<Self>) -> Option<CompressionPlace> {
        let taken =
            self.at_once.fetch_update(Relaxed, Relaxed, |count| (count < MAX_AT_ONCE).then_some(count + 1));
        if taken.is_err() {
            self.no_room.fetch_add(1, Relaxed);
        }
        taken.ok().map(|_| CompressionPlace(Arc::clone(self)))
    }

    /// The reply as it is asked for.
    pub(crate) fn apply(self: &Arc<Self>, reply: Response<Body>, asked: WantedEncoding) -> Response<Body> {
        let (mut head, body) = reply.into_parts();
        let is_known_already = head.status == StatusCode::NOT_MODIFIED;
        if !is_known_already && !is_eligible(head.status, &head.headers) {
            return Response::from_parts(head, body);
        }
        vary(&mut head.headers);
        let Some(coding) = asked.coding else { return Response::from_parts(head, body) };
        if is_known_already {
            weaken(&mut head.headers);
            return Response::from_parts(head, body);
        }
        let length = match &body {
            Body::Full(plain) => Some(plain.len() as u64),
            _ => stated_length(&head.headers),
        };
        let is_long = length.is_none_or(|length| length >= MIN_BYTES);
        let body = match body {
            // What is not sent is not compressed, and its length stays unsaid.
            _ if asked.is_head && is_long => {
                mark(&mut head.headers, coding);
                return Response::from_parts(head, Body::Empty);
            }
            Body::Full(plain) if is_long => match whole(coding, &plain) {
                Some(encoded) => Ok(Body::Full(encoded)),
                None => Err(Body::Full(plain)),
            },
            Body::Streamed(inner) if is_long => self.streamed(coding, inner).map_err(Body::Streamed),
            other => Err(other),
        };
        match body {
            Ok(encoded) => {
                self.compressed.fetch_add(1, Relaxed);
                mark(&mut head.headers, coding);
                Response::from_parts(head, encoded)
            }
            Err(plain) => Response::from_parts(head, plain),
        }
    }

    /// A body that is encoded as it comes; itself if there is no room for that.
    fn streamed<B>(self: &Arc<Self>, coding: Coding, inner: B) -> Result<Body, B>
    where
        B: HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
    {
        let Some(place) = self.place() else { return Err(inner) };
        let Ok(encoder) = BodyEncoder::new(coding, None) else { return Err(inner) };
        Ok(Body::streamed(CompressedBody::new(inner, encoder, place)))
    }
}

/// The coding with the highest weight in the request among those that there are; of equal weights the better coding.
fn wanted(fields: &HeaderMap) -> Option<Coding> {
    const CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
    let (mut stated, mut others, mut plain) = ([None; 3], None, None);
    let lines = fields.get_all(ACCEPT_ENCODING).iter();
    for member in lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let place = match parts.next().unwrap_or_default().to_ascii_lowercase().as_slice() {
            b"zstd" => &mut stated[0],
            b"br" => &mut stated[1],
            b"gzip" | b"x-gzip" => &mut stated[2],
            b"identity" => &mut plain,
            b"*" => &mut others,
            _ => continue,
        };
        *place = Some(parts.next().map_or(1_000, quality));
    }
    let likings = stated.map(|liking: Option<u32>| liking.or(others).unwrap_or(0));
    // Of several maxima the last one is found: the first coding, in this order.
    let (liking, coding) = likings.into_iter().zip(CODINGS).rev().max_by_key(|(liking, _)| *liking)?;
    (liking > 0 && plain.is_none_or(|plain| plain <= liking)).then_some(coding)
}

/// The weight of `q=0.8` in thousandths; 0 if it is not a weight.
fn quality(parameter: &[u8]) -> u32 {
    let text = std::str::from_utf8(parameter).unwrap_or_default();
    let value = text.strip_prefix("q=").or_else(|| text.strip_prefix("Q="));
    let number =
        value.and_then(|value| value.parse::<f64>().ok()).filter(|number| (0.0..=1.0).contains(number));
    (number.unwrap_or(0.0) * 1_000.0) as u32
}

fn is_eligible(status: StatusCode, fields: &HeaderMap) -> bool {
    let is_whole = status.is_success()
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT
        );
    let is_plain = !fields.contains_key(CONTENT_ENCODING) && !fields.contains_key(CONTENT_RANGE);
    let has_digest = DIGESTS.iter().any(|name| fields.contains_key(name));
    is_whole
        && is_plain
        && !has_digest
        && !is_fixed(fields)
        && fields.get(CONTENT_TYPE).is_some_and(gets_smaller)
}

/// Whether one side forbids proxies to change what is sent (`no-transform`).
fn is_fixed(fields: &HeaderMap) -> bool {
    fields.get_all(CACHE_CONTROL).iter().any(|line| {
        let mut words = line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        words.any(|word| word.eq_ignore_ascii_case(b"no-transform"))
    })
}

fn gets_smaller(media_type: &HeaderValue) -> bool {
    let essence = media_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii().to_ascii_lowercase();
    let known: [&[u8]; 7] = [
        b"application/json",
        b"application/javascript",
        b"application/x-javascript",
        b"application/xml",
        b"application/x-ndjson",
        b"application/wasm",
        b"application/yaml",
    ];
    // gRPC compresses its messages itself.
    !essence.starts_with(b"application/grpc")
        && (essence.starts_with(b"text/")
            || essence.ends_with(b"+json")
            || essence.ends_with(b"+xml")
            || known.contains(&essence.as_slice()))
}

fn stated_length(fields: &HeaderMap) -> Option<u64> {
    fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Tells caches that the reply depends on what the request accepts.
fn vary(fields: &mut HeaderMap) {
    let has = |word: &[u8]| word.eq_ignore_ascii_case(b"accept-encoding") || word == b"*";
    let lines = fields.get_all(VARY).iter();
    let mut words =
        lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if !words.any(has) {
        fields.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// Says how the reply is encoded. Its bytes are others now: parts of it are not to be had, and its tag is weak.
fn mark(fields: &mut HeaderMap, coding: Coding) {
    fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.word()));
    fields.remove(CONTENT_LENGTH);
    fields.remove(ACCEPT_RANGES);
    weaken(fields);
}

/// Makes the reply's tag one that says less than that the bytes are the same.
fn weaken(fields: &mut HeaderMap) {
    let tag = fields.get(ETAG).map(HeaderValue::as_bytes).filter(|tag| tag.starts_with(b"\""));
    if let Some(weak) = tag.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag].concat()).ok()) {
        fields.insert(ETAG, weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in pairs {
            fields.append(*name, value.parse().unwrap());
        }
        fields
    }

    #[test]
    fn the_coding_is_the_one_that_is_liked_best() {
        for (accepted, coding) in [
            ("", None),
            ("br", Some(Coding::Brotli)),
            ("deflate", None),
            ("identity", None),
            ("gzip", Some(Coding::Gzip)),
            ("GZIP;q=0.5, br;q=0.4", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip;q=1, zstd;q=0.9", Some(Coding::Gzip)),
            ("gzip;q=0, zstd;q=0.000", None),
            ("*", Some(Coding::Zstd)),
            ("*, zstd;q=0", Some(Coding::Brotli)),
            ("br, gzip", Some(Coding::Brotli)),
            ("gzip;q=nan", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip", Some(Coding::Gzip)),
            ("gzip;q=7", None),
            ("gzip;x", None),
        ] {
            assert_eq!(wanted(&fields(&[("accept-encoding", accepted)])), coding, "{accepted}");
        }
        assert_eq!(wanted(&fields(&[])), None);
        let lines = fields(&[("accept-encoding", "identity"), ("accept-encoding", "gzip")]);
        assert_eq!(wanted(&lines), Some(Coding::Gzip));
    }

    #[test]
    fn what_must_not_be_changed_is_left_alone() {
        let json = ("content-type", "application/json; charset=utf-8");
        let eligible = |status: u16, more: &[(&'static str, &str)]| {
            is_eligible(StatusCode::from_u16(status).unwrap(), &fields(&[&[json][..], more].concat()))
        };
        assert!(eligible(200, &[]) && eligible(201, &[("cache-control", "no-store")]));
        for status in [101, 204, 205, 206, 301, 304, 404, 500] {
            assert!(!eligible(status, &[]), "{status}");
        }
        for field in [
            ("content-encoding", "br"),
            ("content-range", "bytes 0-1/2"),
            ("cache-control", "private, No-Transform"),
            ("content-digest", "sha-256=:a:"),
        ] {
            assert!(!eligible(200, &[field]), "{field:?}");
        }
        for (kind, smaller) in [
            ("text/event-stream", true),
            ("image/svg+xml", true),
            ("application/problem+json", true),
            ("image/png", false),
            ("application/grpc", false),
            ("application/grpc+json", false),
            ("application/octet-stream", false),
        ] {
            assert_eq!(gets_smaller(&kind.parse().unwrap()), smaller, "{kind}");
        }
    }

    #[test]
    fn a_tag_becomes_weak_and_caches_are_told_once() {
        let mut told =
            fields(&[("etag", "\"a\""), ("accept-ranges", "bytes"), ("vary", "origin, Accept-Encoding")]);
        vary(&mut told);
        mark(&mut told, Coding::Gzip);
        let expected =
            fields(&[("etag", "W/\"a\""), ("vary", "origin, Accept-Encoding"), ("content-encoding", "gzip")]);
        assert_eq!(told, expected);
        mark(&mut told, Coding::Gzip);
        assert_eq!(told["etag"], "W/\"a\"");
    }

    #[test]
    fn no_more_than_the_bound_are_streamed_at_once() {
        let compressor = Arc::new(Compressor::default());
        let mut places: Vec<CompressionPlace> =
            (0..MAX_AT_ONCE).map(|_| compressor.place().unwrap()).collect();
        assert!(compressor.place().is_none());
        places.pop();
        assert!(compressor.place().is_some());
        drop(places);
        assert_eq!(compressor.stats(), CompressionStats { no_room: 1, ..CompressionStats::default() });
    }
}
