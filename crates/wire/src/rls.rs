//! Envoy's rate-limit service, version 3: its messages, and gRPC's frame around them.
//!
//! The messages are derived by hand instead of generated: they are seven, their numbers are frozen by
//! the API's own compatibility promise, and a build step with a protobuf compiler would cost every
//! build more than they do. Fields that Tidegate neither reads nor writes are left out; protobuf skips
//! what it does not know. The tests hold the numbers against bytes written by hand.
//!
//! Reference: envoy/service/ratelimit/v3/rls.proto and
//! envoy/extensions/common/ratelimit/v3/ratelimit.proto; the frame: gRPC over HTTP/2,
//! "Length-Prefixed-Message".

use std::collections::BTreeMap;

use prost::Message;
use thiserror::Error;

/// Largest message of health checks and reflection that is read, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Largest rate-limit request that is read, in bytes: Envoy takes 60 KiB of header fields from a client by default, and may
/// be told to send the same field in many descriptors.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Bytes of the frame's head: a flag and a length.
const HEAD_BYTES: usize = 5;

/// `RateLimitRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    /// Which application's limits are meant.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is to be limited; each is a demand of its own.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    /// Units of each descriptor that has no number of its own; 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `RateLimitDescriptor`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Descriptor {
    /// What is known of the request.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that replaces the service's own.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<Override>,
    /// Units of this descriptor.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<Hits>,
    /// Whether its units are given back instead of taken; Envoy sends it from 1.38 on.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `RateLimitDescriptor.Entry`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Entry {
    /// A name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// A value: a text to the API, and what a client wrote to Envoy, which sends bytes that are none as they are.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `RateLimitDescriptor.RateLimitOverride`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Override {
    /// Units per `unit`.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// See [`Unit`].
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
}

/// `google.protobuf.UInt64Value`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Hits {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// `RateLimitResponse`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Response {
    /// Over the limit if any descriptor is.
    #[prost(enumeration = "RateLimitCode", tag = "1")]
    pub overall_code: i32,
    /// One per descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// What Envoy is to keep with the request, for its access log and other filters.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Metadata>,
}

impl Response {
    /// A denial of a request as a whole, without a look at its descriptors.
    #[must_use]
    pub fn over_limit() -> Self {
        Self { overall_code: RateLimitCode::OverLimit.into(), ..Self::default() }
    }
}

/// `google.protobuf.Struct`, as far as it is used: names and texts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Metadata {
    /// Each name with its value.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, TextValue>,
}

/// `google.protobuf.Value` that is a text.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TextValue {
    /// The text; absent where the value is something else.
    #[prost(string, optional, tag = "3")]
    pub string_value: Option<String>,
}

impl Metadata {
    /// One name with its text.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        Self { fields: [(name.to_owned(), TextValue { string_value: Some(text.to_owned()) })].into() }
    }
}

/// `RateLimitResponse.DescriptorStatus`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DescriptorStatus {
    /// Whether the descriptor is over its limit.
    #[prost(enumeration = "RateLimitCode", tag = "1")]
    pub code: i32,
    /// The limit that speaks for it; none if it has none.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    /// Units left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// If over the limit, until it pays to ask again; else until everything is back.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// `RateLimitResponse.RateLimit`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CurrentLimit {
    /// Units per `unit`.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// See [`Unit`].
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// The policy's name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `google.protobuf.Duration`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, below a second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `RateLimitResponse.Code`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum RateLimitCode {
    /// Never sent.
    Unknown = 0,
    /// Within every limit.
    Ok = 1,
    /// Over one.
    OverLimit = 2,
}

/// `RateLimitUnit`, and `RateLimitResponse.RateLimit.Unit`, which has the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None of the others.
    Unknown = 0,
    /// 1 s
    Second = 1,
    /// 60 s
    Minute = 2,
    /// 3,600 s
    Hour = 3,
    /// A day.
    Day = 4,
    /// A month.
    Month = 5,
    /// A year.
    Year = 6,
    /// Seven days.
    Week = 7,
}

impl Unit {
    /// Seconds of a unit that always has the same length.
    #[must_use]
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::Second => Some(1),
            Self::Minute => Some(60),
            Self::Hour => Some(3_600),
            Self::Day => Some(86_400),
            Self::Week => Some(7 * 86_400),
            Self::Unknown | Self::Month | Self::Year => None,
        }
    }

    /// The unit of this length, or [`Unit::Unknown`].
    #[must_use]
    pub fn of_seconds(seconds: u64) -> Self {
        let units = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week];
        units.into_iter().find(|unit| unit.seconds().map(u64::from) == Some(seconds)).unwrap_or(Self::Unknown)
    }
}

