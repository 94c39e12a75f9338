//! From a document to a checked policy, or to the list of everything that is wrong with it.
//!
//! The same code reads a policy from the TOML file, the admin API and the control store, because
//! all three arrive as a tree of values. Reading by hand instead of deriving is what lets one pass
//! report every mistake with its place, unknown keys and wrong types among them.

use std::sync::Arc;

use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    Algorithm, MAX_ATTRIBUTES, MAX_LEASE_SECONDS, MAX_NAME_BYTES, MAX_SPAN, MAX_UNITS, MAX_VALUE_BYTES,
    MAX_WINDOW_SECONDS, Pattern, Policy, Quota, QuotaSpec,
};
use crate::limit::{Limit, concurrency::MAX_PERMITS, sliding_log::MAX_ENTRIES};

/// One thing wrong in a document.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{pointer}: {problem} (accepted: {accepted})")]
pub struct Mistake {
    /// Where, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// What is wrong, with the offending value.
    pub problem: String,
    /// What would be right.
    pub accepted: String,
}

const POLICY_KEYS: [&str; 5] = ["name", "match", "key", "mode", "on_store_failure"];
const QUOTA_KEYS: [&str; 7] =
    ["algorithm", "limit", "window_seconds", "burst", "lease_seconds", "period", "time_zone"];

/// Reads a policy. `pointer` is where `value` stands in its document (`""` for the root).
///
/// # Errors
/// Every mistake found, in the order of the fields.
pub fn parse(value: &Value, pointer: &str) -> Result<Policy, Vec<Mistake>> {
    let mut reader = Reader::new(value, pointer);
    reader.refuse_unknown(&[&POLICY_KEYS[..], &QUOTA_KEYS[..]].concat());
    let name = reader.name("name");
    let matches = reader.matches();
    let key = reader.keys();
    let mode = reader.choice("mode", "\"enforce\", \"shadow\"").unwrap_or_default();
    let on_store_failure =
        reader.choice("on_store_failure", "\"local\", \"open\", \"closed\"").unwrap_or_default();
    let quota = reader.quota(None);
    match (name, quota) {
        (Some(name), Some(quota)) if reader.mistakes.is_empty() => {
            Ok(Policy { name: Arc::from(name), matches, key, quota, mode, on_store_failure })
        }
        _ => Err(reader.mistakes),
    }
}

/// Reads the numbers of an override of `base`: whatever is absent is as in `base`.
///
/// # Errors
/// Every mistake found.
pub fn parse_quota(value: &Value, base: &QuotaSpec, pointer: &str) -> Result<Quota, Vec<Mistake>> {
    let mut reader = Reader::new(value, pointer);
    reader.refuse_unknown(&QUOTA_KEYS);
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
    Value::Object(map)
}

/// Reads fields of one object and collects mistakes.
struct Reader<'a> {
    map: Option<&'a Map<String, Value>>,
    pointer: &'a str,
    mistakes: Vec<Mistake>,
}

impl<'a> Reader<'a> {
    fn new(value: &'a Value, pointer: &'a str) -> Self {
        let mut reader = Self { map: value.as_object(), pointer, mistakes: Vec::new() };
        if reader.map.is_none() {
            reader.mistakes.push(Mistake {
                pointer: pointer.to_owned(),
                problem: format!("is {}", kind(value)),
                accepted: "an object".to_owned(),
            });
        }
        reader
    }

