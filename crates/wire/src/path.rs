//! One normal form of a request path, so that a policy for `/pay` also sees `//pay`, `/%70ay`,
//! `/pay/`, `/pay;x` and `/a/../pay` (fault 54).
//!
//! The form:
//!
//! 1. the query and fragment are not part of it;
//! 2. escapes of unreserved characters are decoded, other escapes have upper-case digits (RFC 3986,
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
//!
//! Over 400 lines because the tables that show how each of these reads a path stand beside them.

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
    /// With encoded separators and backslashes as slashes, up to a NUL; `None` if there is none of them.
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
    let (decoded, doubts) = decode(path);
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
    let (decoded, doubts) = decode(path);
    let (normal, climbs) = without_dots(&decoded);
    match doubts.first().or(climbs.then_some(PathError::AboveRoot)) {
        Some(doubt) => Err(doubt),
        None => Ok(Cow::Owned(normal)),
    }
}

/// `path` byte for byte, but for dot segments, which are resolved (RFC 3986, section 5.2.4): the path that may be sent on. An
/// empty segment is none that `..` takes along, as in the normal form. Encoded separators stay, and [`readings`] of what is
/// given says what servers make of them.
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

/// The byte that `%` and two hexadecimal digits stand for.
fn escaped(byte: u8, after: &[u8]) -> Option<u8> {
    let [high, low, ..] = *after else { return None };
    (byte == b'%').then_some(())?;
    Some(hex(high)? << 4 | hex(low)?)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fault_54_variants_of_a_path_have_one_form() {
        for variant in [
            "/a",
            "/a/",
            "//a",
            "/%61",
            "/a;x",
            "/a;x=1/",
            "/./a",
            "/b/../a",
            "/a?q=/b",
            "/a#f",
            "/a//",
            "/%2e/a",
            "/b/%2E%2e/a",
            "/;p/a",
        ] {
            assert_eq!(normal_form(variant.as_bytes()).unwrap(), &b"/a"[..], "{variant}");
        }
        for (path, form) in
            [("/", "/"), ("//", "/"), ("/a/..", "/"), ("/%c3%a9", "/%C3%A9"), ("/a..b/c", "/a..b/c")]
        {
            assert_eq!(normal_form(path.as_bytes()).unwrap(), form.as_bytes(), "{path}");
        }
    }

    #[test]
    fn fault_54_ambiguous_paths_are_refused() {
        for (path, error) in [
            ("", PathError::NotAbsolute),
            ("a", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("/a%2Fb", PathError::EncodedSeparator),
            ("/a%5cb", PathError::EncodedSeparator),
            ("/a\\b", PathError::EncodedSeparator),
            ("/a%00", PathError::ControlCharacter),
            ("/a\u{7f}", PathError::ControlCharacter),
            ("/a%", PathError::BrokenEscape),
            ("/a%zz", PathError::BrokenEscape),
            ("/..", PathError::AboveRoot),
            ("/a/../../b", PathError::AboveRoot),
        ] {
            assert_eq!(normal_form(path.as_bytes()), Err(error), "{path}");
        }
    }

    #[test]
    fn fault_54_any_path_has_a_reading_and_separators_in_doubt_have_two() {
        for (path, first, other) in [
            ("/pay", "/pay", None),
            ("//pay/", "/pay", None),
            ("/a%2fb", "/a%2Fb", Some("/a/b")),
            ("/a%5cb", "/a%5Cb", Some("/a/b")),
            ("/a\\b", "/a\\b", Some("/a/b")),
            ("/public/..%2fadmin", "/public/..%2Fadmin", Some("/admin")),
            ("/pay%00.html", "/pay%00.html", Some("/pay")),
            ("/pay\0x", "/pay\0x", Some("/pay")),
            ("/a%0Ab", "/a%0Ab", None),
            ("/a%zz", "/a%25zz", None),
            ("/a%", "/a%25", None),
            ("/%2", "/%252", None),
            ("/%zz/..%2fpay", "/%25zz/..%2Fpay", Some("/pay")),
            ("/%%36%31", "/%2561", None),
            ("/../../pay", "/pay", None),
            ("http://host/pay?x", "/pay", None),
            ("https://host:1?x=/y", "/", None),
            ("*", "*", None),
            ("", "", None),
            ("pay?x", "pay", None),
            ("/50%25", "/50%25", None),
        ] {
            let found = readings(path.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found.first), first, "{path}");
            assert_eq!(found.other.as_deref(), other.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn fault_54_what_is_sent_on_has_no_dot_segments_and_else_every_byte_that_came() {
        for same in [
            "/",
            "//",
            "/a/",
            "//a//b/",
            "/a/%41;v=1/",
            "/v1%2e0/x;y=1",
            "/file.%2Etar/x;y",
            "/a%2e/b",
            "/a..b/...",
            "/;p/a",
            "/api/exchanges/%2F/x",
            "/@scope%2fname",
            "/a%5Cb\\c",
            "/a;x=%2Fb",
        ] {
            assert_eq!(without_dot_segments(same.as_bytes()).unwrap(), same.as_bytes(), "{same}");
        }
        for (path, sent) in [
            ("/public/../admin/x", "/admin/x"),
            ("/public/%2e%2E/admin/x;v=1/", "/admin/x;v=1/"),
            ("/public/..;a/admin/%78", "/admin/%78"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/a//../b", "/b"),
            ("//a/../b", "//b"),
            ("/a//b/../c", "/a//c"),
            ("/a/;p/../b", "/b"),
            ("/a%2Fb/../c", "/c"),
        ] {
            let found = without_dot_segments(path.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), sent, "{path}");
        }
        for (path, error) in [
            ("*", PathError::NotAbsolute),
            ("/public/..%2fadmin", PathError::EncodedSeparator),
            ("/public%2f..%2fadmin", PathError::EncodedSeparator),
            ("/public/%2e%2e%5Cadmin", PathError::EncodedSeparator),
            ("/public\\..\\admin", PathError::EncodedSeparator),
            ("/public/..;x%2fadmin", PathError::EncodedSeparator),
            ("/public;x=%2f../admin", PathError::EncodedSeparator),
            ("/a%2f.", PathError::EncodedSeparator),
            ("/a%2Fb%00", PathError::ControlCharacter),
            ("/a%2Fb%zz", PathError::BrokenEscape),
            ("/a/../..", PathError::AboveRoot),
            ("/;p/..", PathError::AboveRoot),
        ] {
            assert_eq!(without_dot_segments(path.as_bytes()), Err(error), "{path}");
        }
    }

    #[test]
    fn fault_54_dot_segments_and_parameters_are_read_as_names_too() {
        for (path, literal) in [
            ("/api/../x", &["/api/../x"][..]),
            ("/api/%2e%2e/x", &["/api/../x"]),
            ("//api//..//x/", &["/api/../x"]),
            ("/u/;x/pay", &["/u/;x/pay"]),
            ("/pay;x", &["/pay;x"]),
            ("/a/.", &["/a/."]),
            ("/api%2F..%2Fx", &["/api/../x"]),
            ("/api/..%2f..%2fx", &["/api/../../x"]),
            ("/a;b%2Fc", &["/a;b%2Fc", "/a;b/c"]),
            ("/api\\..\\x", &["/api/../x"]),
            ("/a%2Fb", &[]),
            ("//a//b/", &[]),
            ("/a.b/..c", &[]),
            ("/", &[]),
        ] {
            let found = readings(path.as_bytes());
            let shown: Vec<_> = found.literal.iter().map(|path| String::from_utf8_lossy(path)).collect();
            assert_eq!(shown, literal, "{path}");
        }
    }

    proptest! {
        #[test]
        fn fault_54_what_is_sent_on_is_read_as_what_came(path in "/[a-b./;%0-9A-F\\\\]{0,24}|/([.]{1,2}|%2[eEfF]|[a/;]){0,9}") {
            if let Ok(sent) = without_dot_segments(path.as_bytes()) {
                let (came, sent_is) = (readings(path.as_bytes()), readings(&sent));
                prop_assert_eq!(&came.first, &sent_is.first);
                prop_assert_eq!(&without_dot_segments(&sent).unwrap(), &sent);
                let plain = plain_escapes(&sent);
                prop_assert_eq!(&readings(&plain), &sent_is);
                // Nobody can climb in it, whatever is a separator to whom.
                let separated = separated(&decode(&sent).0);
                let mut parts = separated.split(|byte| *byte == b'/');
                prop_assert!(!parts.any(|part| matches!(name(part), b"." | b"..")));
            }
        }

        #[test]
        fn what_has_a_normal_form_has_one_reading_but_for_what_vanishes(path in "/[a-c./;%0-9A-F?]{0,24}") {
            if let Ok(form) = normal_form(path.as_bytes()) {
                let found = readings(path.as_bytes());
                prop_assert_eq!((&found.first, &found.other), (&form, &None));
                prop_assert!(found.literal.len() <= 1);
            }
        }

        #[test]
        fn readings_are_of_one_path(path in prop::collection::vec(any::<u8>(), 0..64)) {
            let path = [b"/", &path[..]].concat();
            let found = readings(&path);
            let (first, other) = (found.first.clone(), found.other.clone());
            prop_assert!(found.literal.len() <= 2);
            for literal in &found.literal {
                let again = readings(literal).first;
                prop_assert!(again == first || other.as_ref().is_some_and(|other| **other == *again));
            }
            let all: Vec<_> = found.all().collect();
            prop_assert!(all.iter().enumerate().all(|(index, one)| !all[..index].contains(one)));
        }

        #[test]
        fn readings_are_their_own_first_readings(path in prop::collection::vec(any::<u8>(), 0..64)) {
            let path = [b"/", &path[..]].concat();
            let found = readings(&path);
            prop_assert_eq!(readings(&found.first).first, &*found.first);
            if let Some(other) = found.other {
                prop_assert_eq!(readings(&other).first, &*other);
            }
        }

        #[test]
        fn a_normal_form_is_its_own_normal_form(path in "/[a-c./;%0-9A-F?]{0,24}") {
            if let Ok(form) = normal_form(path.as_bytes()) {
                prop_assert_eq!(normal_form(&form).unwrap(), &*form);
            }
        }

        #[test]
        fn any_bytes_have_a_form_or_an_error(path in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(form) = normal_form(&path) {
                prop_assert!(form.starts_with(b"/"));
                prop_assert!(!form.windows(2).any(|pair| pair == b"//"));
            }
        }
    }
}
