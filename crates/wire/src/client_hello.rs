//! The server name in a TLS ClientHello, read without decrypting anything (RFC 8446, 4.1.2; RFC 6066, 3).
//!
//! ```text
//!   record 22 | version | length │ record ...        a hello may be cut over several records
//!     handshake 1 | length | version, random, session, suites, compression | extensions
//!       extension 0 ─> list ─> type 0, name
//! ```
//!
//! The reader takes what has come so far and says whether more is needed, so that its caller keeps the bytes for the
//! server behind. It is strict about what it passes over: a length that does not fit is malformed, never skipped.
//!
//! Some protocols begin in clear, and ask there whether they may go on in TLS. They are told from other bytes that are no hello, so
//! that whoever looks for a server name can say why there is none.
//!
//! Deliberately absent: everything else in a hello. An encrypted hello (ECH) shows its outer name.

use thiserror::Error;

/// Most bytes of a hello, record headers included. Hellos of browsers have up to 2 KiB.
pub const MAX_HELLO: usize = 16 << 10;

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Longest name of a host (RFC 1035, 2.3.4), without its last dot.
const MAX_NAME: usize = 253;

/// Bytes that are no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the connection does not begin with a ClientHello of TLS")]
pub struct NotAHello;

/// What the bytes that have come so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// Not everything yet.
    Partial,
    /// The whole hello, and the name it asks for, in lower case, if it has one.
    Whole(Option<Box<str>>),
}

/// Reads the name from the beginning of a connection.
///
/// # Errors
/// When it is no hello, or has more than [`MAX_HELLO`] bytes.
pub fn read(bytes: &[u8]) -> Result<Hello, NotAHello> {
    match message(bytes)? {
        Some(hello) => name(&hello.body).map(Hello::Whole),
        None => Ok(Hello::Partial),
    }
}

/// Whether a hello is there, and the record that it ends in: a handshake reads records, and waits for the end of each. What the
/// hello says is not looked at.
///
/// # Errors
/// When it is no hello, or has more than [`MAX_HELLO`] bytes.
pub fn is_whole(bytes: &[u8]) -> Result<bool, NotAHello> {
    match message(bytes)? {
        Some(hello) if hello.is_record_whole => Ok(true),
        Some(_) if bytes.len() >= MAX_HELLO => Err(NotAHello),
        _ => Ok(false),
    }
}

/// What the first bytes of a connection are where they are no hello: those of a protocol that asks in clear whether it may begin TLS, or
/// does without.
#[must_use]
pub fn begins_in_clear(bytes: &[u8]) -> Option<&'static str> {
    // The length of the message and its number (protocol-message-formats of PostgreSQL); the others have a version there.
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30];
    const STARTUP: [u8; 2] = [0, 3];
    // A sequence of ASN.1 with the object identifier of the operation (RFC 4511, 4.14.1).
    const SEQUENCE: u8 = 0x30;
    const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
    match bytes {
        _ if bytes.starts_with(&SSL_REQUEST) => Some("PostgreSQL's SSLRequest"),
        _ if bytes.starts_with(&GSS_REQUEST) => Some("PostgreSQL's GSSENCRequest"),
        [0, 0, _, _, rest @ ..] if rest.starts_with(&STARTUP) => Some("PostgreSQL without TLS"),
        [SEQUENCE, ..] if bytes.windows(START_TLS.len()).any(|part| part == START_TLS) => {
            Some("LDAP's StartTLS")
        }
        _ => None,
    }
}

/// A hello that is there to its end.
struct HelloMessage {
    body: Vec<u8>,
    /// Whether its last record is there to its end, too.
    is_record_whole: bool,
}

