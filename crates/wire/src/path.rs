//! One normal form of a request path, so that a policy for `/pay` also sees `//pay`, `/%70ay`,
//! `/pay/`, `/pay;x` and `/a/../pay` (fault 54).
//!
//! The form:
//!
//! 1. the query and fragment are not part of it;
//! 2. each character has one spelling, however it was sent ([`one_spelling`]), and escapes have upper-case digits (RFC 3986,
//!    section 6.2.2);
//! 3. parameters (`;...`) of a segment are dropped;
//! 4. empty and `.` segments vanish, `..` takes the segment before it along (section 5.2.4);
//! 5. no slash at the end, except for `/` itself.
//!
//! Servers disagree on encoded slashes, backslashes, encoded control characters, broken escapes, and `..` above the root.
//! [`normal_form`] refuses these, for what an operator writes. [`readings`] makes the best of any bytes, for who counts: a client
//! must not get out of a limit by a path of which somebody is in doubt. Where a server may take an encoded separator for a
//! separator, or a NUL for the end, that reading is given too; and where it may route by a dot segment or a parameter as by any
//! name, the one in which these stand: `/api/../x` reaches a handler of `/api/*` in most frameworks. [`without_dot_segments`] is
//! for who sends a path on: what it gives has the same first readings as the path, and no server can climb in it.

use std::borrow::Cow;

use thiserror::Error;

/// Why a path has no normal form that everyone would agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("the path does not begin with '/'")]
    NotAbsolute,
    /// `%` without two hexadecimal digits.
    #[error("the path has a broken escape")]
    BrokenEscape,
    /// An encoded slash or backslash, or a backslash: a separator to some and a name to others.
    #[error("the path has an encoded slash or a backslash")]
    EncodedSeparator,
    /// A control character, plain or encoded.
    #[error("the path has a control character")]
    ControlCharacter,
    /// More `..` than segments.
    #[error("the path climbs above the root")]
    AboveRoot,
}

/// What servers may take a path for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings<'p> {
    /// Its normal form, in which what is in doubt stands as it was sent: `/a%2Fb`.
    pub first: Cow<'p, [u8]>,
    /// With encoded separators and backslashes as slashes, up to a NUL; `None` if the path has no such character.
    pub other: Option<Vec<u8>>,
    /// Both again with dot segments and parameters as they stand, where there are any: at most two.
    pub literal: Vec<Vec<u8>>,
}

impl<'p> Readings<'p> {
    /// All of them, each once; the first one first.
    pub fn all(self) -> impl Iterator<Item = Cow<'p, [u8]>> {
        std::iter::once(self.first).chain(self.other.into_iter().chain(self.literal).map(Cow::Owned))
    }
}

/// The readings of any request target. Of the absolute form it is that of its path; what does not begin with a slash
/// (`*`) stands for itself.
#[must_use]
pub fn readings(target: &[u8]) -> Readings<'_> {
    let path = without_query(origin_form(target));
    if path.first() != Some(&b'/') || is_normal(path) {
        return Readings { first: Cow::Borrowed(path), other: None, literal: Vec::new() };
    }
    let (decoded, doubts) = compared(path);
    let first = without_dots(&decoded).0;
    let separated = doubts.first().map(|_| separated(&decoded));
    let other = separated.as_deref().map(|path| without_dots(path).0).filter(|other| *other != first);
    let mut literal: Vec<Vec<u8>> = Vec::new();
    for path in [Some(&decoded), separated.as_ref()].into_iter().flatten() {
        let stands = without_empty(path);
        if stands != first && other.as_ref() != Some(&stands) && !literal.contains(&stands) {
            literal.push(stands);
        }
    }
    Readings { first: Cow::Owned(first), other, literal }
}

/// The normal form of `path`, borrowed if it has it already.
///
/// # Errors
/// When two readers could take the path for different ones.
pub fn normal_form(path: &[u8]) -> Result<Cow<'_, [u8]>, PathError> {
    if path.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    let path = without_query(path);
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let (decoded, doubts) = compared(path);
    let (normal, climbs) = without_dots(&decoded);
    match doubts.first().or(climbs.then_some(PathError::AboveRoot)) {
        Some(doubt) => Err(doubt),
        None => Ok(Cow::Owned(normal)),
    }
}

