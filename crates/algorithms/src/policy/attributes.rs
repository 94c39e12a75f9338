//! A request's attributes, the patterns that match them, and the bytes that name a counter.
//!
//! Values are opaque bytes: no normalisation, so two Unicode forms of a name are two keys
//! (fault 13). A key is built with the length before each value, so that no choice of values can
//! make two different requests share a counter. A value may have any length: patterns see all of it, and a long one is
//! counted by its digest ([`counted`]), so that nobody gets out of a limit by a long value.
//!
//! An attribute can have several values, which are readings of one text (a path with an encoded slash): a pattern matches
//! if it matches any of them, so that a policy applies whichever reading a server takes. The first is the one that counts.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::MAX_VALUE_BYTES;

/// What is known of a request: a handful of (name, value) pairs, looked up by scanning.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pairs: &'a [(&'a str, &'a [u8])],
}

/// What an attribute's value must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Any value, as long as there is one: `"*"`.
    Present,
    /// Exactly this value.
    Exact(String),
    /// This prefix, then anything: `"/v1/*"`.
    Prefix(String),
    /// These parts in this order, with anything between them, the first at the start and the last at
    /// the end: `{ like = "/v1/*/edit" }`. One part is the whole value.
    Like(Vec<String>),
    /// Any of these.
    AnyOf(Vec<Self>),
    /// The first, but none of the others: `{ not = ["a", "b*"] }`.
    Except(Box<Self>, Vec<Self>),
}

impl<'a> Attributes<'a> {
    /// Attributes in the order given; the first of a name counts, and patterns see the others too.
    #[must_use]
    pub fn new(pairs: &'a [(&'a str, &'a [u8])]) -> Self {
        Self { pairs }
    }

    /// The value of `name` that counts.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }

    /// Every value of `name`.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.pairs.iter().filter(move |(other, _)| *other == name).map(|(_, value)| *value)
    }

    /// All pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.pairs.iter().copied()
    }
}

impl Pattern {
    /// Whether `value` matches.
    #[must_use]
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(text) => text.as_bytes() == value,
            Self::Prefix(text) => value.starts_with(text.as_bytes()),
            Self::Like(parts) => like(parts, value),
            Self::AnyOf(patterns) => patterns.iter().any(|pattern| pattern.matches(value)),
            Self::Except(pattern, others) => {
                pattern.matches(value) && !others.iter().any(|other| other.matches(value))
            }
        }
    }

    /// Reads `text`: `*` alone, a trailing `*`, or literal. A `*` elsewhere is literal too.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Present,
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }

    /// Reads `text` with every `*` standing for anything.
    #[must_use]
    pub fn like(text: &str) -> Self {
        Self::Like(text.split('*').map(str::to_owned).collect())
    }

    /// The document form.
    #[must_use]
    pub fn document(&self) -> Value {
        match self {
            Self::Present => Value::from("*"),
            Self::Exact(text) => Value::from(text.as_str()),
            Self::Prefix(text) => Value::from(format!("{text}*")),
            Self::Like(parts) => json!({ "like": parts.join("*") }),
            Self::AnyOf(patterns) => patterns.iter().map(Self::document).collect(),
            Self::Except(pattern, others) => {
                let not: Value = others.iter().map(Self::document).collect();
                match &**pattern {
                    Self::Like(parts) => json!({ "like": parts.join("*"), "not": not }),
                    _ => json!({ "not": not }),
                }
            }
        }
    }
}

/// Whether `value` is the parts in their order with anything between them. Taking the first place of
/// each inner part is enough: a later one leaves less for the parts after it.
fn like(parts: &[String], value: &[u8]) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some(value) = value.strip_prefix(first.as_bytes()) else { return false };
    let Some((last, inner)) = rest.split_last() else { return value.is_empty() };
    let Some(mut value) = value.strip_suffix(last.as_bytes()) else { return false };
    for part in inner.iter().map(String::as_bytes).filter(|part| !part.is_empty()) {
        let Some(at) = value.windows(part.len()).position(|window| window == part) else { return false };
        value = &value[at + part.len()..];
    }
    true
}

/// Appends the bytes that name the counter of `policy` for these attributes to `key`: the policy's
/// name, then each keyed value, each with its length before it. `None` if an attribute is absent;
/// `key` then holds a part and must not be used.
pub fn key_of(policy: &str, names: &[String], attributes: &Attributes<'_>, key: &mut Vec<u8>) -> Option<()> {
    push_part(key, policy.as_bytes());
    for name in names {
        push_part(key, &counted(attributes.value(name)?));
    }
    Some(())
}

/// A value as counters and lists of clients have it: itself, or of one over [`MAX_VALUE_BYTES`] its first 447 bytes, cut
/// within no character and no escape of a byte (`%2F`), a tilde, and the SHA-256 of the whole in hex. The clients send long
/// values in the same form, so that it does not matter who makes it.
#[must_use]
pub fn counted(value: &[u8]) -> Cow<'_, [u8]> {
    if value.len() <= MAX_VALUE_BYTES {
        return Cow::Borrowed(value);
    }
    let mut end = String::with_capacity(1 + 64);
    end.push('~');
    for byte in Sha256::digest(value) {
        let _infallible = write!(end, "{byte:02x}");
    }
    let most = MAX_VALUE_BYTES - end.len();
    let is_inside_character = |at: &usize| value[*at] & 0b1100_0000 == 0b1000_0000;
    // Invariant: a character of UTF-8 has at most three bytes after its first.
    let cut = (most - 3..=most).rev().find(|at| !is_inside_character(at)).unwrap_or(most);
    let cut = (cut - 2..cut).rev().find(|at| value[*at] == b'%').unwrap_or(cut);
    let mut counted = value[..cut].to_vec();
    counted.extend_from_slice(end.as_bytes());
    Cow::Owned(counted)
}

fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    // Invariant: names and counted values are at most MAX_VALUE_BYTES long.
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(part);
}

/// The first value that a key made by [`key_of`] is keyed on. `None` if it is keyed on none, or was
/// not made by it.
#[must_use]
pub fn first_value(key: &[u8]) -> Option<&[u8]> {
    let (_policy, rest) = split_part(key)?;
    split_part(rest).map(|(value, _)| value)
}

fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(policy: &str, pairs: &[(&str, &[u8])]) -> Vec<u8> {
        let names: Vec<String> = pairs.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut key = Vec::new();
        key_of(policy, &names, &Attributes::new(pairs), &mut key).unwrap();
        key
    }

    #[test]
    fn patterns_match_as_written() {
        for (pattern, value, expected) in [
            ("*", "", true),
            ("GET", "GET", true),
            ("GET", "get", false),
            ("/v1/*", "/v1/x", true),
            ("/v1/*", "/v1", false),
            ("a*b", "a*b", true),
            ("a*b", "axb", false),
        ] {
            assert_eq!(Pattern::from_text(pattern).matches(value.as_bytes()), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn a_star_anywhere_stands_for_anything() {
        for (pattern, value, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a", true),
            ("**", "a", true),
            ("a", "a", true),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("/api/*/edit", "/api/7/edit", true),
            ("/api/*/edit", "/api/7/8/edit", true),
            ("/api/*/edit", "/api/7/see", false),
            ("/api/*/edit", "/api/edit", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*bc*c", "abcc", true),
            ("a*bc*c", "abc", false),
        ] {
            assert_eq!(Pattern::like(pattern).matches(value.as_bytes()), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn an_exception_takes_its_values_out() {
        let pattern = Pattern::Except(Box::new(Pattern::like("a*")), vec![Pattern::from_text("ab")]);
        let matched = ["a", "ab", "abc", "b"].map(|value| pattern.matches(value.as_bytes()));
        assert_eq!(matched, [true, false, true, false]);
    }

    #[test]
    fn keys_of_different_values_differ() {
        assert_ne!(key("p", &[("a", b"xy"), ("b", b"z")]), key("p", &[("a", b"x"), ("b", b"yz")]));
        assert_ne!(key("p", &[("a", b"")]), key("p", &[]));
        assert_ne!(key("px", &[]), key("p", &[("a", b"x")]));
        assert_ne!(key("p", &[("a", "\u{e9}".as_bytes())]), key("p", &[("a", "e\u{301}".as_bytes())]));
    }

    #[test]
    fn a_long_value_is_counted_by_its_digest() {
        let ascii = vec![b'a'; 513];
        let made = counted(&ascii);
        assert_eq!((made.len(), &made[..447]), (512, &ascii[..447]));
        assert_eq!(counted(&ascii[1..]), &ascii[1..], "512 bytes are not long");
        assert!(made[447] == b'~' && made[448..].iter().all(u8::is_ascii_hexdigit));
        assert_eq!(counted(&made), made, "what was made is counted as it is");
        let other = [&ascii[..512], b"b"].concat();
        assert_ne!(counted(&other), made);
        // Not within a character of two to four bytes, nor within an escape.
        for (text, kept) in [("\u{e9}", 2), ("\u{20ac}", 3), ("\u{1f600}", 4), ("%2F", 3)] {
            for before in 0..kept {
                let value = ["a".repeat(before), text.repeat(300)].concat();
                let made = counted(value.as_bytes());
                let start = made.len() - 65;
                assert!((start - before).is_multiple_of(kept) && made.len() <= 512, "{text} after {before}");
                assert!(std::str::from_utf8(&made).is_ok());
            }
        }
        // As the clients make it (`bounded` in clients/conformance.json).
        let vector = "a%2F".repeat(129);
        let made = format!(
            "{}a~4cbbd7f16772ad9dff37b49a0bdcd82617c4f7bbd3c6d6624f4fdccbd2d72797",
            "a%2F".repeat(111)
        );
        assert_eq!(counted(vector.as_bytes()), made.as_bytes());
        // Bytes that are no text are cut all the same.
        assert_eq!(counted(&[0x80; 600]).len(), 512);
    }

    #[test]
    fn keys_of_long_values_differ_and_are_short() {
        let (a, b) = (vec![b'a'; 60_000], vec![b'a'; 60_001]);
        let (a, b) = (key("p", &[("k", &a)]), key("p", &[("k", &b)]));
        assert!(a != b && a.len() < 600 && b.len() < 600);
    }

    #[test]
    fn an_absent_attribute_gives_no_key() {
        let mut bytes = Vec::new();
        assert_eq!(key_of("p", &["a".to_owned()], &Attributes::new(&[]), &mut bytes), None);
    }
}
