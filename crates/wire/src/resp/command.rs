//! Commands of clients, read one at a time from the front of what has been received.
//!
//! Scanning keeps no state between calls: an incomplete command is scanned again when more of it is
//! there. That makes the outcome independent of how the bytes were cut into pieces, and costs little,
//! because payloads are stepped over by their length and a command has few headers.
//!
//! Invariants: whatever a client declares is compared with the limits before it is waited for, so a
//! caller that scans before each read never buffers more than [`CommandLimits::command_bytes`] and one read;
//! nothing here allocates once [`Scanner`] has met its largest command.

use std::ops::Range;

use memchr::memchr;
use thiserror::Error;

/// Longest header line: a type, a sign, the digits of a 64-bit number, CR and LF.
const HEADER_BYTES: usize = 23;

/// How much a client may send as one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLimits {
    /// Arguments, the command's name among them.
    pub arguments: usize,
    /// Bytes of one argument.
    pub argument_bytes: usize,
    /// Bytes of a whole command with its headers.
    pub command_bytes: usize,
    /// Bytes of an inline command with its line end.
    pub inline_bytes: usize,
}

impl CommandLimits {
    /// For clients that may use the service.
    pub const OPEN: Self =
        Self { arguments: 64, argument_bytes: 64 << 10, command_bytes: 128 << 10, inline_bytes: 64 << 10 };

    /// For clients that have yet to authenticate, tighter in everything: a HELLO with all its options fits,
    /// and a line with the longest password.
    pub const BEFORE_AUTH: Self =
        Self { arguments: 8, argument_bytes: 4 << 10, command_bytes: 6 << 10, inline_bytes: 5 << 10 };
}

/// Why the bytes are no command. There is no way to tell where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// An array's header that is no number, or too many arguments.
    #[error("Protocol error: invalid multibulk length")]
    ArrayLength,
    /// An argument's header that is no number, or too many bytes.
    #[error("Protocol error: invalid bulk length")]
    ArgumentLength,
    /// An argument that is no bulk string, such as an array.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    NotBulk(u8),
    /// An argument that does not end where it said.
    #[error("Protocol error: a bulk string is not followed by CRLF")]
    NoEnd,
    /// The whole command is too large.
    #[error("Protocol error: too big request")]
    TooLarge,
    /// An inline command is too long.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
}

/// Finds commands. It holds nothing but memory to reuse.
#[derive(Debug, Default)]
pub struct Scanner {
    spans: Vec<Range<usize>>,
}

/// A command that has arrived whole.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    input: &'a [u8],
    spans: &'a [Range<usize>],
    length: usize,
}

