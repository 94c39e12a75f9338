//! One normal form of a request path, so that a policy for `/pay` also sees `//pay`, `/%70ay`,
//! `/pay/`, `/pay;x` and `/a/../pay` (fault 54).
//!
//! What servers behind a limiter disagree on is refused instead of guessed: encoded slashes,
//! backslashes, encoded control characters, broken escapes, and `..` above the root. The form:
//!
//! 1. the query and fragment are not part of it;
//! 2. escapes of unreserved characters are decoded, other escapes have upper-case digits (RFC 3986,
//!    section 6.2.2);
//! 3. parameters (`;...`) of a segment are dropped;
//! 4. empty and `.` segments vanish, `..` takes the segment before it along (section 5.2.4);
//! 5. no slash at the end, except for `/` itself.

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

/// The normal form of `path`, borrowed if it has it already.
///
/// # Errors
/// When two readers could take the path for different ones.
pub fn normal_form(path: &[u8]) -> Result<Cow<'_, [u8]>, PathError> {
    if path.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let path = &path[..end];
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode(path)?;
    let mut normal = Vec::with_capacity(decoded.len());
    for segment in decoded.split(|byte| *byte == b'/').skip(1) {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        match name {
            b"" | b"." => {}
            b".." => {
                let before = normal.iter().rposition(|byte| *byte == b'/').ok_or(PathError::AboveRoot)?;
                normal.truncate(before);
            }
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
            }
        }
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    Ok(Cow::Owned(normal))
}

/// Whether nothing in `path` can need a change: the common case, one pass and no allocation.
fn is_normal(path: &[u8]) -> bool {
    let plain = |byte: &u8| is_unreserved(*byte) || matches!(byte, b'/' | b':' | b'@' | b'+' | b',' | b'=');
    let no_empty_or_dots = |pair: &[u8]| pair[0] != b'/' || !matches!(pair[1], b'/' | b'.');
    path == b"/" || (path.iter().all(plain) && path.windows(2).all(no_empty_or_dots) && !path.ends_with(b"/"))
}

fn decode(path: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let digits = rest.get(..2).ok_or(PathError::BrokenEscape)?;
                rest = &rest[2..];
                let value = hex(digits[0]).zip(hex(digits[1])).map(|(high, low)| high << 4 | low);
                match value.ok_or(PathError::BrokenEscape)? {
                    b'/' | b'\\' => return Err(PathError::EncodedSeparator),
                    0..=31 | 127 => return Err(PathError::ControlCharacter),
                    plain if is_unreserved(plain) => decoded.push(plain),
                    _ => {
                        decoded.extend([b'%', digits[0].to_ascii_uppercase(), digits[1].to_ascii_uppercase()])
                    }
                }
            }
            b'\\' => return Err(PathError::EncodedSeparator),
            0..=31 | 127 => return Err(PathError::ControlCharacter),
            plain => decoded.push(plain),
        }
    }
    Ok(decoded)
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

    proptest! {
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
