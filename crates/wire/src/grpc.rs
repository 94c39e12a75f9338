//! How a call of gRPC ends: a code, and words for people.
//!
//! Follows gRPC over HTTP/2 (`doc/PROTOCOL-HTTP2.md` of grpc/grpc) for the form, and `doc/statuscodes.md` there for what
//! codes mean. Which code stands for which status of HTTP is said in one place, [`Code::of_http`].

/// The codes of gRPC that are told here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// It failed, and no other code says how.
    Unknown = 2,
    /// What the client asks for is not acceptable, whoever is asked.
    InvalidArgument = 3,
    /// The time was over. What was asked for may have been done.
    DeadlineExceeded = 4,
    /// There is nothing of that name.
    NotFound = 5,
    /// This client may not do it.
    PermissionDenied = 7,
    /// A limit is used up, or a message is too large.
    ResourceExhausted = 8,
    /// There is no such method.
    Unimplemented = 12,
    /// What gRPC itself stands on is broken: the request is no good HTTP.
    Internal = 13,
    /// Nobody can answer now. Clients may try again.
    Unavailable = 14,
    /// The client has not proved who it is.
    Unauthenticated = 16,
}

impl Code {
    /// What somebody says in gRPC who would have answered plain HTTP with `status`, which is no success.
    ///
    /// Decision 0350 has the reasons. Clients have a list of their own for replies without a code
    /// (`doc/http-grpc-status-mapping.md`); this one differs from it where more is known here than a client can guess.
    #[must_use]
    pub const fn of_http(status: u16) -> Self {
        match status {
            400 | 414 | 431 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 | 405 | 501 => Self::Unimplemented,
            408 | 504 => Self::DeadlineExceeded,
            413 | 429 => Self::ResourceExhausted,
            502 | 503 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// The number that `grpc-status` has.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// The value of `grpc-message` for a text: space and printable ASCII stay, `%` and all other bytes are `%` and two digits.
///
/// The result is a value that any header field can have; it is up to three times as long.
#[must_use]
pub fn percent_encoded(text: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                encoded.push('%');
                encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
                encoded.push(char::from(DIGITS[usize::from(byte & 0xf)]));
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_status_has_the_code_that_the_decision_gives_it() {
        for (status, code) in [
            (308, 2),
            (400, 13),
            (401, 16),
            (403, 7),
            (404, 12),
            (405, 12),
            (408, 4),
            (409, 2),
            (413, 8),
            (414, 13),
            (429, 8),
            (431, 13),
            (500, 2),
            (501, 12),
            (502, 14),
            (503, 14),
            (504, 4),
            (599, 2),
        ] {
            assert_eq!(Code::of_http(status).number(), code, "{status}");
        }
    }

    #[test]
    fn no_failure_is_told_as_a_success() {
        for status in 300..=u16::MAX {
            assert_ne!(Code::of_http(status), Code::Ok, "{status}");
        }
    }

    #[test]
    fn messages_are_encoded_as_grpc_has_them() {
        assert_eq!(percent_encoded("50 % of \u{e9}\r\n~".as_bytes()), "50 %25 of %C3%A9%0D%0A~");
    }

    /// As the specification has it: what is no escape stays.
    fn decoded(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            let digits = after.get(..2).filter(|_| *first == b'%');
            let escaped = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &after[2..];
                }
                None => {
                    bytes.push(*first);
                    rest = after;
                }
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_field_value_and_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let encoded = percent_encoded(&bytes);
            prop_assert!(encoded.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{encoded}");
            prop_assert!(encoded.len() <= 3 * bytes.len());
            prop_assert_eq!(decoded(&encoded), bytes);
        }
    }
}