/// The hello, put together of its records; `None`: it is not there to its end.
fn message(bytes: &[u8]) -> Result<Option<HelloMessage>, NotAHello> {
    let bytes = &bytes[..bytes.len().min(MAX_HELLO)];
    let mut handshake = Vec::new();
    let mut rest = bytes;
    loop {
        let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER>() else {
            let begins_well =
                rest.first().is_none_or(|kind| *kind == HANDSHAKE) && rest.get(1).is_none_or(|it| *it == 3);
            return partial(bytes, begins_well);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || !(1..=MAX_HELLO).contains(&length) {
            return Err(NotAHello);
        }
        let part = &behind[..length.min(behind.len())];
        handshake.extend_from_slice(part);
        match whole(&handshake)? {
            Some(body) => {
                return Ok(Some(HelloMessage { body: body.to_vec(), is_record_whole: part.len() == length }));
            }
            None if part.len() < length => return partial(bytes, true),
            None => rest = &behind[length..],
        }
    }
}

fn partial(bytes: &[u8], is_good: bool) -> Result<Option<HelloMessage>, NotAHello> {
    if is_good && bytes.len() < MAX_HELLO { Ok(None) } else { Err(NotAHello) }
}

/// The body of the handshake message, if it is there to its end.
fn whole(handshake: &[u8]) -> Result<Option<&[u8]>, NotAHello> {
    if handshake.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(NotAHello);
    }
    let Some(([_, length @ ..], body)) = handshake.split_first_chunk::<4>() else { return Ok(None) };
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    if length > MAX_HELLO {
        return Err(NotAHello);
    }
    Ok(body.get(..length))
}

/// The name in a hello.
fn name(hello: &[u8]) -> Result<Option<Box<str>>, NotAHello> {
    let mut fields = HelloFields(hello);
    fields.take(2 + 32)?;
    let session = fields.short()?;
    let suites = fields.long()?;
    let compressions = fields.short()?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compressions.is_empty() {
        return Err(NotAHello);
    }
    if fields.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = HelloFields(fields.long()?);
    if !fields.0.is_empty() {
        return Err(NotAHello);
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let body = extensions.long()?;
        if kind != SERVER_NAME {
            continue;
        }
        // Two of them would be a different name to whoever reads the other one.
        if found.is_some() {
            return Err(NotAHello);
        }
        found = Some(host(body)?);
    }
    Ok(found)
}

/// The one name in the extension's list.
fn host(extension: &[u8]) -> Result<Box<str>, NotAHello> {
    let mut fields = HelloFields(extension);
    let mut list = HelloFields(fields.long()?);
    let kind = list.take(1)?;
    let name = list.long()?;
    if kind != [HOST_NAME] || !list.0.is_empty() || !fields.0.is_empty() {
        return Err(NotAHello);
    }
    let name = std::str::from_utf8(name).map_err(|_| NotAHello)?;
    let name = name.strip_suffix('.').unwrap_or(name);
    // With a colon it is an address, which some clients ask for, against the RFC; it leads where other unknown names do.
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_good) {
        return Err(NotAHello);
    }
    Ok(name.to_ascii_lowercase().into())
}

/// Reads from the front.
struct HelloFields<'a>(&'a [u8]);