/// `path` byte for byte, but for dot segments, which are resolved (RFC 3986, section 5.2.4): the path that may be sent on.
/// `..` never removes an empty segment, as in the normal form. Encoded separators stay, and [`readings`] of what is given
/// says what servers make of them.
///
/// # Errors
/// As [`normal_form`], but for encoded separators: these are refused only where a dot segment stands beside one, `/..%2F`.
pub fn without_dot_segments(path: &[u8]) -> Result<Cow<'_, [u8]>, PathError> {
    if path.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    let path = without_query(path);
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let (decoded, doubts) = decode(path);
    if let Some(error) = doubts.other {
        return Err(error);
    }
    // Decoding makes and takes no slash, so that there are as many segments.
    let segments = path.split(|byte| *byte == b'/').zip(decoded.split(|byte| *byte == b'/')).skip(1);
    let mut kept: Vec<&[u8]> = Vec::new();
    let (mut is_same, mut ends_in_dots) = (true, false);
    for (segment, decoded) in segments {
        if doubts.has_separator && has_inner_dots(decoded) {
            return Err(PathError::EncodedSeparator);
        }
        let name = name(decoded);
        ends_in_dots = matches!(name, b"." | b"..");
        is_same &= !ends_in_dots;
        match name {
            b"." => {}
            b".." => {
                let before = kept.iter().rposition(|segment| !self::name(segment).is_empty());
                kept.truncate(before.ok_or(PathError::AboveRoot)?);
            }
            _ => kept.push(segment),
        }
    }
    if is_same {
        return Ok(Cow::Borrowed(path));
    }
    if ends_in_dots {
        kept.push(b"");
    }
    let mut resolved = Vec::with_capacity(path.len());
    for segment in kept {
        resolved.push(b'/');
        resolved.extend_from_slice(segment);
    }
    Ok(Cow::Owned(resolved))
}

/// `path` with escapes of unreserved characters decoded, and the digits of others in upper case (RFC 3986, section 6.2.2):
/// the spelling that all readers of URIs take for the same.
#[must_use]
pub fn plain_escapes(path: &[u8]) -> Cow<'_, [u8]> {
    if path.contains(&b'%') { Cow::Owned(decode(path).0) } else { Cow::Borrowed(path) }
}

/// `path` with one spelling of what servers take for the same whether it is escaped or not: plain what a segment may have (RFC
/// 3986, section 3.3), as in `/things:cancel` and `/@me`, and escaped what no URI has, as in `/caf%C3%A9`. Separators, `;`, `*`
/// and `%` stay as they came: to some they mean something else when they are plain.
#[must_use]
pub fn one_spelling(path: &[u8]) -> Vec<u8> {
    let mut spelt = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match escaped(byte, after) {
            Some(plain) if is_unreserved(plain) || is_plain_in_segments(plain) => {
                spelt.push(plain);
                rest = &after[2..];
            }
            Some(_) => {
                spelt.extend([b'%', after[0].to_ascii_uppercase(), after[1].to_ascii_uppercase()]);
                rest = &after[2..];
            }
            None if is_in_no_uri(byte) => {
                spelt.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            None => spelt.push(byte),
        }
    }
    spelt
}

/// What follows scheme and authority in `http://host/path`, and `/` if nothing does (RFC 9112, section 3.2.2).
fn origin_form(target: &[u8]) -> &[u8] {
    let scheme =
        target.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
    let Some(rest) = target[scheme..].strip_prefix(b"://").filter(|_| scheme > 0) else { return target };
    let authority = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    if rest.get(authority) == Some(&b'/') { &rest[authority..] } else { b"/" }
}

fn without_query(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    &path[..end]
}

/// Takes parameters, empty and dot segments out; whether it climbed above the root, at which it stays.
fn without_dots(decoded: &[u8]) -> (Vec<u8>, bool) {
    let (mut normal, mut climbs) = (Vec::with_capacity(decoded.len()), false);
    for segment in decoded.split(|byte| *byte == b'/').skip(1) {
        match name(segment) {
            b"" | b"." => {}
            b".." => match normal.iter().rposition(|byte| *byte == b'/') {
                Some(before) => normal.truncate(before),
                None => climbs = true,
            },
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
            }
        }
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    (normal, climbs)
}