    fn field(&self, name: &str) -> Option<&'a Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    fn mistake(&mut self, field: &str, problem: impl Into<String>, accepted: impl Into<String>) {
        let pointer = format!("{}/{}", self.pointer, field);
        self.mistakes.push(Mistake { pointer, problem: problem.into(), accepted: accepted.into() });
    }

    fn refuse_unknown(&mut self, known: &[&str]) {
        let unknown: Vec<&String> =
            self.map.iter().flat_map(|map| map.keys()).filter(|key| !known.contains(&key.as_str())).collect();
        for key in unknown {
            self.mistake(&escape(key), "is not a known key", known.join(", "));
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

    fn matches(&mut self) -> Vec<(String, Pattern)> {
        let Some(value) = self.field("match") else { return Vec::new() };
        let Some(map) = value.as_object().filter(|map| map.len() <= MAX_ATTRIBUTES) else {
            self.mistake(
                "match",
                format!("is {}", shown(value)),
                format!("up to {MAX_ATTRIBUTES} attributes"),
            );
            return Vec::new();
        };
        map.iter().filter_map(|(name, value)| Some((name.clone(), self.pattern(name, value)?))).collect()
    }

    fn pattern(&mut self, name: &str, value: &Value) -> Option<Pattern> {
        let text = |value: &Value| {
            value.as_str().filter(|text| text.len() <= MAX_VALUE_BYTES).map(Pattern::from_text)
        };
        let pattern = match value {
            Value::Array(values) if (1..=MAX_ATTRIBUTES * 4).contains(&values.len()) => {
                values.iter().map(text).collect::<Option<Vec<_>>>().map(Pattern::AnyOf)
            }
            single => text(single),
        };
        if name.is_empty() || name.len() > MAX_NAME_BYTES || pattern.is_none() {
            let accepted = format!(
                "a name of 1 to {MAX_NAME_BYTES} bytes with a string or list of strings of up to {MAX_VALUE_BYTES} bytes"
            );
            self.mistake(&format!("match/{}", escape(name)), format!("is {}", shown(value)), accepted);
            return None;
        }
        pattern
    }

    fn keys(&mut self) -> Vec<String> {
        let Some(value) = self.field("key") else { return vec!["client_id".to_owned()] };
        let names = value.as_array().filter(|names| names.len() <= MAX_ATTRIBUTES).and_then(|names| {
            let name = |name: &Value| {
                name.as_str().filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len())).map(str::to_owned)
            };
            names.iter().map(name).collect::<Option<Vec<_>>>()
        });
        names.unwrap_or_else(|| {
            self.mistake(
                "key",
                format!("is {}", shown(value)),
                format!("a list of up to {MAX_ATTRIBUTES} names"),
            );
            Vec::new()
        })
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
            self.mistake(
                field,
                format!("is {}", shown(value)),
                format!("a whole number from {least} to {most}"),
            );
        }
        number
    }

    fn quota(&mut self, base: Option<&QuotaSpec>) -> Option<Quota> {
        let names = "\"token_bucket\", \"leaky_bucket\", \"fixed_window\", \"sliding_log\", \
                     \"sliding_counter\", \"concurrency\", \"calendar\"";
        let algorithm = match self.field("algorithm") {
            Some(_) => self.choice("algorithm", names)?,
            None => base.map_or(Algorithm::SlidingLog, |base| base.algorithm),
        };
        let base = base.filter(|base| base.algorithm == algorithm);
        let before = self.mistakes.len();
        let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let windowed = !matches!(algorithm, Algorithm::Concurrency | Algorithm::Calendar);
        let limit = self.required("limit", 0, MAX_UNITS, base.map(|base| base.limit));
        let window = self.only_if(windowed, "window_seconds", algorithm).then(|| {
            self.required("window_seconds", 1, MAX_WINDOW_SECONDS, base.and_then(|base| base.window_seconds))
        });
        let burst = self.only_if(bucket, "burst", algorithm).then(|| {
            let default = if algorithm == Algorithm::LeakyBucket { Some(1) } else { limit };
            self.number("burst", 1, MAX_UNITS).or_else(|| base.and_then(|base| base.burst)).or(default)
        });
        let concurrent = algorithm == Algorithm::Concurrency;
        let lease = self.only_if(concurrent, "lease_seconds", algorithm).then(|| {
            let base = base.and_then(|base| base.lease_seconds);
            self.number("lease_seconds", 1, MAX_LEASE_SECONDS).or(base).unwrap_or(60)
        });
        let calendar = algorithm == Algorithm::Calendar;
        let (period, zone) = (
            self.only_if(calendar, "period", algorithm).then(|| self.period(base)),
            self.only_if(calendar, "time_zone", algorithm).then(|| self.zone(base)),
        );
        if self.mistakes.len() > before {
            return None;
        }
        let (zone_name, zone) = zone.flatten().unzip();
        let spec = QuotaSpec {
            algorithm,
            limit: limit?,
            window_seconds: window.flatten(),
            burst: burst.flatten(),
            lease_seconds: lease,
            period: period.flatten(),
            time_zone: zone_name,
        };
        let limit = spec.limit(zone.unwrap_or(TimeZone::UTC));
        self.bounded(&spec, &limit).then_some(Quota { spec, limit })
    }

    fn required(&mut self, field: &str, least: u64, most: u64, base: Option<u64>) -> Option<u64> {
        if self.field(field).is_none() && base.is_none() {
            self.mistake(field, "is missing", format!("a whole number from {least} to {most}"));
        }
        self.number(field, least, most).or(base)
    }

    /// Whether `field` belongs to the algorithm; a mistake if it is there and does not.
    fn only_if(&mut self, belongs: bool, field: &str, algorithm: Algorithm) -> bool {
        if !belongs && self.field(field).is_some() {
            let algorithm = serde_json::to_value(algorithm).unwrap_or_default();
            self.mistake(field, format!("has no meaning for {algorithm}"), "leave it out");
        }
        belongs
    }

    fn period(&mut self, base: Option<&QuotaSpec>) -> Option<crate::limit::calendar::Period> {
        let accepted = "\"day\", \"month\"";
        let base = base.and_then(|base| base.period);
        if self.field("period").is_none() && base.is_none() {
            self.mistake("period", "is missing", accepted);
        }
        self.choice("period", accepted).or(base)
    }

    fn zone(&mut self, base: Option<&QuotaSpec>) -> Option<(String, TimeZone)> {
        let accepted = "an IANA time zone such as \"UTC\" or \"Europe/Berlin\"";
        let base = base.and_then(|base| base.time_zone.as_deref());
        let name = match self.field("time_zone") {
            Some(value) => value.as_str(),
            None => base,
        };
        let zone = name.and_then(|name| Some((name.to_owned(), TimeZone::get(name).ok()?)));
        if zone.is_none() {
            let value = self.field("time_zone").map_or("missing".to_owned(), shown);
            self.mistake("time_zone", format!("is {value}"), accepted);
        }
        zone
    }

    /// Bounds that concern several fields at once.
    fn bounded(&mut self, spec: &QuotaSpec, limit: &Limit) -> bool {
        let before = self.mistakes.len();
        match limit {
            Limit::SlidingLog(log) if log.limit > MAX_ENTRIES => self.mistake(
                "limit",
                format!("is {}: the log of one key would pass {} bytes", log.limit, MAX_ENTRIES * 16),
                format!("up to {MAX_ENTRIES}, or algorithm sliding_counter or token_bucket"),
            ),
            Limit::Concurrency(slots) if slots.limit > MAX_PERMITS => {
                self.mistake("limit", format!("is {}", slots.limit), format!("up to {MAX_PERMITS} permits"));
            }
            Limit::TokenBucket(bucket) | Limit::LeakyBucket(bucket) => {
                let span = u128::from(bucket.burst) * u128::from(bucket.interval);
                if span > u128::from(MAX_SPAN) {
                    let most = MAX_SPAN / bucket.interval;
                    let problem = format!("is {}: a full burst would take over 104 days", bucket.burst);
                    self.mistake("burst", problem, format!("up to {most} at this rate"));
                }
                let seconds = spec.window_seconds.unwrap_or(1);
                let most = seconds.saturating_mul(10_000_000);
                if spec.limit > most {
                    self.mistake(
                        "limit",
                        format!("is {}", spec.limit),
                        format!("up to {most}: 10 million a second"),
                    );
                }
            }
            _ => {}
        }
        self.mistakes.len() == before
    }
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
