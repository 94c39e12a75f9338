//! Replies, from bytes that arrive in any pieces.
//!
//! ```text
//!   Head --1xx--> Head        the whole head in one read is parsed where it lies;
//!     |                       a head in pieces is gathered first (at most `max_head` bytes)
//!     +--> Length(n) | Chunked | UntilClose --> Done
//!     +--> Done               HEAD, 204, 304, Content-Length: 0
//! ```
//!
//! Invariant, checked by a property test: how the bytes are split never changes the result.
//! Body length follows RFC 9112, 6.3. A message with both Transfer-Encoding and Content-Length is
//! read as chunked and its connection is not used again.

use thiserror::Error;

use super::{
    chunked::{Chunked, ChunkedPart},
    head::{Framing, HeadError, HeaderLines, Line},
};

/// Bounds on one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest header section, in bytes.
    pub max_head: usize,
    /// Longest body, in bytes.
    pub max_body: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_head: 64 << 10, max_body: 1 << 30 }
    }
}

/// Why a reply is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// The header section is malformed or too long.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The body is not the chunked coding that the head announced.
    #[error("malformed chunked body")]
    Chunked,
    /// The body is longer than the limit.
    #[error("body longer than {0} bytes")]
    TooLong(u64),
    /// The connection was closed in mid-reply.
    #[error("connection closed in mid-reply")]
    Truncated,
    /// More interim (1xx) replies than anyone sends.
    #[error("more than {MAX_INTERIM} interim replies")]
    Interim,
}

/// Most 1xx replies before the final one.
const MAX_INTERIM: u8 = 16;

/// What the reader made of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All bytes were used and the reply is not complete.
    More,
    /// The reply is complete; this many of the bytes belonged to it.
    Done(usize),
}

/// What a caller wants to see of a reply beside its status. `()` wants nothing and costs nothing.
pub trait Visit {
    /// The final reply's head, start line and empty line included.
    fn head(&mut self, _head: &[u8]) {}
    /// A part of the body, chunk framing removed.
    fn body(&mut self, _part: &[u8]) {}
    /// A part of what follows the last chunk: field lines as they came, and the empty line that ends them.
    fn trailer(&mut self, _part: &[u8]) {}
}

impl Visit for () {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseState {
    Head,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Done,
}

/// Reads one reply after another on a connection.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    state: ResponseState,
    limits: Limits,
    status: u16,
    interim: u8,
    headless_body: bool,
    reusable: bool,
    body_left: u64,
    gathered: Vec<u8>,
}

