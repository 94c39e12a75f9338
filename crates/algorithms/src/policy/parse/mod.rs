//! From a document to a checked policy, or to the list of everything that is wrong with it.
//!
//! The same code reads a policy from the TOML file, the admin API and the control store, because
//! all three arrive as a tree of values. Reading by hand instead of deriving is what lets one pass
//! report every mistake with its place, unknown keys and wrong types among them.

mod pattern;
mod quota;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{MAX_ATTRIBUTES, MAX_NAME_BYTES, MAX_REPLACED, Policy, Quota, QuotaSpec, unknown_key};

/// Most mistakes that are reported of one document.
pub const MAX_MISTAKES: usize = 64;

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

const POLICY_KEYS: [&str; 6] = ["name", "match", "key", "mode", "on_store_failure", "replaces"];
const QUOTA_KEYS: [&str; 7] =
    ["algorithm", "limit", "window_seconds", "burst", "lease_seconds", "period", "time_zone"];
const NAMES: &str = "a string of 1 to 64 bytes";

/// Reads a policy. `pointer` is where `value` stands in its document (`""` for the root).
///
/// # Errors
/// Every mistake found, in the order of the fields, at most [`MAX_MISTAKES`] of them.
pub fn parse(value: &Value, pointer: &str) -> Result<Policy, Vec<Mistake>> {
    let mut reader = Reader::new(value, pointer, &[&POLICY_KEYS[..], &QUOTA_KEYS[..]].concat())?;
    let name = reader.name("name");
    let matches = reader.matches();
    let key = reader.keys();
    let mode = reader.choice("mode", "\"enforce\", \"shadow\"").unwrap_or_default();
    let on_store_failure =
        reader.choice("on_store_failure", "\"local\", \"open\", \"closed\"").unwrap_or_default();
    let replaces = reader.replaces(name);
    let quota = reader.quota(None);
    match (name, quota) {
        (Some(name), Some(quota)) if reader.mistakes.is_empty() => {
            Ok(Policy { name: Arc::from(name), matches, key, quota, mode, on_store_failure, replaces })
        }
        _ => Err(reader.mistakes),
    }
}

/// Reads the numbers of an override of `base`: whatever is absent is as in `base`, except that a
/// burst which was `base`'s default follows an overridden limit, and that another algorithm takes
/// nothing over.
///
/// # Errors
/// Every mistake found, at most [`MAX_MISTAKES`] of them.
pub fn parse_quota(value: &Value, base: &QuotaSpec, pointer: &str) -> Result<Quota, Vec<Mistake>> {
    let mut reader = Reader::new(value, pointer, &QUOTA_KEYS)?;
    reader.quota(Some(base)).filter(|_| reader.mistakes.is_empty()).ok_or(reader.mistakes)
}

/// The document of a policy.
pub(super) fn document(policy: &Policy) -> Value {
    let mut map = Map::new();
    map.insert("name".to_owned(), Value::from(&*policy.name));
    if !policy.matches.is_empty() {
        let matches = policy.matches.iter().map(|(name, pattern)| (name.clone(), pattern.document()));
        map.insert("match".to_owned(), Value::Object(matches.collect()));
    }
    map.insert("key".to_owned(), Value::from(policy.key.clone()));
    // Invariant: these are plain structs and enums, which always serialise.
    let numbers = serde_json::to_value(&policy.quota.spec).unwrap_or_default();
    map.extend(numbers.as_object().cloned().unwrap_or_default());
    map.insert("mode".to_owned(), serde_json::to_value(policy.mode).unwrap_or_default());
    let failure = serde_json::to_value(policy.on_store_failure).unwrap_or_default();
    map.insert("on_store_failure".to_owned(), failure);
    if !policy.replaces.is_empty() {
        map.insert("replaces".to_owned(), Value::from(policy.replaces.clone()));
    }
    Value::Object(map)
}

/// Reads fields of one object and collects mistakes. A `null` is not an absent field but a mistake:
/// it is what NaN and infinity become on their way from TOML (fault 15).
struct Reader<'a> {
    map: &'a Map<String, Value>,
    pointer: &'a str,
    mistakes: Vec<Mistake>,
}