impl<'a> Command<'a> {
    /// Bytes that the command takes at the front of the input.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Number of arguments, the name among them. 0 for an empty line or array, which asks for nothing.
    #[must_use]
    pub fn arguments(&self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`; the name is at 0.
    #[must_use]
    pub fn argument(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.input[span.clone()])
    }
}

impl Scanner {
    /// Finds the command at the front of `input`. `None` when it has not arrived whole.
    ///
    /// # Errors
    /// When the front of `input` cannot become a command, or only one beyond `limits`.
    pub fn scan<'a>(
        &'a mut self,
        input: &'a [u8],
        limits: &CommandLimits,
    ) -> Result<Option<Command<'a>>, CommandError> {
        self.spans.clear();
        let length = match input.first() {
            None => None,
            Some(b'*') => self.array(input, limits)?,
            Some(_) => self.inline(input, limits)?,
        };
        Ok(length.map(|length| Command { input, spans: &self.spans, length }))
    }

    fn array(&mut self, input: &[u8], limits: &CommandLimits) -> Result<Option<usize>, CommandError> {
        let Some((count, mut at)) = header(input, 0, CommandError::ArrayLength)? else { return Ok(None) };
        // As Redis has it: an empty or null array is skipped.
        let count = usize::try_from(count).unwrap_or(0);
        if count > limits.arguments {
            return Err(CommandError::ArrayLength);
        }
        for _ in 0..count {
            match input.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(CommandError::NotBulk(*other)),
            }
            let Some((bytes, start)) = header(input, at, CommandError::ArgumentLength)? else {
                return Ok(None);
            };
            let bytes = usize::try_from(bytes).map_err(|_| CommandError::ArgumentLength)?;
            if bytes > limits.argument_bytes {
                return Err(CommandError::ArgumentLength);
            }
            let end = start + bytes;
            if end + 2 > limits.command_bytes {
                return Err(CommandError::TooLarge);
            }
            match input.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(CommandError::NoEnd),
            }
            self.spans.push(start..end);
            at = end + 2;
        }
        Ok(Some(at))
    }

    /// Words between white space. Quotes have no meaning: arguments with spaces come as an array.
    fn inline(&mut self, input: &[u8], limits: &CommandLimits) -> Result<Option<usize>, CommandError> {
        let within = &input[..input.len().min(limits.inline_bytes)];
        let Some(end) = memchr(b'\n', within) else {
            return if within.len() < limits.inline_bytes {
                Ok(None)
            } else {
                Err(CommandError::InlineTooLong)
            };
        };
        let mut at = 0;
        for word in within[..end].split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.spans.push(at..at + word.len());
            }
            at += word.len() + 1;
        }
        if self.spans.len() > limits.arguments {
            return Err(CommandError::ArrayLength);
        }
        Ok(Some(end + 1))
    }
}

/// Reads `*N` or `$N` and CRLF at `at`: the number, and where the line ends. The number may begin with a minus, and not
/// with a plus.
fn header(input: &[u8], at: usize, error: CommandError) -> Result<Option<(i64, usize)>, CommandError> {
    let line = &input[at + 1..input.len().min(at + HEADER_BYTES)];
    let (digits, sign) = line.strip_prefix(b"-").map_or((line, 1), |digits| (digits, -1));
    let mut number = 0_i64;
    for (index, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                let larger =
                    number.checked_mul(10).and_then(|ten| ten.checked_add(sign * i64::from(byte - b'0')));
                number = larger.ok_or(error)?;
            }
            b'\r' if index > 0 => {
                let end = at + 1 + (line.len() - digits.len()) + index + 1;
                return match input.get(end) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((number, end + 1))),
                    Some(_) => Err(error),
                };
            }
            _ => return Err(error),
        }
    }
    if line.len() + 1 < HEADER_BYTES { Ok(None) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Everything in `pieces`, received one after another: the commands, and what ended them.
    fn read(pieces: &[&[u8]], limits: &CommandLimits) -> (Vec<Vec<Vec<u8>>>, Option<CommandError>) {
        let (mut scanner, mut input, mut commands) = (Scanner::default(), Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                match scanner.scan(&input, limits) {
                    Ok(None) => break,
                    Err(error) => return (commands, Some(error)),
                    Ok(Some(command)) => {
                        let arguments =
                            (0..command.arguments()).map(|at| command.argument(at).unwrap().to_vec());
                        commands.push(arguments.collect());
                        let length = command.length();
                        input.drain(..length);
                    }
                }
            }
        }
        (commands, None)
    }

    fn one(input: &[u8]) -> Result<Vec<String>, Option<CommandError>> {
        match read(&[input], &CommandLimits::OPEN) {
            (commands, None) if commands.len() == 1 => {
                Ok(commands[0].iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect())
            }
            (_, error) => Err(error),
        }
    }

    #[test]
    fn commands_are_arrays_or_lines() {
        assert_eq!(one(b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\n"), Ok(vec!["PING".into(), "\r\n".into()]));
        assert_eq!(one(b"PING\r\n"), Ok(vec!["PING".into()]));
        assert_eq!(one(b"  CL.THROTTLE\tk  1\n"), Ok(vec!["CL.THROTTLE".into(), "k".into(), "1".into()]));
        for nothing in [&b"\r\n"[..], b"*0\r\n", b"*-1\r\n"] {
            assert_eq!(one(nothing), Ok(vec![]));
        }
        for partial in [&b""[..], b"*", b"*1\r", b"*1\r\n", b"*1\r\n$4\r\nPING", b"PING"] {
            assert_eq!(one(partial), Err(None));
        }
    }

    #[test]
    fn what_is_no_command_is_an_error_with_the_words_of_redis() {
        for (input, error) in [
            (&b"*x\r\n"[..], CommandError::ArrayLength),
            (b"*\r\n", CommandError::ArrayLength),
            (b"*1\n", CommandError::ArrayLength),
            (b"*99999999999999999999\r\n", CommandError::ArrayLength),
            (b"*1\r\n*1\r\n", CommandError::NotBulk(b'*')),
            (b"*1\r\n:1\r\n", CommandError::NotBulk(b':')),
            (b"*1\r\n$-1\r\n", CommandError::ArgumentLength),
            (b"*1\r\n$+1\r\n", CommandError::ArgumentLength),
            (b"*1\r\n$1\r\nabc", CommandError::NoEnd),
        ] {
            assert_eq!(one(input), Err(Some(error)), "{}", input.escape_ascii());
        }
        assert_eq!(CommandError::NotBulk(b'*').to_string(), "Protocol error: expected '$', got '*'");
    }

    #[test]
    fn fault_55_what_is_declared_is_judged_before_it_is_waited_for() {
        let before = CommandLimits::BEFORE_AUTH;
        for (input, open, closed) in [
            (&b"*65\r\n"[..], Some(CommandError::ArrayLength), Some(CommandError::ArrayLength)),
            (b"*9\r\n", None, Some(CommandError::ArrayLength)),
            (b"*1000000000\r\n", Some(CommandError::ArrayLength), Some(CommandError::ArrayLength)),
            (b"*1\r\n$65536\r\n", None, Some(CommandError::ArgumentLength)),
            (
                b"*1\r\n$1073741824\r\n",
                Some(CommandError::ArgumentLength),
                Some(CommandError::ArgumentLength),
            ),
            (b"*1\r\n*1\r\n*1\r\n", Some(CommandError::NotBulk(b'*')), Some(CommandError::NotBulk(b'*'))),
        ] {
            assert_eq!(read(&[input], &CommandLimits::OPEN), (vec![], open), "{}", input.escape_ascii());
            assert_eq!(read(&[input], &before), (vec![], closed), "{}", input.escape_ascii());
        }
        let half = [&b"$65535\r\n"[..], &vec![b'x'; 65_535], b"\r\n"].concat();
        let whole = [&b"*2\r\n"[..], &half, &half].concat();
        assert_eq!(read(&[&whole], &CommandLimits::OPEN), (vec![], Some(CommandError::TooLarge)));
        let line = vec![b'x'; CommandLimits::OPEN.inline_bytes];
        assert_eq!(read(&[&line], &CommandLimits::OPEN), (vec![], Some(CommandError::InlineTooLong)));
        let words = b"x ".repeat(65);
        assert_eq!(read(&[&words, b"\n"], &CommandLimits::OPEN), (vec![], Some(CommandError::ArrayLength)));
    }

    /// Bytes that are often commands: valid ones, broken ones, noise.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        let valid =
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..10).prop_map(|words| {
                let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
                for word in words {
                    bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                    bytes.extend_from_slice(&word);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes
            });
        let likely = prop::sample::select(&b"*$-0123456789\r\n aPING"[..]);
        let noise = prop::collection::vec(likely, 0..40);
        let any = prop::collection::vec(any::<u8>(), 0..20);
        prop::collection::vec(prop_oneof![4 => valid, 1 => noise, 1 => any], 0..6)
            .prop_map(|parts| parts.concat())
    }

    const SMALL: CommandLimits =
        CommandLimits { arguments: 8, argument_bytes: 16, command_bytes: 64, inline_bytes: 24 };

    proptest! {
        #[test]
        fn the_outcome_does_not_depend_on_how_the_bytes_were_cut(
            input in input(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            cuts.sort_unstable();
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain(std::iter::once(input.len()));
            let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &input[start..end]).collect();
            for limits in [CommandLimits::OPEN, SMALL] {
                let whole = read(&[&input], &limits);
                prop_assert_eq!(&read(&pieces, &limits), &whole);
                let bytes: Vec<&[u8]> = input.chunks(1).collect();
                prop_assert_eq!(&read(&bytes, &limits), &whole);
            }
        }

        #[test]
        fn numbers_are_read_as_they_are_written(number in any::<i64>()) {
            let line = format!("${number}\r\n");
            let read = header(line.as_bytes(), 0, CommandError::ArgumentLength);
            prop_assert_eq!(read, Ok(Some((number, line.len()))));
        }
    }
}
