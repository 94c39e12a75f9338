//! The chunked coding (RFC 9112, 7.1) as a state machine that stops at any byte.

/// Where the decoder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunked {
    /// In the hexadecimal size; `digits` were read.
    Size { size: u64, digits: u8 },
    /// In an extension after the size, which is skipped.
    Extension { size: u64, length: u16 },
    /// In chunk data, with this many bytes to come.
    Data(u64),
    /// After the data: CR and LF are due.
    DataEnd { cr: bool },
    /// In a trailer line that has this many bytes so far; `total` bounds the section.
    Trailer { line: u16, total: u16 },
}

/// What a chunked body has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkedPart<'a> {
    /// Bytes of the body.
    Data(&'a [u8]),
    /// Bytes of the trailer section, line ends included.
    Trailer(&'a [u8]),
}

/// The bytes are not the chunked coding, or exceed what a size line or the trailers may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedChunk;

/// Longest extension, and longest trailer section.
const MAX_EXTRA: u16 = 8_192;
/// Sizes up to 2^60 - 1. No body is longer.
const MAX_DIGITS: u8 = 15;

impl Chunked {
    pub(super) const START: Self = Self::Size { size: 0, digits: 0 };

    /// Decodes from the front of `bytes`: how many were used, and whether the body is complete.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(ChunkedPart<'_>),
    ) -> Result<(usize, bool), MalformedChunk> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let Self::Data(left) = *self {
                let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                take(ChunkedPart::Data(&bytes[at..at + part]));
                at += part;
                let left = left - part as u64;
                *self = if left == 0 { Self::DataEnd { cr: false } } else { Self::Data(left) };
                continue;
            }
            if matches!(self, Self::Trailer { .. }) {
                take(ChunkedPart::Trailer(&bytes[at..=at]));
            }
            at += 1;
            if self.step(byte)? {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// One byte outside chunk data; true at the end of the body.
    fn step(&mut self, byte: u8) -> Result<bool, MalformedChunk> {
        *self = match (*self, byte) {
            (Self::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < MAX_DIGITS => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                Self::Size { size: size << 4 | digit, digits: digits + 1 }
            }
            (Self::Size { size, digits: 1.. }, b'\n') => Self::after_size(size),
            (Self::Size { size, digits: 1.. }, b'\r' | b';' | b' ' | b'\t') => {
                Self::Extension { size, length: 0 }
            }
            (Self::Extension { size, .. }, b'\n') => Self::after_size(size),
            (Self::Extension { size, length }, _) if length < MAX_EXTRA => {
                Self::Extension { size, length: length + 1 }
            }
            (Self::DataEnd { cr: false }, b'\r') => Self::DataEnd { cr: true },
            (Self::DataEnd { .. }, b'\n') => Self::START,
            (Self::Trailer { line: 0, .. }, b'\n') => return Ok(true),
            (Self::Trailer { total, .. }, b'\n') => Self::Trailer { line: 0, total },
            (Self::Trailer { line: 0, total }, b'\r') if total < MAX_EXTRA => {
                Self::Trailer { line: 0, total: total + 1 }
            }
            (Self::Trailer { line, total }, _) if total < MAX_EXTRA => {
                Self::Trailer { line: line + 1, total: total + 1 }
            }
            _ => return Err(MalformedChunk),
        };
        Ok(false)
    }

    fn after_size(size: u64) -> Self {
        if size == 0 { Self::Trailer { line: 0, total: 0 } } else { Self::Data(size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>, usize, bool), MalformedChunk> {
        let (mut body, mut trailers) = (Vec::new(), Vec::new());
        let mut chunked = Chunked::START;
        let (used, done) = chunked.decode(bytes, |part| match part {
            ChunkedPart::Data(data) => body.extend_from_slice(data),
            ChunkedPart::Trailer(part) => trailers.extend_from_slice(part),
        })?;
        Ok((body, trailers, used, done))
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let bytes = b"4;a=b\r\nWiki\r\n6 \r\npedia \r\n0\r\nX: y\r\n\r\nnext";
        let trailers = b"X: y\r\n\r\n".to_vec();
        assert_eq!(read(bytes).unwrap(), (b"Wikipedia ".to_vec(), trailers, bytes.len() - 4, true));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bytes in [&b"\r\n"[..], b"g\r\n", b"-1\r\n", b"1\r\nabc", b"ffffffffffffffff\r\n", b";x\r\n"] {
            assert_eq!(read(bytes), Err(MalformedChunk), "{}", bytes.escape_ascii());
        }
    }
}
