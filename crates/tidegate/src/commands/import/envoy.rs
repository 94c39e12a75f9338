//! A rule of the reference service, translated into policies.
//!
//! That service asks one rule of each descriptor: it goes down the tree entry by entry, to the child
//! with the entry's value, else to the first whose `*` matches it, else to the one without a value,
//! and never back; the rule counts if the entries end where it stands. Every policy that matches
//! applies, so a policy must say by itself when its rule would have been asked:
//!
//! | of the rule | in the policy |
//! |---|---|
//! | its domain | `match.domain` |
//! | the keys on the way, in order and no more | `match.descriptor_keys = "a/b"` |
//! | a value on the way | `match.a = "value"` |
//! | a value with `*` | `match.a = { like, not }`: not what a sibling before it in the choice takes |
//! | no value | `a` in `key`, and `match.a = { not }` |
//! | a counter per value | `a` in `key`, unless the value is fixed or `share_threshold` |
//! | a key for the second time | `a#2` |
//! | `unlimited`, or no limit | no policy; its siblings leave its value out all the same |
//! | `unit`, `requests_per_unit` | a fixed window, aligned as there |
//! | `shadow_mode` | `mode = "shadow"` |
//! | `replaces` | `replaces`, the limit's name made those of its policies |
//!
//! What cannot be said is a mistake, and then nothing is imported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value, json};
use tidegate_algorithms::policy::{self, MAX_NAME_BYTES, MAX_WINDOW_SECONDS, Pattern};
use tidegate_limiter::policy_set::MAX_POLICIES;
use tidegate_wire::envoy_limits::{Domain, DomainRead, LimitRule, RateLimit, read};
use tidegate_wire::yaml::{Finding, Position};

use super::product::inline;

/// Names of attributes that are not entries.
const RESERVED: [&str; 2] = ["domain", "descriptor_keys"];

/// A file's rules as policies.
#[derive(Debug)]
pub(super) struct ImportedPolicies {
    /// The text of a configuration file.
    pub(super) toml: String,
    /// How many policies it has.
    pub(super) policies: usize,
    /// What has no effect, or none any more.
    pub(super) warnings: Vec<Finding>,
}

/// Imports `bytes`, which come from the file called `name`.
pub(super) fn import(bytes: &[u8], name: &str) -> Result<ImportedPolicies, Vec<Finding>> {
    let DomainRead { domain, mut warnings } = read(bytes)?;
    let mut translator = Translator::of(&domain);
    translator.siblings(&domain.descriptors, &mut Vec::new());
    let Translator { rules, mut mistakes, .. } = translator;
    let top = Position { line: 1, column: 1 };
    if domain.name.ends_with('*') {
        mistakes.push(finding(top, "domain", "ends with a *", "another end: here it stands for anything"));
    }
    let policies = policies(&rules, &mut mistakes, &mut warnings);
    if policies.is_empty() && mistakes.is_empty() {
        let accepted = "a rate_limit that is not unlimited";
        mistakes.push(finding(top, "", "there is no limit to import", accepted));
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    warnings.sort();
    let mut toml = format!("# The limits of domain {:?}, imported from {:?}.\n", domain.name, name);
    for (rule, policy) in rules.iter().zip(&policies) {
        write_policy(&mut toml, rule, policy);
    }
    Ok(ImportedPolicies { toml, policies: policies.len(), warnings })
}

fn finding(place: Position, path: &str, problem: impl Into<String>, accepted: impl Into<String>) -> Finding {
    Finding { place, path: path.to_owned(), problem: problem.into(), accepted: accepted.into() }
}

/// One step towards a rule: what it asks of one attribute.
struct Step {
    attribute: String,
    key: String,
    /// For the policy's name.
    value: Option<String>,
    /// The document of a pattern; none: anything.
    pattern: Option<Value>,
    counted: bool,
}

/// A limit with everything that its policy says.
struct Rule<'a> {
    descriptor: &'a LimitRule,
    limit: &'a RateLimit,
    name: String,
    matches: Map<String, Value>,
    key: Vec<String>,
    requests: u32,
    window_seconds: u64,
}

