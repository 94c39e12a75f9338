//! Exchanges below HTTP: a bare connection, and an echo.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
