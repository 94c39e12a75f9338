//! Replies to clients, appended to a buffer that is written once for a whole pipeline.

use std::fmt::Display;
use std::io::Write;

/// Longest line of a number: a type, a sign, 20 digits, CR and LF.
const NUMBER_BYTES: usize = 24;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every connection starts with.
    #[default]
    Resp2,
    /// After `HELLO 3`: maps and null have types of their own.
    Resp3,
}

/// Writes replies at the end of a buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Encoder<'a> {
    /// Appends to `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// Goes on in another version: the reply to HELLO is already in the one asked for.
    pub fn switch(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// A status such as `OK`, of letters alone.
    pub fn simple(&mut self, status: &'static str) {
        self.out.push(b'+');
        self.out.extend_from_slice(status.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error whose first word is its code. Line ends within become spaces, so that text which came
    /// from a client cannot end the reply early.
    pub fn error(&mut self, message: &impl Display) {
        self.out.push(b'-');
        let start = self.out.len();
        // Invariant: writing to a vector does not fail, and the messages' Display does not either.
        let _infallible = write!(self.out, "{message}");
        for byte in &mut self.out[start..] {
            if byte.is_ascii_control() {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number.is_negative(), number.unsigned_abs());
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', false, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The start of an array; its items follow.
    pub fn array(&mut self, items: usize) {
        self.number(b'*', false, items as u64);
    }

    /// The start of a map; `pairs` keys with their values follow. RESP2 has a flat array instead.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(pairs * 2),
            Protocol::Resp3 => self.number(b'%', false, pairs as u64),
        }
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// A line made from its end, so that the buffer is extended once: most replies are short numbers.
    fn number(&mut self, kind: u8, negative: bool, mut number: u64) {
        let mut line = [0; NUMBER_BYTES];
        let mut start = NUMBER_BYTES;
        let mut put = |byte| {
            start -= 1;
            line[start] = byte;
        };
        put(b'\n');
        put(b'\r');
        loop {
            // Invariant: a digit fits.
            put(b'0' + u8::try_from(number % 10).unwrap_or(0));
            number /= 10;
            if number == 0 {
                break;
            }
        }
        if negative {
            put(b'-');
        }
        put(kind);
        self.out.extend_from_slice(&line[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(protocol: Protocol, write: impl Fn(&mut Encoder<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Encoder::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_look_as_the_specification_has_them() {
        let all = |out: &mut Encoder<'_>| {
            out.simple("OK");
            out.integer(-1);
            out.integer(120);
            out.integer(i64::MIN);
            out.bulk(b"a\r\n");
            out.array(1);
            out.map(2);
            out.null();
        };
        let start = "+OK\r\n:-1\r\n:120\r\n:-9223372036854775808\r\n$3\r\na\r\n\r\n*1\r\n";
        assert_eq!(encoded(Protocol::Resp2, all), format!("{start}*4\r\n$-1\r\n"));
        assert_eq!(encoded(Protocol::Resp3, all), format!("{start}%2\r\n_\r\n"));
    }

    #[test]
    fn text_of_a_client_cannot_end_an_error_early() {
        let injected = "ERR unknown command 'x\r\n+OK\r\n'";
        let line = encoded(Protocol::Resp2, |out| out.error(&injected));
        assert_eq!(line, "-ERR unknown command 'x  +OK  '\r\n");
    }
}