struct Translator<'a> {
    domain: &'a str,
    rules: Vec<Rule<'a>>,
    names: BTreeSet<String>,
    mistakes: Vec<Finding>,
}

impl<'a> Translator<'a> {
    fn of(domain: &'a Domain) -> Self {
        Self { domain: &domain.name, rules: Vec::new(), names: BTreeSet::new(), mistakes: Vec::new() }
    }

    /// Translates all of `siblings`, below `steps`. As deep as the file, which is bounded.
    fn siblings(&mut self, siblings: &'a [LimitRule], steps: &mut Vec<Step>) {
        for (index, descriptor) in siblings.iter().enumerate() {
            let wrong = |problem, accepted: String| {
                finding(descriptor.place, &format!("{}.key", descriptor.path), problem, accepted)
            };
            if RESERVED.contains(&descriptor.key.as_str()) {
                let accepted = format!("another than {}", RESERVED.join(" and "));
                self.mistakes.push(wrong("is the name of an attribute that every request has", accepted));
            }
            if descriptor.key.contains('*') {
                self.mistakes.push(wrong("has a *", "a * in values only".to_owned()));
            }
            steps.push(step(siblings, index, steps));
            if let Some(limit) = &descriptor.limit {
                self.limit(descriptor, limit, steps);
            }
            self.siblings(&descriptor.descriptors, steps);
            steps.pop();
        }
    }

    fn limit(&mut self, descriptor: &'a LimitRule, limit: &'a RateLimit, steps: &[Step]) {
        let path = format!("{}.rate_limit", descriptor.path);
        let Some(quota) = limit.quota else {
            if let Some((_, place)) = limit.replaces.first() {
                let problem = "is unlimited, and replaces others";
                self.mistakes.push(finding(*place, &path, problem, "only limits replace others here"));
            }
            return;
        };
        let window_seconds = quota.unit.seconds();
        if window_seconds > MAX_WINDOW_SECONDS {
            let accepted = format!("a unit of at most {} days", MAX_WINDOW_SECONDS / 86_400);
            self.mistakes.push(finding(descriptor.place, &format!("{path}.unit"), "is too long", accepted));
            return;
        }
        let keys: Vec<&str> = steps.iter().map(|step| step.key.as_str()).collect();
        let mut matches = Map::new();
        matches.insert("domain".to_owned(), json!(self.domain));
        matches.insert("descriptor_keys".to_owned(), json!(keys.join("/")));
        for step in steps {
            if let Some(pattern) = &step.pattern {
                matches.insert(step.attribute.clone(), pattern.clone());
            }
        }
        let key = steps.iter().filter(|step| step.counted).map(|step| step.attribute.clone()).collect();
        let name = self.name(steps);
        let requests = quota.requests_per_unit;
        self.rules.push(Rule { descriptor, limit, name, matches, key, requests, window_seconds });
    }

    /// A name that no other rule has, from the domain and the way to the rule.
    fn name(&mut self, steps: &[Step]) -> String {
        let words = steps.iter().flat_map(|step| std::iter::once(&step.key).chain(&step.value));
        let words: Vec<String> =
            std::iter::once(self.domain).chain(words.map(String::as_str)).map(word).collect();
        let mut name = words.join(".");
        if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
            name.insert(0, 'd');
        }
        let mut chosen = name.get(..MAX_NAME_BYTES).unwrap_or(&name).to_owned();
        let mut number = 1;
        while !self.names.insert(chosen.clone()) {
            number += 1;
            let suffix = format!("-{number}");
            chosen = name[..name.len().min(MAX_NAME_BYTES - suffix.len())].to_owned() + &suffix;
        }
        chosen
    }
}