impl<'a> Reader<'a> {
    /// A reader that has noted the keys that are not `known`.
    fn new(value: &'a Value, pointer: &'a str, known: &[&str]) -> Result<Self, Vec<Mistake>> {
        let Some(map) = value.as_object() else {
            let problem = format!("is {}", kind(value));
            return Err(vec![Mistake {
                pointer: pointer.to_owned(),
                problem,
                accepted: "an object".to_owned(),
            }]);
        };
        let mut reader = Self { map, pointer, mistakes: Vec::new() };
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            reader.mistake(&escape(key), unknown_key(key, known.iter().copied()), known.join(", "));
        }
        Ok(reader)
    }

    fn field(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    fn mistake(&mut self, field: &str, problem: impl Into<String>, accepted: impl Into<String>) {
        if self.mistakes.len() < MAX_MISTAKES {
            let pointer = format!("{}/{}", self.pointer, field);
            self.mistakes.push(Mistake { pointer, problem: problem.into(), accepted: accepted.into() });
        }
    }

    fn name(&mut self, field: &str) -> Option<&'a str> {
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

    fn keys(&mut self) -> Vec<String> {
        let accepted = format!("a list of up to {MAX_ATTRIBUTES} names");
        let mut names = Vec::new();
        match self.field("key") {
            None => names.push("client_id".to_owned()),
            Some(Value::Array(values)) if values.len() <= MAX_ATTRIBUTES => {
                for (index, value) in values.iter().enumerate() {
                    match value.as_str().filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len())) {
                        Some(name) => names.push(name.to_owned()),
                        None => self.mistake(&format!("key/{index}"), format!("is {}", shown(value)), NAMES),
                    }
                }
            }
            Some(Value::Array(values)) => {
                self.mistake("key", format!("has {} names", values.len()), accepted);
            }
            Some(other) => self.mistake("key", format!("is {}", shown(other)), accepted),
        }
        names
    }

    /// The policies that the one called `own` replaces; they need not be there.
    fn replaces(&mut self, own: Option<&str>) -> Vec<String> {
        let accepted = format!("a list of up to {MAX_REPLACED} names of other policies");
        match self.field("replaces") {
            None => Vec::new(),
            Some(Value::Array(values)) if values.len() <= MAX_REPLACED => {
                let other = |value: &'a Value| value.as_str().filter(|it| is_name(it) && Some(*it) != own);
                let names: Vec<_> = values.iter().map(|value| (value, other(value))).collect();
                for (index, (value, _)) in names.iter().enumerate().filter(|(_, (_, name))| name.is_none()) {
                    self.mistake(&format!("replaces/{index}"), format!("is {}", shown(value)), &accepted);
                }
                names.into_iter().filter_map(|(_, name)| name.map(str::to_owned)).collect()
            }
            Some(other) => {
                self.mistake("replaces", format!("is {}", shown(other)), accepted);
                Vec::new()
            }
        }
    }

    fn choice<T: DeserializeOwned>(&mut self, field: &str, accepted: &str) -> Option<T> {
        let value = self.field(field)?;
        let choice = T::deserialize(value).ok();
        if choice.is_none() {
            self.mistake(field, format!("is {}", shown(value)), accepted);
        }
        choice
    }

    /// A whole number in a range. `None` if it is absent or wrong; wrong ones are reported.
    fn number(&mut self, field: &str, least: u64, most: u64) -> Option<u64> {
        let value = self.field(field)?;
        let number = value.as_u64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.mistake(field, format!("is {}", shown(value)), range(least, most));
        }
        number
    }

    fn required(&mut self, field: &str, least: u64, most: u64, base: Option<u64>) -> Option<u64> {
        if self.field(field).is_none() && base.is_none() {
            self.mistake(field, "is missing", range(least, most));
        }
        self.number(field, least, most).or(base)
    }
}

fn range(least: u64, most: u64) -> String {
    format!("a whole number from {least} to {most}")
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
}

/// A reference token of a JSON pointer.
fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// A value as a mistake shows it: scalars whole but short, trees by kind.
fn shown(value: &Value) -> String {
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

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
