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
//! [`normal_form`] refuses these, for who sends a path on. [`readings`] makes the best of any bytes, for who counts: a client
//! must not get out of a limit by a path of which somebody is in doubt. Where a server may take an encoded separator for a
//! separator, or a NUL for the end, that reading is given too; and where it may route by a dot segment or a parameter as by any
//! name, the one in which these stand: `/api/../x` reaches a handler of `/api/*` in most frameworks.

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
    let (decoded, doubt) = decode(path);
    let first = without_dots(&decoded).0;
    let separated = doubt.map(|_| separated(&decoded));
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
    let (decoded, doubt) = decode(path);
    let (normal, climbs) = without_dots(&decoded);
    match doubt.or(climbs.then_some(PathError::AboveRoot)) {
        Some(doubt) => Err(doubt),
        None => Ok(Cow::Owned(normal)),
    }
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
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        match name {
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

/// With escapes of unreserved characters decoded and the others in upper case; and the first thing in it on which
/// servers disagree, which stays as it is. A `%` that begins no escape becomes the escape of itself, so that what follows
/// cannot make another escape of it.
fn decode(path: &[u8]) -> (Vec<u8>, Option<PathError>) {
    let (mut decoded, mut doubt) = (Vec::with_capacity(path.len()), None);
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let found = match (byte, escaped(byte, after)) {
            (b'%', Some(plain)) if is_unreserved(plain) => {
                decoded.push(plain);
                rest = &after[2..];
                continue;
            }
            (b'%', Some(plain)) => {
                decoded.extend([b'%', after[0].to_ascii_uppercase(), after[1].to_ascii_uppercase()]);
                rest = &after[2..];
                match plain {
                    b'/' | b'\\' => Some(PathError::EncodedSeparator),
                    0..=31 | 127 => Some(PathError::ControlCharacter),
                    _ => None,
                }
            }
            (b'%', None) => {
                decoded.extend(b"%25");
                Some(PathError::BrokenEscape)
            }
            (plain, _) => {
                decoded.push(plain);
                match plain {
                    b'\\' => Some(PathError::EncodedSeparator),
                    0..=31 | 127 => Some(PathError::ControlCharacter),
                    _ => None,
                }
            }
        };
        doubt = doubt.or(found);
    }
    (decoded, doubt)
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