/// What the sibling at `index` asks of its entry, after `steps`.
fn step(siblings: &[LimitRule], index: usize, steps: &[Step]) -> Step {
    let own = &siblings[index];
    let before = steps.iter().filter(|step| step.key == own.key).count();
    let attribute = if before == 0 { own.key.clone() } else { format!("{}#{}", own.key, before + 1) };
    let related = || siblings.iter().enumerate().filter(|(_, other)| other.key == own.key);
    let stars = |value: &str| value.contains('*');
    let pattern = match own.value.as_deref() {
        Some(value) if !stars(value) => Some(json!(value)),
        Some(value) => {
            let pattern = Pattern::like(value);
            let taken = related().filter_map(|(at, other)| {
                let theirs = other.value.as_deref()?;
                let first = if stars(theirs) { at < index } else { pattern.matches(theirs.as_bytes()) };
                first.then(|| one(theirs))
            });
            let taken: Vec<Value> = taken.collect();
            Some(if taken.is_empty() {
                json!({ "like": value })
            } else {
                json!({ "like": value, "not": taken })
            })
        }
        None => {
            let taken: Vec<Value> = related().filter_map(|(_, it)| it.value.as_deref()).map(one).collect();
            (!taken.is_empty()).then(|| json!({ "not": taken }))
        }
    };
    let counted = match own.value.as_deref() {
        Some(value) => stars(value) && !own.share_threshold,
        None => true,
    };
    Step { attribute, key: own.key.clone(), value: own.value.clone(), pattern, counted }
}

/// A value among those that are left out.
fn one(value: &str) -> Value {
    if value.contains('*') { json!({ "like": value }) } else { json!(value) }
}

/// Lower-case letters, digits, `-`, `_` and `.`, as names of policies have them.
fn word(text: &str) -> String {
    let known = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    text.chars().map(|letter| if known(letter) { letter.to_ascii_lowercase() } else { '-' }).collect()
}

/// The rules' documents, checked as the server checks them.
fn policies(rules: &[Rule<'_>], mistakes: &mut Vec<Finding>, warnings: &mut Vec<Finding>) -> Vec<Value> {
    if let Some(first) = rules.get(MAX_POLICIES) {
        let problem = format!("is one of {} limits", rules.len());
        let accepted = format!("at most {MAX_POLICIES}");
        mistakes.push(finding(first.descriptor.place, &first.descriptor.path, problem, accepted));
        return Vec::new();
    }
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for rule in rules {
        if let Some(name) = &rule.limit.name {
            named.entry(name).or_default().push(&rule.name);
        }
    }
    let mut policies = Vec::with_capacity(rules.len());
    for rule in rules {
        let mut replaces: Vec<&str> = Vec::new();
        for (name, place) in &rule.limit.replaces {
            match named.get(name.as_str()) {
                Some(names) => replaces.extend(names),
                None => {
                    let path = format!("{}.rate_limit.replaces", rule.descriptor.path);
                    let problem = format!("is ignored: no limit of this file is called {name:?}");
                    warnings.push(finding(*place, &path, problem, ""));
                }
            }
        }
        let document = document(rule, &replaces);
        if let Err(found) = policy::parse(&document, "") {
            mistakes.extend(found.into_iter().map(|mistake| {
                let problem = format!("{} {}", mistake.pointer.trim_start_matches('/'), mistake.problem);
                finding(
                    rule.descriptor.place,
                    &rule.descriptor.path,
                    format!("as a policy, {problem}"),
                    mistake.accepted,
                )
            }));
        }
        policies.push(document);
    }
    policies
}

fn document(rule: &Rule<'_>, replaces: &[&str]) -> Value {
    let mut document = json!({
        "name": rule.name,
        "algorithm": "fixed_window",
        "limit": rule.requests,
        "window_seconds": rule.window_seconds,
        "match": rule.matches,
        "key": rule.key,
    });
    if rule.descriptor.shadow_mode {
        document["mode"] = json!("shadow");
    }
    if !replaces.is_empty() {
        document["replaces"] = json!(replaces);
    }
    document
}

/// The fields of a policy, in the order in which people read them.
const FIELDS: [&str; 8] =
    ["name", "algorithm", "limit", "window_seconds", "match", "key", "mode", "replaces"];

fn write_policy(out: &mut String, rule: &Rule<'_>, policy: &Value) {
    // Invariant: writing to a string does not fail.
    let _infallible = write!(out, "\n# line {}\n[[policy]]\n", rule.descriptor.place.line);
    for (field, value) in FIELDS.iter().filter_map(|field| Some((field, policy.get(field)?))) {
        let _infallible = writeln!(out, "{field} = {}", inline(value));
    }
}

#[cfg(test)]
mod tests;