/// Why a request's bytes are not one message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Not exactly one frame.
    #[error("the body is not exactly one length-prefixed message")]
    Frame,
    /// The flag says that the message is compressed.
    #[error("compressed messages are not supported: send them as they are")]
    Compressed,
    /// Not the expected message.
    #[error("malformed message: {0}")]
    Message(prost::DecodeError),
}

/// Reads the one message of a unary call.
///
/// # Errors
/// When `body` is anything else.
pub fn decode<M: Message + Default>(body: &[u8]) -> Result<M, FrameError> {
    let (head, message) = body.split_first_chunk::<HEAD_BYTES>().ok_or(FrameError::Frame)?;
    let [flag, length @ ..] = *head;
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(FrameError::Frame);
    }
    match flag {
        0 => M::decode(message).map_err(FrameError::Message),
        1 => Err(FrameError::Compressed),
        _ => Err(FrameError::Frame),
    }
}

/// Bytes of the frame that `received` begins with, once its head is there.
#[must_use]
pub fn frame_bytes(received: &[u8]) -> Option<usize> {
    let [_flag, length @ ..] = *received.first_chunk::<HEAD_BYTES>()?;
    Some(HEAD_BYTES + usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX - HEAD_BYTES))
}

/// A message in its frame.
#[must_use]
pub fn encode<M: Message>(message: &M) -> Vec<u8> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(HEAD_BYTES + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode(&mut bytes).expect("a vector grows");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_numbers_are_the_protocols() {
        // Written by hand: field number << 3 | wire type, length, value.
        let entry = b"\x0a\x01k\x12\x01v";
        let limit = b"\x08\x07\x10\x02";
        let hits = b"\x08\x05";
        let descriptor =
            [&b"\x0a\x06"[..], entry, b"\x12\x04", limit, b"\x1a\x02", hits, b"\x20\x01"].concat();
        let request = [&b"\x0a\x01d\x12\x14"[..], &descriptor, b"\x18\x03"].concat();
        let expected = Request {
            domain: "d".into(),
            descriptors: vec![Descriptor {
                entries: vec![Entry { key: "k".into(), value: "v".into() }],
                limit: Some(Override { requests_per_unit: 7, unit: Unit::Minute.into() }),
                hits_addend: Some(Hits { value: 5 }),
                is_negative_hits: true,
            }],
            hits_addend: 3,
        };
        assert_eq!(Request::decode(&request[..]), Ok(expected));
        let response = Response {
            overall_code: RateLimitCode::OverLimit.into(),
            statuses: vec![DescriptorStatus {
                code: RateLimitCode::OverLimit.into(),
                current_limit: Some(CurrentLimit { requests_per_unit: 7, unit: 2, name: "p".into() }),
                limit_remaining: 1,
                duration_until_reset: Some(Duration { seconds: 9, nanos: 0 }),
            }],
            dynamic_metadata: Some(Metadata::of("degraded", "open")),
        };
        let metadata = b"\x32\x14\x0a\x12\x0a\x08degraded\x12\x06\x1a\x04open";
        let status = b"\x08\x02\x12\x07\x08\x07\x10\x02\x1a\x01p\x18\x01\x22\x02\x08\x09";
        let bytes = [&b"\0\0\0\0\x2b\x08\x02\x12\x11"[..], status, metadata].concat();
        assert_eq!(encode(&response), bytes);
    }

    #[test]
    fn a_body_is_one_frame_or_refused() {
        let whole = encode(&Hits { value: 5 });
        assert_eq!(whole, b"\0\0\0\0\x02\x08\x05");
        assert_eq!(decode(&whole), Ok(Hits { value: 5 }));
        for broken in
            [&b""[..], b"\0\0\0\0", &whole[..6], b"\0\0\0\0\x02\x08\x05\0", b"\x02\0\0\0\x02\x08\x05"]
        {
            assert_eq!(decode::<Hits>(broken), Err(FrameError::Frame));
        }
        assert_eq!(decode::<Hits>(b"\x01\0\0\0\x02\x08\x05"), Err(FrameError::Compressed));
        assert!(matches!(decode::<Hits>(b"\0\0\0\0\x01\x08"), Err(FrameError::Message(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = decode::<Request>(&body) {
                prop_assert_eq!(decode(&encode(&request)), Ok(request));
            }
        }
    }
}
