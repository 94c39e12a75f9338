//! Exchanges below HTTP: a bare connection, an echo, and RESP.

use super::protocol::{Protocol, Reply, Verdict};

/// Connecting is the whole exchange.
pub(crate) struct Connect;

impl Protocol for Connect {
    type State = ();
    const CONNECT_ONLY: bool = true;

    fn fresh(&self) {}

    fn request<'a>(&'a mut self, (): &mut ()) -> &'a [u8] {
        &[]
    }

    fn receive(&mut self, (): &mut (), _: &[u8]) -> Reply {
        Reply::Broken
    }

    fn closed(&mut self, (): &mut ()) -> Reply {
        Reply::More
    }
}

/// The bytes that were sent must come back.
pub(crate) struct Echo {
    payload: Vec<u8>,
}

impl Echo {
    /// `bytes` are at least 1, or nothing would ever come back.
    pub(crate) fn new(bytes: u32) -> Self {
        Self { payload: (0..bytes.max(1)).map(|index| b'a' + (index % 26) as u8).collect() }
    }
}

impl Protocol for Echo {
    /// Bytes that came back so far.
    type State = usize;

    fn fresh(&self) -> usize {
        0
    }

    fn request<'a>(&'a mut self, state: &mut usize) -> &'a [u8] {
        *state = 0;
        &self.payload
    }

    fn receive(&mut self, state: &mut usize, bytes: &[u8]) -> Reply {
        let due = &self.payload[*state..];
        if !due.starts_with(bytes) {
            return Reply::Broken;
        }
        *state += bytes.len();
        if *state < self.payload.len() {
            return Reply::More;
        }
        Reply::Done { verdict: Verdict::Good, status: 0, reusable: true }
    }

    fn closed(&mut self, _: &mut usize) -> Reply {
        Reply::More
    }
}

/// One RESP command, over and over.
pub(crate) struct Resp {
    command: Vec<u8>,
    throttle: bool,
}

/// Longest reply that is gathered.
const MAX_REPLY: usize = 64 << 10;

impl Resp {
    pub(crate) fn new(command: &[String]) -> Self {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        let throttle = command.first().is_some_and(|name| name.eq_ignore_ascii_case("CL.THROTTLE"));
        Self { command: bytes, throttle }
    }
}

impl Protocol for Resp {
    /// The reply so far.
    type State = Vec<u8>;

    fn fresh(&self) -> Vec<u8> {
        Vec::new()
    }

    fn request<'a>(&'a mut self, state: &mut Vec<u8>) -> &'a [u8] {
        state.clear();
        &self.command
    }

    fn receive(&mut self, state: &mut Vec<u8>, bytes: &[u8]) -> Reply {
        if state.len() + bytes.len() > MAX_REPLY {
            return Reply::Broken;
        }
        state.extend_from_slice(bytes);
        match value_end(state, 0) {
            Some(Ok(end)) if end == state.len() => {
                let verdict = if state.first() == Some(&b'-') {
                    Verdict::FailedCheck
                } else if self.throttle && state.starts_with(b"*5\r\n:1\r\n") {
                    Verdict::Denied
                } else {
                    Verdict::Good
                };
                Reply::Done { verdict, status: 0, reusable: true }
            }
            Some(_) => Reply::Broken,
            None => Reply::More,
        }
    }

    fn closed(&mut self, _: &mut Vec<u8>) -> Reply {
        Reply::More
    }
}

/// Not RESP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Malformed;

/// Arrays nested deeper than this are no reply to a command that this file sends.
const MAX_DEPTH: u8 = 4;

/// Where the value at the front of `bytes` ends; `None` when it is not complete.
fn value_end(bytes: &[u8], depth: u8) -> Option<Result<usize, Malformed>> {
    let line = memchr::memchr(b'\n', bytes)?;
    let Some((&kind, text)) = bytes[..line].strip_suffix(b"\r").and_then(<[u8]>::split_first) else {
        return Some(Err(Malformed));
    };
    let count = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let mut end = line + 1;
    match (kind, count()) {
        (b'+' | b'-', _) | (b':', Some(_)) | (b'$' | b'*', Some(-1)) => Some(Ok(end)),
        (b'$', Some(length @ 0..=65_536)) => {
            end += length as usize + 2;
            (bytes.len() >= end)
                .then(|| if bytes[..end].ends_with(b"\r\n") { Ok(end) } else { Err(Malformed) })
        }
        (b'*', Some(items @ 0..=1_024)) if depth < MAX_DEPTH => {
            for _ in 0..items {
                match value_end(&bytes[end..], depth + 1)? {
                    Ok(length) => end += length,
                    Err(malformed) => return Some(Err(malformed)),
                }
            }
            Some(Ok(end))
        }
        _ => Some(Err(Malformed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict(command: &[&str], reply: &[u8]) -> Option<Verdict> {
        let mut resp = Resp::new(&command.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        let mut state = resp.fresh();
        resp.request(&mut state);
        let (last, most) = reply.split_last().unwrap();
        assert_eq!(resp.receive(&mut state, most), Reply::More);
        match resp.receive(&mut state, &[*last]) {
            Reply::Done { verdict, .. } => Some(verdict),
            _ => None,
        }
    }

    #[test]
    fn resp_replies_are_told_apart() {
        assert_eq!(verdict(&["PING"], b"+PONG\r\n"), Some(Verdict::Good));
        assert_eq!(verdict(&["PING"], b"-ERR no\r\n"), Some(Verdict::FailedCheck));
        assert_eq!(verdict(&["GET", "x"], b"$2\r\nab\r\n"), Some(Verdict::Good));
        let throttle = ["CL.THROTTLE", "k", "1", "1", "60"];
        assert_eq!(verdict(&throttle, b"*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"), Some(Verdict::Good));
        assert_eq!(verdict(&throttle, b"*5\r\n:1\r\n:2\r\n:0\r\n:60\r\n:60\r\n"), Some(Verdict::Denied));
        assert_eq!(Resp::new(&["PING".to_owned()]).command, b"*1\r\n$4\r\nPING\r\n");
    }

    #[test]
    fn an_echo_that_differs_is_broken() {
        let mut echo = Echo::new(3);
        let mut state = echo.fresh();
        assert_eq!(echo.request(&mut state), b"abc");
        assert_eq!(echo.receive(&mut state, b"ab"), Reply::More);
        assert_eq!(echo.receive(&mut state, b"x"), Reply::Broken);
        echo.request(&mut state);
        assert!(matches!(echo.receive(&mut state, b"abc"), Reply::Done { verdict: Verdict::Good, .. }));
        echo.request(&mut state);
        assert_eq!(echo.receive(&mut state, b"abcd"), Reply::Broken, "more than was sent");
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(Ok(end)) = value_end(&bytes, 0) {
                prop_assert!(end <= bytes.len());
            }
        }
    }
}
