//! From a document to a checked policy, or to the list of everything that is wrong with it.
//!
//! How a document is read, and why by hand, is in [`crate::document`].

mod pattern;
mod quota;
mod sources;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    MAX_ATTRIBUTES, MAX_MISTAKES, MAX_NAME_BYTES, MAX_REPLACED, MAX_TIERS, Policy, Quota, QuotaSpec,
};
use crate::document::{DocumentReader, Mistake, escape, is_name, shown};
pub use sources::parse_sources;

const POLICY_KEYS: [&str; 7] = ["name", "match", "key", "mode", "on_store_failure", "replaces", "tiers"];
const QUOTA_KEYS: [&str; 7] =
    ["algorithm", "limit", "window_seconds", "burst", "lease_seconds", "period", "time_zone"];
/// The numbers of a limit that comes with a request.
const OWN_KEYS: [&str; 4] = ["algorithm", "limit", "window_seconds", "burst"];
const OWN_ALGORITHMS: &str =
    "\"token_bucket\", \"leaky_bucket\", \"fixed_window\", \"sliding_log\", \"sliding_counter\"";
const NAMES: &str = "a string of 1 to 64 bytes";

/// Reads a policy. `pointer` is where `value` stands in its document (`""` for the root).
///
/// # Errors
/// Every mistake found, in the order of the fields, at most [`MAX_MISTAKES`] of them.
pub fn parse(value: &Value, pointer: &str) -> Result<Policy, Vec<Mistake>> {
    let mut reader = DocumentReader::new(value, pointer, &[&POLICY_KEYS[..], &QUOTA_KEYS[..]].concat())?;
    let name = reader.name("name");
    let matches = reader.matches();
    let key = reader.keys();
    let mode = reader.choice("mode", "\"enforce\", \"shadow\"").unwrap_or_default();
    let on_store_failure =
        reader.choice("on_store_failure", "\"local\", \"open\", \"closed\"").unwrap_or_default();
    let replaces = reader.replaces(name);
    let quota = reader.quota(None);
    let tiers = quota.as_ref().map(|quota| reader.tiers(&quota.spec, pointer)).unwrap_or_default();
    match (name, quota) {
        (Some(name), Some(quota)) if reader.mistakes.is_empty() => {
            Ok(Policy { name: Arc::from(name), matches, key, quota, tiers, mode, on_store_failure, replaces })
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
    let mut reader = DocumentReader::new(value, pointer, &QUOTA_KEYS)?;
    reader.quota(Some(base)).filter(|_| reader.mistakes.is_empty()).ok_or(reader.mistakes)
}

/// Reads the numbers of a limit that comes with a request: those of a policy, within the same bounds. Permits and civil time
/// are for policies alone.
///
/// # Errors
/// Every mistake found, at most [`MAX_MISTAKES`] of them.
pub fn parse_own_limit(value: &Value, pointer: &str) -> Result<Quota, Vec<Mistake>> {
    if let Some(name @ ("concurrency" | "calendar")) = value.get("algorithm").and_then(Value::as_str) {
        let problem = format!("is {name:?}, which is for policies alone");
        let (pointer, accepted) = (format!("{pointer}/algorithm"), OWN_ALGORITHMS.to_owned());
        return Err(vec![Mistake { pointer, problem, accepted }]);
    }
    let mut reader = DocumentReader::new(value, pointer, &OWN_KEYS)?;
    reader.quota(None).filter(|_| reader.mistakes.is_empty()).ok_or(reader.mistakes)
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
    if !policy.tiers.is_empty() {
        let numbers = |quota: &Quota| serde_json::to_value(&quota.spec).unwrap_or_default();
        let tiers = policy.tiers.iter().map(|(name, quota)| (name.to_string(), numbers(quota)));
        map.insert("tiers".to_owned(), Value::Object(tiers.collect()));
    }
    map.insert("mode".to_owned(), serde_json::to_value(policy.mode).unwrap_or_default());
    let failure = serde_json::to_value(policy.on_store_failure).unwrap_or_default();
    map.insert("on_store_failure".to_owned(), failure);
    if !policy.replaces.is_empty() {
        map.insert("replaces".to_owned(), Value::from(policy.replaces.clone()));
    }
    Value::Object(map)
}

impl<'a> DocumentReader<'a> {
    /// The attributes that a policy counts by.
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

    /// The numbers of each tier of a policy at `pointer`; what a tier leaves out is as in `base`. They are under the
    /// same counters, so that the algorithm is the same.
    fn tiers(&mut self, base: &QuotaSpec, pointer: &str) -> Vec<(Box<str>, Quota)> {
        let Some(value) = self.field("tiers") else { return Vec::new() };
        let Some(map) = value.as_object().filter(|map| map.len() <= MAX_TIERS) else {
            let accepted = format!("a table of up to {MAX_TIERS} names and numbers");
            self.mistake("tiers", format!("is {}", shown(value)), accepted);
            return Vec::new();
        };
        let mut tiers = Vec::new();
        for (name, numbers) in map {
            let place = format!("tiers/{}", escape(name));
            if !is_name(name) {
                let accepted = "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter";
                self.mistake(&place, "is no name of a tier", accepted);
                continue;
            }
            match parse_quota(numbers, base, &format!("{pointer}/{place}")) {
                Ok(quota) if quota.spec.algorithm == base.algorithm => {
                    tiers.push((name.as_str().into(), quota))
                }
                Ok(_) => {
                    let accepted = "the policy's own, or none";
                    self.mistake(&format!("{place}/algorithm"), "is another than the policy's", accepted);
                }
                Err(found) => self.mistakes.extend(found),
            }
        }
        self.mistakes.truncate(MAX_MISTAKES);
        tiers
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
}
