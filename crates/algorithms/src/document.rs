//! Documents: trees of values that people write, read field by field.
//!
//! The same code reads a document from the TOML file, the admin API and the control store, because
//! all three arrive as a tree of values. Reading by hand instead of deriving is what lets one pass
//! report every mistake with its place, unknown keys and wrong types among them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::nearest::unknown_key;
use crate::time::SECOND;

/// Most mistakes that are reported of one document.
pub const MAX_MISTAKES: usize = 64;
/// Longest name of a policy or an attribute, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// One thing wrong in a document. It reads as a sentence: `/limit is -1 (accepted: a whole number
/// from 0 to 1000000000)`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} {problem} (accepted: {accepted})", if pointer.is_empty() { "the document" } else { pointer.as_str() })]
pub struct Mistake {
    /// Where, as a JSON pointer (RFC 6901); empty for the document itself.
    pub pointer: String,
    /// What is wrong, with the offending value.
    pub problem: String,
    /// What would be right.
    pub accepted: String,
}

/// Reads fields of one object and collects mistakes. A `null` is not an absent field but a mistake:
/// it is what NaN and infinity become on their way from TOML (fault 15).
#[derive(Debug)]
pub struct DocumentReader<'a> {
    map: &'a Map<String, Value>,
    pointer: String,
    /// What was found to be wrong so far, at most [`MAX_MISTAKES`].
    pub mistakes: Vec<Mistake>,
}

impl<'a> DocumentReader<'a> {
    /// A reader that has noted the keys that are not `known`.
    ///
    /// # Errors
    /// When it is no object.
    pub fn new(value: &'a Value, pointer: &str, known: &[&str]) -> Result<Self, Vec<Mistake>> {
        let Some(map) = value.as_object() else {
            let problem = format!("is {}", kind(value));
            return Err(vec![Mistake {
                pointer: pointer.to_owned(),
                problem,
                accepted: "an object".to_owned(),
            }]);
        };
        let mut reader = Self { map, pointer: pointer.to_owned(), mistakes: Vec::new() };
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            reader.mistake(&escape(key), unknown_key(key, known.iter().copied()), known.join(", "));
        }
        Ok(reader)
    }

    /// Where the object stands, as a JSON pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// The value of a field, if it is there.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    /// Notes what is wrong with a field, or with what is in it: `field` may be a path.
    pub fn mistake(&mut self, field: &str, problem: impl Into<String>, accepted: impl Into<String>) {
        if self.mistakes.len() < MAX_MISTAKES {
            let pointer = format!("{}/{}", self.pointer, field);
            self.mistakes.push(Mistake { pointer, problem: problem.into(), accepted: accepted.into() });
        }
    }

    /// A name, which must be there. `None` if it is absent or wrong, which is reported.
    pub fn name(&mut self, field: &str) -> Option<&'a str> {
        let accepted = format!("1 to {MAX_NAME_BYTES} of a-z, 0-9, '-', '_', '.', starting with a letter");
        let Some(value) = self.field(field) else {
            self.mistake(field, "is missing", accepted);
            return None;
        };
        let name = value.as_str().filter(|name| is_name(name));
        if name.is_none() {
            self.mistake(field, format!("is {}", shown(value)), accepted);
        }
        name
    }

    /// One of several words. `None` if it is absent or wrong; wrong ones are reported.
    pub fn choice<T: DeserializeOwned>(&mut self, field: &str, accepted: &str) -> Option<T> {
        let value = self.field(field)?;
        let choice = T::deserialize(value).ok();
        if choice.is_none() {
            self.mistake(field, format!("is {}", shown(value)), accepted);
        }
        choice
    }

    /// A whole number in a range. `None` if it is absent or wrong; wrong ones are reported.
    pub fn number(&mut self, field: &str, least: u64, most: u64) -> Option<u64> {
        let value = self.field(field)?;
        let number = value.as_u64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.mistake(field, format!("is {}", shown(value)), range(least, most));
        }
        number
    }

    /// A text of `least` to `most` bytes. `None` if it is absent or wrong; wrong ones are reported.
    pub fn text(&mut self, field: &str, least: usize, most: usize) -> Option<&'a str> {
        let value = self.field(field)?;
        let text = value.as_str().filter(|text| (least..=most).contains(&text.len()));
        if text.is_none() {
            self.mistake(
                field,
                format!("is {}", shown(value)),
                format!("a string of {least} to {most} bytes"),
            );
        }
        text
    }

    /// True or false. `None` if it is absent or wrong; wrong ones are reported.
    pub fn flag(&mut self, field: &str) -> Option<bool> {
        self.choice(field, "true, false")
    }

    /// A time in seconds, fractions allowed, as nanoseconds. `None` if it is absent or wrong; wrong ones are
    /// reported.
    pub fn seconds(&mut self, field: &str, least: f64, most: f64) -> Option<u64> {
        let value = self.field(field)?;
        let seconds = value.as_f64().filter(|seconds| (least..=most).contains(seconds));
        if seconds.is_none() {
            self.mistake(field, format!("is {}", shown(value)), format!("seconds from {least} to {most}"));
        }
        seconds.map(|seconds| (seconds * SECOND as f64).round() as u64)
    }

    /// The entries of a list. Empty if it is absent or wrong; wrong ones are reported.
    pub fn list(&mut self, field: &str, most: usize) -> &'a [Value] {
        match self.field(field) {
            None => &[],
            Some(Value::Array(values)) if values.len() <= most => values,
            Some(Value::Array(values)) => {
                self.mistake(field, format!("has {} entries", values.len()), format!("at most {most}"));
                &[]
            }
            Some(other) => {
                self.mistake(field, format!("is {}", shown(other)), "a list");
                &[]
            }
        }
    }

    /// The texts of a list, `least` to `most` bytes each. Wrong entries are reported and left out.
    pub fn texts(&mut self, field: &str, entries: usize, least: usize, most: usize) -> Vec<&'a str> {
        let mut texts = Vec::new();
        for (index, value) in self.list(field, entries).iter().enumerate() {
            match value.as_str().filter(|text| (least..=most).contains(&text.len())) {
                Some(text) => texts.push(text),
                None => self.mistake(
                    &format!("{field}/{index}"),
                    format!("is {}", shown(value)),
                    format!("a string of {least} to {most} bytes"),
                ),
            }
        }
        texts
    }

    /// As [`DocumentReader::number`], where absence is reported unless there is a `base`.
    pub fn required(&mut self, field: &str, least: u64, most: u64, base: Option<u64>) -> Option<u64> {
        if self.field(field).is_none() && base.is_none() {
            self.mistake(field, "is missing", range(least, most));
        }
        self.number(field, least, most).or(base)
    }
}

/// How a range of whole numbers is written in a mistake.
#[must_use]
pub fn range(least: u64, most: u64) -> String {
    format!("a whole number from {least} to {most}")
}

/// Whether a text is a name as policies, routes and upstreams have: 1 to 64 bytes of a-z, 0-9, `-`, `_`, `.`,
/// starting with a letter.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
}

/// A reference token of a JSON pointer.
#[must_use]
pub fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// A value as a mistake shows it: scalars whole but short, trees by kind.
#[must_use]
pub fn shown(value: &Value) -> String {
    const LONGEST: usize = 64;
    match value {
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        scalar => {
            let text = scalar.to_string();
            match text.char_indices().nth(LONGEST) {
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text,
            }
        }
    }
}

/// What kind of value it is, in words.
#[must_use]
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