/// A segment without its parameters.
fn name(segment: &[u8]) -> &[u8] {
    segment.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// Whether a segment has dot segments in it for who takes encoded separators for slashes.
fn has_inner_dots(decoded: &[u8]) -> bool {
    let separated = separated(decoded);
    let mut parts = separated.split(|byte| *byte == b'/');
    separated.contains(&b'/') && parts.any(|part| matches!(name(part), b"." | b".."))
}

/// Takes nothing but empty segments out.
fn without_empty(decoded: &[u8]) -> Vec<u8> {
    let mut stands = Vec::with_capacity(decoded.len());
    for segment in decoded.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
        stands.push(b'/');
        stands.extend_from_slice(segment);
    }
    if stands.is_empty() {
        stands.push(b'/');
    }
    stands
}

/// As a server reads it that takes backslashes and encoded separators for slashes, and a NUL for the end.
fn separated(decoded: &[u8]) -> Vec<u8> {
    let mut separated = Vec::with_capacity(decoded.len());
    let mut rest = decoded;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, rest.get(..3)) {
            (0, _) | (_, Some(b"%00")) => break,
            (_, Some(b"%2F" | b"%5C")) => {
                separated.push(b'/');
                &rest[3..]
            }
            (byte, _) => {
                separated.push(if byte == b'\\' { b'/' } else { byte });
                after
            }
        };
    }
    separated
}

/// Whether nothing in `path` can need a change: the common case, one pass and no allocation.
fn is_normal(path: &[u8]) -> bool {
    let plain = |byte: &u8| is_unreserved(*byte) || matches!(byte, b'/' | b':' | b'@' | b'+' | b',' | b'=');
    let no_empty_or_dots = |pair: &[u8]| pair[0] != b'/' || !matches!(pair[1], b'/' | b'.');
    path == b"/" || (path.iter().all(plain) && path.windows(2).all(no_empty_or_dots) && !path.ends_with(b"/"))
}

/// On what in a path servers disagree.
#[derive(Clone, Copy, Default)]
struct Doubts {
    /// It has an encoded separator or a backslash.
    has_separator: bool,
    /// The first of the others.
    other: Option<PathError>,
}

impl Doubts {
    fn first(self) -> Option<PathError> {
        self.other.or(self.has_separator.then_some(PathError::EncodedSeparator))
    }

    fn add(&mut self, plain: u8) {
        match plain {
            b'\\' => self.has_separator = true,
            0..=31 | 127 => self.other = self.other.or(Some(PathError::ControlCharacter)),
            _ => {}
        }
    }
}

/// With escapes of unreserved characters decoded and the others in upper case; and on what in it servers disagree, which
/// stays as it is. A `%` that begins no escape becomes the escape of itself, so that what follows cannot make another escape
/// of it.
fn decode(path: &[u8]) -> (Vec<u8>, Doubts) {
    let (mut decoded, mut doubts) = (Vec::with_capacity(path.len()), Doubts::default());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, escaped(byte, after)) {
            (b'%', Some(plain)) if is_unreserved(plain) => {
                decoded.push(plain);
                rest = &after[2..];
            }
            (b'%', Some(plain)) => {
                decoded.extend([b'%', after[0].to_ascii_uppercase(), after[1].to_ascii_uppercase()]);
                rest = &after[2..];
                doubts.has_separator |= plain == b'/';
                doubts.add(plain);
            }
            (b'%', None) => {
                decoded.extend(b"%25");
                doubts.other = doubts.other.or(Some(PathError::BrokenEscape));
            }
            (plain, _) => {
                decoded.push(plain);
                doubts.add(plain);
            }
        }
    }
    (decoded, doubts)
}

/// The same in the one spelling in which paths are compared.
fn compared(path: &[u8]) -> (Vec<u8>, Doubts) {
    let (decoded, doubts) = decode(path);
    (one_spelling(&decoded), doubts)
}

/// The byte that `%` and two hexadecimal digits stand for.
fn escaped(byte: u8, after: &[u8]) -> Option<u8> {
    let [high, low, ..] = *after else { return None };
    (byte == b'%').then_some(())?;
    Some(hex(high)? << 4 | hex(low)?)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Beside unreserved characters and what stays as it came.
fn is_plain_in_segments(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'+' | b',' | b':' | b'=' | b'@')
}

/// Control characters aside, on which servers disagree.
fn is_in_no_uri(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests;
