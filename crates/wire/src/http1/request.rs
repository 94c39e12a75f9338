//! Request heads, as far as a test backend needs them.

use super::head::{Framing, HeadError, HeaderLines, Line};

/// What a server must know to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// Length of the header section, the empty line included.
    pub length: usize,
    /// Method, as sent.
    pub method: &'a [u8],
    /// Request target, as sent.
    pub target: &'a [u8],
    /// Bytes of body that follow.
    pub content_length: u64,
    /// Whether the client wants to send another request.
    pub keep_alive: bool,
}

/// Reads a request head from the front of `bytes`; `None` when it is not complete.
///
/// # Errors
/// When the bytes are no HTTP/1 request, or announce a chunked body (which no template sends), or
/// the head is longer than `max_head`.
pub fn scan_request(bytes: &[u8], max_head: usize) -> Result<Option<RequestHead<'_>>, HeadError> {
    let visible = &bytes[..bytes.len().min(max_head)];
    match parse(visible)? {
        None if bytes.len() >= max_head => Err(HeadError::TooLong(max_head)),
        head => Ok(head),
    }
}

fn parse(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, HeadError> {
    let mut lines = HeaderLines::new(bytes);
    let line = match lines.next() {
        Line::Text(line) => line,
        Line::End(_) => return Err(HeadError::StartLine),
        Line::Partial => return Ok(None),
    };
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::StartLine);
    };
    let modern = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err(HeadError::StartLine),
    };
    if method.is_empty() || target.is_empty() {
        return Err(HeadError::StartLine);
    }
    let mut framing = Framing::default();
    loop {
        match lines.next() {
            Line::Text(line) => framing.note(line)?,
            Line::Partial => return Ok(None),
            Line::End(_) if framing.coded => return Err(HeadError::Coding),
            Line::End(length) => {
                return Ok(Some(RequestHead {
                    length,
                    method,
                    target,
                    content_length: framing.content_length.unwrap_or(0),
                    keep_alive: if modern { !framing.close } else { framing.keep_alive },
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_is_read() {
        let bytes = b"POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
        let head = scan_request(bytes, 1_000).unwrap().unwrap();
        assert_eq!((head.method, head.target), (&b"POST"[..], &b"/a?b"[..]));
        assert_eq!((head.length, head.content_length, head.keep_alive), (bytes.len() - 3, 3, true));
        assert_eq!(scan_request(&bytes[..20], 1_000), Ok(None));
        assert_eq!(scan_request(bytes, 20), Err(HeadError::TooLong(20)));
        assert_eq!(scan_request(b"GET /\r\n\r\n", 100), Err(HeadError::StartLine));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(head)) = scan_request(&bytes, 150) {
                prop_assert!(head.length <= 150);
            }
        }
    }
}
