//! Header sections: where they end, and the three fields that frame a message.
//!
//! Lines may end in CRLF or in a bare LF (RFC 9112, 2.2 lets a recipient take both). Obsolete line
//! folding, a line without a colon, and lengths that contradict one another are errors.

use memchr::memchr;
use thiserror::Error;

/// Why a header section is not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// The first line is no status or request line.
    #[error("not an HTTP/1 start line")]
    StartLine,
    /// A field line has no colon, or white space before its name or behind it.
    #[error("malformed field line")]
    Field,
    /// Content-Length is no number, or there are two that differ.
    #[error("invalid or contradictory Content-Length")]
    Length,
    /// Transfer-Encoding in HTTP/1.0.
    #[error("Transfer-Encoding in an HTTP/1.0 message")]
    Coding,
    /// The header section is longer than the limit.
    #[error("header section longer than {0} bytes")]
    TooLong(usize),
}

/// The fields that say where a message ends and whether the connection lives on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Framing {
    pub(super) content_length: Option<u64>,
    pub(super) coded: bool,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
}

/// Lines of a header section, without their ends, up to and without the empty one.
pub(super) struct HeaderLines<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What [`HeaderLines::next`] found.
pub(super) enum Line<'a> {
    Text(&'a [u8]),
    /// The empty line; the section is this many bytes long.
    End(usize),
    Partial,
}

impl<'a> HeaderLines<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn next(&mut self) -> Line<'a> {
        let rest = &self.bytes[self.at..];
        let Some(length) = memchr(b'\n', rest) else {
            return Line::Partial;
        };
        self.at += length + 1;
        match rest[..length].strip_suffix(b"\r").unwrap_or(&rest[..length]) {
            [] => Line::End(self.at),
            text => Line::Text(text),
        }
    }
}

impl Framing {
    /// Takes note of one field line.
    pub(super) fn note(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let colon = memchr(b':', line).filter(|&at| at > 0).ok_or(HeadError::Field)?;
        let name = &line[..colon];
        // Some readers take a name with a blank at its end for that field, and others for another field (RFC 9112,
        // 5.1).
        if matches!(name, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
            return Err(HeadError::Field);
        }
        let value = || line[colon + 1..].trim_ascii();
        match colon {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_length(value())?,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in list(value()) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.coded = true;
                self.chunked =
                    list(value()).last().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
            }
            _ => {}
        }
        Ok(())
    }

    fn note_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        for part in list(value) {
            let length = decimal(part).ok_or(HeadError::Length)?;
            if self.content_length.is_some_and(|known| known != length) {
                return Err(HeadError::Length);
            }
            self.content_length = Some(length);
        }
        self.content_length.map(|_| ()).ok_or(HeadError::Length)
    }
}

/// The fields of a complete header section, its start line skipped; values are trimmed.
pub fn headers(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut lines = HeaderLines::new(head);
    // The start line.
    lines.next();
    std::iter::from_fn(move || {
        let Line::Text(line) = lines.next() else {
            return None;
        };
        let colon = memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// The non-empty, trimmed members of a comma-separated value.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

/// Digits only, at most 19 of them, so that no length overflows.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + u64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(lines: &[&str]) -> Result<Framing, HeadError> {
        let mut framing = Framing::default();
        lines.iter().try_for_each(|line| framing.note(line.as_bytes()))?;
        Ok(framing)
    }

    #[test]
    fn framing_fields_are_read_in_any_case() {
        let read = framing(&["CONTENT-length:  12 ", "X: y", "connection: x, Close"]).unwrap();
        assert_eq!(read, Framing { content_length: Some(12), close: true, ..Framing::default() });
        assert!(framing(&["Transfer-Encoding: gzip, chunked"]).unwrap().chunked);
        assert!(!framing(&["Transfer-Encoding: chunked, gzip"]).unwrap().chunked);
    }

    #[test]
    fn malformed_fields_are_refused() {
        for (line, error) in [
            ("no colon", HeadError::Field),
            (": value", HeadError::Field),
            (" folded: x", HeadError::Field),
            ("Content-Length : 2", HeadError::Field),
            ("X\t: y", HeadError::Field),
            ("Content-Length: -1", HeadError::Length),
            ("Content-Length: 1, 2", HeadError::Length),
            ("Content-Length:", HeadError::Length),
            ("Content-Length: 99999999999999999999", HeadError::Length),
        ] {
            assert_eq!(framing(&[line]), Err(error), "{line}");
        }
        assert!(framing(&["Content-Length: 7", "Content-Length: 7"]).is_ok());
    }

    #[test]
    fn headers_are_listed_without_the_start_line() {
        let all: Vec<_> = headers(b"HTTP/1.1 200 OK\r\nA: 1\r\nB:2 \n\r\nbody: x\r\n").collect();
        assert_eq!(all, [(&b"A"[..], &b"1"[..]), (&b"B"[..], &b"2"[..])]);
    }
}
