//! A request's attributes, the patterns that match them, and the bytes that name a counter.
//!
//! Values are opaque bytes: no normalisation, so two Unicode forms of a name are two keys
//! (fault 13). A key is built with the length before each value, so that no choice of values can
//! make two different requests share a counter.

use serde_json::{Value, json};

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
    /// Attributes in the order given; the first of a name counts.
    #[must_use]
    pub fn new(pairs: &'a [(&'a str, &'a [u8])]) -> Self {
        Self { pairs }
    }

    /// The value of `name`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
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
        push_part(key, attributes.value(name)?);
    }
    Some(())
}

fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    // Invariant: names and values are at most MAX_VALUE_BYTES long; longer ones are told apart by
    // content all the same.
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
    fn an_absent_attribute_gives_no_key() {
        let mut bytes = Vec::new();
        assert_eq!(key_of("p", &["a".to_owned()], &Attributes::new(&[]), &mut bytes), None);
    }
}
