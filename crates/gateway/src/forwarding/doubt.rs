//! Replies in doubt: the gateway does not pass on a reply that a client could read differently from this proxy.
//!
//! It is beyond doubt where a reply ends if its length is stated once or it comes in chunks, and not both; and its head has a bound.
//! What is in doubt is said by a field's name: what the field says may be a secret.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Response};
use thiserror::Error;

use crate::forwarding::fields::MAX_HEAD_BYTES;

/// What is in doubt of a reply.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum Doubt {
    #[error("content-length is there more than once")]
    Lengths,
    #[error("content-length is no number")]
    NoNumber,
    #[error("content-length and transfer-encoding are both there")]
    Both,
    #[error("transfer-encoding is not just chunked")]
    Coding,
    #[error("upgrade names another protocol than the request asked for")]
    Upgrade,
    #[error("the head is larger than {limit} bytes, most of them in {field}")]
    Large { limit: usize, field: HeaderName },
}

impl Doubt {
    /// What is in doubt of where this reply ends, and of its size.
    pub(crate) fn of<B>(reply: &Response<B>) -> Option<Self> {
        let fields = reply.headers();
        let only = |name: HeaderName| {
            let mut lines = fields.get_all(name).iter();
            (lines.next().map(HeaderValue::as_bytes), lines.next().is_some())
        };
        let framing = match (only(CONTENT_LENGTH), only(TRANSFER_ENCODING)) {
            ((None, _), (None, _)) => None,
            ((Some(_), _), (Some(_), _)) => Some(Self::Both),
            ((Some(_), true), _) => Some(Self::Lengths),
            ((Some(length), false), _) => (!length.iter().all(u8::is_ascii_digit)).then_some(Self::NoNumber),
            (_, (Some(coding), is_repeated)) => {
                let is_chunked = !is_repeated && coding.eq_ignore_ascii_case(b"chunked");
                (!is_chunked).then_some(Self::Coding)
            }
        };
        if framing.is_some() {
            return framing;
        }
        // The protocol below checks this before it reads, not after.
        let bytes: usize = fields.iter().map(|(name, value)| line_bytes(name, value)).sum();
        if bytes <= MAX_HEAD_BYTES {
            return None;
        }
        let of_all_lines = |name: &&HeaderName| -> usize {
            fields.get_all(*name).iter().map(|value| line_bytes(name, value)).sum()
        };
        let largest = fields.keys().max_by_key(of_all_lines);
        largest.map(|field| Self::Large { limit: MAX_HEAD_BYTES, field: field.clone() })
    }
}

fn line_bytes(name: &HeaderName, value: &HeaderValue) -> usize {
    name.as_str().len() + value.len() + 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(fields: &[(&'static str, &'static str)]) -> Response<()> {
        let mut reply = Response::new(());
        for (name, value) in fields {
            reply.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        reply
    }

    /// Fields of a reply, and what is in doubt of it.
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<Doubt>);

    #[test]
    fn fault_62_what_is_in_doubt_of_a_reply_is_said_by_its_name() {
        let cases: [Case<'_>; 9] = [
            (&[], None),
            (&[("content-length", "3")], None),
            (&[("transfer-encoding", "Chunked")], None),
            (&[("content-length", "3"), ("content-length", "3")], Some(Doubt::Lengths)),
            (&[("content-length", "3, 3")], Some(Doubt::NoNumber)),
            (&[("content-length", "+3")], Some(Doubt::NoNumber)),
            (&[("content-length", "3"), ("transfer-encoding", "chunked")], Some(Doubt::Both)),
            (&[("transfer-encoding", "gzip, chunked")], Some(Doubt::Coding)),
            (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], Some(Doubt::Coding)),
        ];
        for (fields, doubt) in cases {
            assert_eq!(Doubt::of(&reply(fields)), doubt, "{fields:?}");
        }
        let mut large = reply(&[("x-small", "1"), ("x-many", "2"), ("x-many", "3")]);
        let letters = HeaderValue::try_from("a".repeat(MAX_HEAD_BYTES)).expect("letters");
        large.headers_mut().append("x-large", letters);
        let said = Doubt::of(&large).expect("it is too large").to_string();
        assert_eq!(said, "the head is larger than 65536 bytes, most of them in x-large");
    }
}
