//! Where the body of a request of HTTP/1.1 ends, byte by byte: what [`super::framing`] says of a head, followed.

use super::refused::Refused;

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes.
    Length(u64),
    /// The rest of a chunked body.
    Chunked(Chunks),
}

/// Where in the chunked coding (RFC 9112, 7.1) the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    /// In the hexadecimal size, of which `digits` were read.
    Size { size: u64, digits: u8 },
    /// In an extension of so many bytes.
    Extension { size: u64, length: u16 },
    /// At the LF of a size line.
    SizeEnd { size: u64 },
    /// In data, with so many bytes to come.
    Data { left: u64 },
    /// At the CR, or the LF, behind data.
    DataEnd { cr: bool },
    /// In a trailer line of so many bytes; `total` counts all of them.
    Trailer { line: u16, total: u16 },
    /// At the LF of a trailer line.
    TrailerEnd { line: u16, total: u16 },
}

/// Sizes up to 2^60 - 1. No body is longer.
const MAX_DIGITS: u8 = 15;
/// Longest extension, and longest trailer section.
const MAX_EXTRA: u16 = 8_192;

impl Framing {
    /// Whether nothing is to come.
    pub(super) fn is_over(self) -> bool {
        self == Self::Length(0)
    }

    /// Goes over `bytes`: how many of them belong to the body.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        match self {
            Self::Length(left) => {
                let part = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= part as u64;
                Ok(part)
            }
            Self::Chunked(chunks) => {
                let (used, over) = chunks.advance(bytes)?;
                if over {
                    *self = Self::Length(0);
                }
                Ok(used)
            }
        }
    }
}

impl Chunks {
    pub(super) const START: Self = Self::Size { size: 0, digits: 0 };
    fn advance(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refused> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if let Self::Data { left } = self {
                let part = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += part;
                *left -= part as u64;
                if *left == 0 {
                    *self = Self::DataEnd { cr: false };
                }
                continue;
            }
            at += 1;
            if matches!(self, Self::TrailerEnd { line: 0, .. }) {
                return if *byte == b'\n' { Ok((at, true)) } else { Err(Refused::CHUNKS) };
            }
            *self = self.step(*byte).ok_or(Refused::CHUNKS)?;
        }
        Ok((at, false))
    }

    /// One byte outside data, and not the body's last one.
    fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Self::Size { size: size << 4 | digit, digits: digits + 1 }
            }
            (Self::Size { size, digits: 1.. }, b';') => Self::Extension { size, length: 0 },
            (Self::Size { size, digits: 1.. } | Self::Extension { size, .. }, b'\r') => {
                Self::SizeEnd { size }
            }
            (Self::Extension { size, length }, _) if byte != b'\n' && length < MAX_EXTRA => {
                Self::Extension { size, length: length + 1 }
            }
            (Self::SizeEnd { size: 0 }, b'\n') => Self::Trailer { line: 0, total: 0 },
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
            (Self::DataEnd { cr: false }, b'\r') => Self::DataEnd { cr: true },
            (Self::DataEnd { cr: true }, b'\n') => Self::START,
            (Self::Trailer { line, total }, b'\r') => Self::TrailerEnd { line, total },
            (Self::Trailer { line, total }, _) if byte != b'\n' && total < MAX_EXTRA => {
                Self::Trailer { line: line + 1, total: total + 1 }
            }
            (Self::TrailerEnd { total, .. }, b'\n') => Self::Trailer { line: 0, total },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_followed_to_their_end_byte_by_byte_and_at_once() {
        let body = b"4;a=b\r\nWiki\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n";
        let mut at_once = Framing::Chunked(Chunks::START);
        assert_eq!(at_once.advance(&[&body[..], b"GET"].concat()), Ok(body.len()));
        assert!(at_once.is_over());
        let mut slowly = Framing::Chunked(Chunks::START);
        for (index, byte) in body.iter().enumerate() {
            assert!(!slowly.is_over(), "over before byte {index}");
            assert_eq!(slowly.advance(&[*byte]), Ok(1));
        }
        assert!(slowly.is_over());
    }

    #[test]
    fn fault_32_chunks_in_doubt_are_refused() {
        for bytes in [
            &b"\r\n"[..],
            b"g\r\n",
            b" 1\r\n",
            b"1 \r\n",
            b"-1\r\n",
            b"1\n",
            b"1\rx",
            b"1;a\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"1\r\na\rb",
            b"0\r\n\n",
            b"0\r\nx: y\n",
            b"0\r\n\rx",
            b"1000000000000000\r\n",
            b";x\r\n",
        ] {
            let mut framing = Framing::Chunked(Chunks::START);
            assert!(framing.advance(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