impl ResponseReader {
    /// A reader that is ready for the first reply.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            state: ResponseState::Head,
            limits,
            status: 0,
            interim: 0,
            headless_body: false,
            reusable: false,
            body_left: limits.max_body,
            gathered: Vec::new(),
        }
    }

    /// Makes ready for the next reply; `to_head` when it answers a HEAD request.
    pub fn begin(&mut self, to_head: bool) {
        self.state = ResponseState::Head;
        self.status = 0;
        self.interim = 0;
        self.headless_body = to_head;
        self.body_left = self.limits.max_body;
        self.gathered.clear();
    }

    /// Status of the reply, 0 before its head is complete.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may carry another request after this reply.
    #[must_use]
    pub fn reusable(&self) -> bool {
        self.reusable
    }

    /// Reads from the front of `bytes`.
    ///
    /// # Errors
    /// When the bytes are no HTTP/1.1 reply, or exceed a limit.
    pub fn read<V: Visit>(&mut self, bytes: &[u8], visit: &mut V) -> Result<Read, ResponseError> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match &mut self.state {
                ResponseState::Head => match self.read_head(rest, visit)? {
                    Some(used) => at += used,
                    None => return Ok(Read::More),
                },
                ResponseState::Length(left) => {
                    let part = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    visit.body(&rest[..part]);
                    at += part;
                    *left -= part as u64;
                    if *left > 0 {
                        return Ok(Read::More);
                    }
                    self.state = ResponseState::Done;
                }
                ResponseState::Chunked(chunked) => {
                    let mut length = 0;
                    let decoded = chunked.decode(rest, |part| match part {
                        ChunkedPart::Data(part) => {
                            length += part.len() as u64;
                            visit.body(part);
                        }
                        ChunkedPart::Trailer(part) => visit.trailer(part),
                    });
                    let (used, done) = decoded.map_err(|_| ResponseError::Chunked)?;
                    self.spend(length)?;
                    at += used;
                    if !done {
                        return Ok(Read::More);
                    }
                    self.state = ResponseState::Done;
                }
                ResponseState::UntilClose => {
                    visit.body(rest);
                    self.spend(rest.len() as u64)?;
                    return Ok(Read::More);
                }
                ResponseState::Done => return Ok(Read::Done(at)),
            }
        }
    }

    /// The peer closed: true when that completes the reply, false when no reply had begun.
    ///
    /// # Errors
    /// [`ResponseError::Truncated`] when it closed in mid-reply.
    pub fn close(&mut self) -> Result<bool, ResponseError> {
        match self.state {
            ResponseState::UntilClose | ResponseState::Done => {
                self.state = ResponseState::Done;
                Ok(true)
            }
            ResponseState::Head if self.gathered.is_empty() && self.interim == 0 => Ok(false),
            _ => Err(ResponseError::Truncated),
        }
    }

    fn spend(&mut self, length: u64) -> Result<(), ResponseError> {
        self.body_left =
            self.body_left.checked_sub(length).ok_or(ResponseError::TooLong(self.limits.max_body))?;
        Ok(())
    }

    /// Bytes used once the head is complete; `None` when it is not, and all bytes were gathered.
    fn read_head<V: Visit>(&mut self, bytes: &[u8], visit: &mut V) -> Result<Option<usize>, ResponseError> {
        let before = self.gathered.len();
        let max_head = self.limits.max_head;
        if before == 0 {
            if let Some(head) = Head::parse(&bytes[..bytes.len().min(max_head)])? {
                self.accept(&head, &bytes[..head.length], visit)?;
                return Ok(Some(head.length));
            }
            if bytes.len() >= max_head {
                return Err(HeadError::TooLong(max_head).into());
            }
            self.gathered.extend_from_slice(bytes);
            return Ok(None);
        }
        let room = max_head - before;
        let part = &bytes[..bytes.len().min(room)];
        self.gathered.extend_from_slice(part);
        // Only a line end can complete a head, so a trickle of bytes is not parsed over and over.
        if memchr::memchr(b'\n', part).is_some() {
            let gathered = std::mem::take(&mut self.gathered);
            let outcome = Head::parse(&gathered).map_err(ResponseError::from).and_then(|head| {
                head.map(|head| self.accept(&head, &gathered[..head.length], visit).map(|()| head.length))
                    .transpose()
            });
            self.gathered = gathered;
            if let Some(length) = outcome? {
                self.gathered.clear();
                return Ok(Some(length - before));
            }
        }
        if bytes.len() >= room { Err(HeadError::TooLong(max_head).into()) } else { Ok(None) }
    }

    fn accept<V: Visit>(&mut self, head: &Head, bytes: &[u8], visit: &mut V) -> Result<(), ResponseError> {
        if (100..200).contains(&head.status) && head.status != 101 {
            self.interim += 1;
            return if self.interim > MAX_INTERIM { Err(ResponseError::Interim) } else { Ok(()) };
        }
        let framing = &head.framing;
        self.status = head.status;
        self.reusable = if head.minor == 0 { framing.keep_alive } else { true } && !framing.close;
        visit.head(bytes);
        self.state = if self.headless_body || matches!(head.status, 101 | 204 | 304) {
            self.reusable &= head.status != 101;
            ResponseState::Done
        } else if framing.chunked {
            self.reusable &= framing.content_length.is_none();
            ResponseState::Chunked(Chunked::START)
        } else if framing.coded {
            self.reusable = false;
            ResponseState::UntilClose
        } else if let Some(length) = framing.content_length {
            self.spend(length)?;
            if length == 0 { ResponseState::Done } else { ResponseState::Length(length) }
        } else {
            self.reusable = false;
            ResponseState::UntilClose
        };
        Ok(())
    }
}

/// A complete response head.
struct Head {
    length: usize,
    minor: u8,
    status: u16,
    framing: Framing,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Option<Self>, HeadError> {
        let mut lines = HeaderLines::new(bytes);
        let (minor, status) = match lines.next() {
            Line::Text(line) => status_line(line).ok_or(HeadError::StartLine)?,
            Line::End(_) => return Err(HeadError::StartLine),
            Line::Partial => return Ok(None),
        };
        let mut framing = Framing::default();
        loop {
            match lines.next() {
                Line::Text(line) => framing.note(line)?,
                Line::Partial => return Ok(None),
                Line::End(length) => {
                    if framing.coded && minor == 0 {
                        return Err(HeadError::Coding);
                    }
                    return Ok(Some(Self { length, minor, status, framing }));
                }
            }
        }
    }
}

fn status_line(line: &[u8]) -> Option<(u8, u16)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let &[minor @ b'0'..=b'9', b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ref tail @ ..] = rest
    else {
        return None;
    };
    let status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    matches!(tail, [] | [b' ', ..]).then_some((minor - b'0', status))
}

#[cfg(test)]
mod tests;