impl<'a> HelloFields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], NotAHello> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NotAHello)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, NotAHello> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A field with its length in one byte.
    fn short(&mut self) -> Result<&'a [u8], NotAHello> {
        let length = usize::from(self.take(1)?[0]);
        self.take(length)
    }

    /// A field with its length in two bytes.
    fn long(&mut self) -> Result<&'a [u8], NotAHello> {
        let length = usize::from(self.number()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello that asks for `name`, in records of at most `record` bytes.
    fn hello(name: Option<&[u8]>, record: usize) -> Vec<u8> {
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4];
        if let Some(name) = name {
            let length = u16::try_from(name.len()).unwrap();
            extensions.extend([0, 0]);
            extensions.extend((length + 5).to_be_bytes());
            extensions.extend((length + 3).to_be_bytes());
            extensions.push(0);
            extensions.extend(length.to_be_bytes());
            extensions.extend(name);
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = [&[1, length[1], length[2], length[3]][..], &body].concat();
        let records = message.chunks(record).flat_map(|part| {
            let length = u16::try_from(part.len()).unwrap().to_be_bytes();
            [&[22, 3, 1, length[0], length[1]][..], part].concat()
        });
        records.collect()
    }

    #[test]
    fn names_are_read_however_the_hello_is_cut() {
        for record in [1, 3, 50, 16_000] {
            let bytes = hello(Some(b"Shop.Example"), record);
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(Hello::Partial), "{record} {end}");
                assert_eq!(is_whole(&bytes[..end]), Ok(false), "{record} {end}");
            }
            assert_eq!(read(&bytes), Ok(Hello::Whole(Some("shop.example".into()))));
            let with_more = [&bytes[..], b"early data"].concat();
            assert_eq!(read(&with_more), Ok(Hello::Whole(Some("shop.example".into()))));
            assert_eq!(read(&hello(None, record)), Ok(Hello::Whole(None)));
        }
    }

    #[test]
    fn a_record_that_is_longer_than_its_hello_is_waited_for() {
        let mut bytes = hello(Some(b"a.example"), 16_000);
        let length = u16::from_be_bytes([bytes[3], bytes[4]]) + 2;
        bytes[3..5].copy_from_slice(&length.to_be_bytes());
        assert_eq!(is_whole(&bytes), Ok(false));
        assert_eq!(read(&bytes), Ok(Hello::Whole(Some("a.example".into()))), "its name is known already");
        bytes.extend([0; 2]);
        assert_eq!(is_whole(&bytes), Ok(true));
        // The largest record that a hello may have does not fit behind the others.
        let mut bytes = hello(None, 50);
        let last = bytes.len() - (bytes.len() % 55) + 3;
        bytes[last..last + 2].copy_from_slice(&u16::try_from(MAX_HELLO).unwrap().to_be_bytes());
        bytes.resize(MAX_HELLO - 1, 0);
        assert_eq!(is_whole(&bytes), Ok(false));
        bytes.push(0);
        assert_eq!(is_whole(&bytes), Err(NotAHello));
    }

    #[test]
    fn what_is_no_hello_is_said_at_the_first_byte_that_shows_it() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"G",
            &[22, 2],
            &[22, 3, 1, 0, 0],
            &[22, 3, 1, 0, 1, 2],
            &[22, 3, 1, 0xff, 0xff],
        ] {
            assert_eq!(read(bytes), Err(NotAHello), "{bytes:?}");
        }
        for (name, read_as) in [(&b"192.0.2.1"[..], "192.0.2.1"), (b"2001:DB8::1", "2001:db8::1")] {
            assert_eq!(read(&hello(Some(name), 16_000)), Ok(Hello::Whole(Some(read_as.into()))));
        }
        for name in [&b""[..], b"a b", b"a\0b", "\u{e9}".as_bytes(), &[b'a'; 254]] {
            let hello = hello(Some(name), 16_000);
            assert_eq!((read(&hello), is_whole(&hello)), (Err(NotAHello), Ok(true)), "{name:?}");
        }
    }

    #[test]
    fn protocols_that_begin_in_clear_are_told_from_others() {
        let start_tls = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
        for (bytes, said) in [
            (&b"\0\0\0\x08\x04\xd2\x16\x2f"[..], Some("PostgreSQL's SSLRequest")),
            (b"\0\0\0\x08\x04\xd2\x16\x30", Some("PostgreSQL's GSSENCRequest")),
            (b"\0\0\0\x4f\0\x03\0\0user\0a\0\0", Some("PostgreSQL without TLS")),
            (start_tls, Some("LDAP's StartTLS")),
            (b"\0\0\0\x08\x04\xd2\x16", None),
            (b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0", None),
            (b"GET / HTTP/1.1\r\n", None),
            (b"", None),
        ] {
            assert_eq!(begins_in_clear(bytes), said, "{bytes:?}");
        }
        assert_eq!(begins_in_clear(&hello(Some(b"a.example"), 16_000)), None);
    }

    #[test]
    fn a_hello_that_never_ends_is_refused() {
        let mut bytes = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb];
        bytes.resize(MAX_HELLO - 1, 0);
        assert_eq!(read(&bytes), Ok(Hello::Partial));
        bytes.resize(MAX_HELLO, 0);
        assert_eq!(read(&bytes), Err(NotAHello));
    }

    #[test]
    fn every_length_that_does_not_fit_is_malformed() {
        let good = hello(Some(b"a.example"), 16_000);
        for at in [9 + 34, 9 + 35, 9 + 36, 9 + 39, 9 + 41, 9 + 42] {
            let mut bad = good.clone();
            bad[at] = bad[at].wrapping_add(1);
            assert!(matches!(read(&bad), Err(NotAHello) | Ok(Hello::Whole(None | Some(_)))), "{at}");
            bad[at] = 0xff;
            assert_eq!(read(&bad), Err(NotAHello), "{at}");
        }
    }
}
