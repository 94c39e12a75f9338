//! A policy's match: a text, a list of alternatives, or an object for conditions that a text cannot express.
//!
//! ```text
//!   "GET"  "/v1/*"  "*"                    exactly this; this prefix; anything
//!   ["GET", "/v1/*"]                       any of them
//!   { like = "/v1/*/edit" }                a `*` anywhere
//!   { not = ["GET", { like = "*.js" }] }   anything else; with `like` as well, of what it matches
//! ```
//!
//! A `*` inside a text is literal, because it was so before there was `like`. Patterns for `path` are spelt as paths are when they
//! are compared, so that it does not matter how they were written.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

use super::NAMES;
use crate::document::{DocumentReader, escape, shown};
use crate::policy::{MAX_ATTRIBUTES, MAX_NAME_BYTES, MAX_VALUE_BYTES, Pattern};

/// Most alternatives of one pattern.
const MAX_ALTERNATIVES: usize = 64;
/// Most values that one pattern leaves out.
const MAX_EXCEPTIONS: usize = 256;

impl DocumentReader<'_> {
    /// The patterns of every attribute.
    pub(super) fn matches(&mut self) -> Vec<(String, Pattern)> {
        let accepted = format!("an object of up to {MAX_ATTRIBUTES} attributes");
        match self.field("match") {
            None => Vec::new(),
            Some(Value::Object(map)) if map.len() <= MAX_ATTRIBUTES => map
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), self.pattern(name, value)?)))
                .collect(),
            Some(Value::Object(map)) => {
                self.mistake("match", format!("has {} attributes", map.len()), accepted);
                Vec::new()
            }
            Some(other) => {
                self.mistake("match", format!("is {}", shown(other)), accepted);
                Vec::new()
            }
        }
    }

    fn pattern(&mut self, name: &str, value: &Value) -> Option<Pattern> {
        let field = format!("match/{}", escape(name));
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            self.mistake(&field, format!("has a name of {} bytes", name.len()), NAMES);
        }
        match value {
            Value::Array(values) => self.several(&field, values, MAX_ALTERNATIVES).map(Pattern::AnyOf),
            Value::Object(map) => {
                for key in map.keys().filter(|key| !["like", "not"].contains(&key.as_str())) {
                    self.mistake(&format!("{field}/{}", escape(key)), "is not a known key", "like, not");
                }
                if map.is_empty() {
                    self.mistake(&field, "is empty", "like, not, or both");
                }
                let like = map.get("like").map(|value| self.like(&format!("{field}/like"), value));
                let not = map.get("not").map(|value| self.exceptions(&format!("{field}/not"), value));
                let like = like.unwrap_or(Some(Pattern::Present))?;
                match not {
                    None => Some(like),
                    Some(not) => Some(Pattern::Except(Box::new(like), not?)),
                }
            }
            text => self.pattern_text(&field, text).map(|text| Pattern::from_text(&text)),
        }
    }

    fn exceptions(&mut self, field: &str, value: &Value) -> Option<Vec<Pattern>> {
        let Value::Array(values) = value else {
            self.mistake(field, format!("is {}", shown(value)), format!("a list of 1 to {MAX_EXCEPTIONS}"));
            return None;
        };
        self.several(field, values, MAX_EXCEPTIONS)
    }

    /// Texts, and objects that say `like`.
    fn several(&mut self, field: &str, values: &[Value], most: usize) -> Option<Vec<Pattern>> {
        if !(1..=most).contains(&values.len()) {
            let accepted = format!("a string, or a list of 1 to {most}");
            self.mistake(field, format!("has {} alternatives", values.len()), accepted);
        }
        let patterns: Vec<_> = values
            .iter()
            .take(most)
            .enumerate()
            .map(|(index, value)| {
                let field = format!("{field}/{index}");
                match value {
                    Value::Object(map) if map.len() == 1 && map.contains_key("like") => {
                        self.like(&format!("{field}/like"), &map["like"])
                    }
                    text => self.pattern_text(&field, text).map(|text| Pattern::from_text(&text)),
                }
            })
            .collect();
        patterns.into_iter().collect()
    }

    fn like(&mut self, field: &str, value: &Value) -> Option<Pattern> {
        self.pattern_text(field, value).map(|text| Pattern::like(&text))
    }

    /// A pattern as text; a mistake if the value is no text.
    fn pattern_text<'v>(&mut self, field: &str, value: &'v Value) -> Option<Cow<'v, str>> {
        let is_of_path = field == "match/path" || field.starts_with("match/path/");
        let text = value.as_str().map(|text| if is_of_path { spelt(text) } else { Cow::Borrowed(text) });
        let text = text.filter(|text| text.len() <= MAX_VALUE_BYTES);
        if text.is_none() {
            let accepted = format!("a string of up to {MAX_VALUE_BYTES} bytes, or a list of them");
            self.mistake(field, format!("is {}", shown(value)), accepted);
        }
        text
    }
}

/// A pattern for `path` in the one spelling of `tidegate_wire::path::one_spelling`, which this crate does not know; a test of the
/// limiter compares the two. What is no path stays as it is.
fn spelt(text: &str) -> Cow<'_, str> {
    let is_other = |byte| byte == b'%' || is_in_no_uri(byte);
    if !text.starts_with(['/', '*']) || !text.bytes().any(is_other) {
        return Cow::Borrowed(text);
    }
    let mut spelt = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = escaped(byte, after);
        if escaped.is_some() {
            rest = &after[2..];
        }
        match escaped {
            Some(plain) if is_plain(plain) => spelt.push(char::from(plain)),
            Some(byte) => push_escape(&mut spelt, byte),
            None if is_in_no_uri(byte) => push_escape(&mut spelt, byte),
            None => spelt.push(char::from(byte)),
        }
    }
    Cow::Owned(spelt)
}

/// The byte that `%` and two hexadecimal digits stand for.
fn escaped(byte: u8, after: &[u8]) -> Option<u8> {
    let digits = after.get(..2).filter(|digits| byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn push_escape(spelt: &mut String, byte: u8) {
    let _infallible = write!(spelt, "%{byte:02X}");
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()+,:=@".contains(&byte)
}

fn is_in_no_uri(byte: u8) -> bool {
    byte >= 0x80 || b" \"<>[]^`{|}".contains(&byte)
}
