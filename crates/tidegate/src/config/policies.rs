//! The file's `[[policy]]` and `[[override]]` entries, checked by the code that checks the admin
//! API's documents, with the lines of the file put to its mistakes.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tidegate_algorithms::policy::{self, MAX_NAME_BYTES, MAX_VALUE_BYTES, Policy, Quota};

use super::document::{Document, Entries};
use super::mistake::{Found, Mistake};
use super::value::shown;

/// Most policies that a file may have: each request is matched against all of them.
pub const MAX_POLICIES: usize = 1_000;

/// Most overrides that a file may have; more belong in the control store.
pub const MAX_OVERRIDES: usize = 10_000;

/// The policy that an override changes if it names none.
const DEFAULT_POLICY: &str = "default";

/// A client's own numbers for one policy.
#[derive(Clone, Debug)]
pub struct Override {
    /// Whose: 1 to 512 bytes.
    pub client_id: String,
    /// Which policy's numbers change for it.
    pub policy: String,
    /// The numbers; what the entry leaves out is as in the policy.
    pub quota: Quota,
}

/// Checks both lists. Mistakes are added to `found`, and the entries that have some left out.
pub(super) fn check(document: &Document<'_>, found: &mut Found) -> (Vec<Policy>, Vec<Override>) {
    let mut checker = Checker { document, found };
    let entries = checker.entries("policy", MAX_POLICIES);
    let policies = checker.policies(&entries.values);
    let declared = entries.values.iter().filter_map(|entry| entry.get("name")?.as_str()).collect::<Vec<_>>();
    let Entries { values, unsayable } = checker.entries("override", MAX_OVERRIDES);
    let overrides = checker.overrides(values, &policies, &declared);
    checker.refuse_unsayable(entries.unsayable.iter().chain(&unsayable));
    (policies, overrides)
}

struct Checker<'a> {
    document: &'a Document<'a>,
    found: &'a mut Found,
}

impl Checker<'_> {
    fn entries(&mut self, name: &str, most: usize) -> Entries {
        let mut entries = self.document.entries(name).unwrap_or_else(|mistake| {
            self.found.push(mistake);
            Entries::default()
        });
        let count = entries.values.len();
        if count > most {
            self.refuse(&format!("/{name}/{most}"), format!("is one of {count}"), format!("at most {most}"));
            entries.values.truncate(most);
        }
        entries
    }

    fn policies(&mut self, entries: &[Json]) -> Vec<Policy> {
        let mut names = HashMap::new();
        let mut policies = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let pointer = format!("/policy/{index}");
            match policy::parse(entry, &pointer) {
                Ok(policy) => {
                    if let Some(first) = names.insert(policy.name.clone(), index) {
                        let problem = format!("is {:?}, as is policy[{first}]", policy.name);
                        self.refuse(&format!("{pointer}/name"), problem, "a name of its own");
                    }
                    policies.push(policy);
                }
                Err(found) => self.adopt(found),
            }
        }
        policies
    }

    fn overrides(&mut self, entries: Vec<Json>, policies: &[Policy], declared: &[&str]) -> Vec<Override> {
        let fallback = Policy::default_per_client();
        let mut seen = HashMap::new();
        let mut overrides = Vec::new();
        for (index, mut entry) in entries.into_iter().enumerate() {
            let pointer = format!("/override/{index}");
            if !entry.is_object() {
                self.refuse(&pointer, shown(&entry.to_string()), "a table");
                continue;
            }
            let client_id = self.take_text(&mut entry, &pointer, "client_id", None, MAX_VALUE_BYTES);
            let name = self.take_text(&mut entry, &pointer, "policy", Some(DEFAULT_POLICY), MAX_NAME_BYTES);
            let Some(name) = name else { continue };
            let known = policies.iter().find(|policy| *policy.name == *name);
            let base = match known {
                Some(policy) => policy,
                None if name == DEFAULT_POLICY => &fallback,
                // A policy that is declared but wrong has been reported already.
                None if declared.contains(&&*name) => continue,
                None => {
                    let accepted = format!("a [[policy]] of this file, or {DEFAULT_POLICY:?}");
                    self.refuse(&format!("{pointer}/policy"), shown(&name), accepted);
                    continue;
                }
            };
            match policy::parse_quota(&entry, &base.quota.spec, &pointer) {
                Ok(quota) => {
                    let Some(client_id) = client_id else { continue };
                    if let Some(first) = seen.insert((client_id.clone(), name.clone()), index) {
                        let problem = format!("is for the same client and policy as override[{first}]");
                        self.refuse(&pointer, problem, "one override for each client and policy");
                    }
                    overrides.push(Override { client_id, policy: name, quota });
                }
                Err(found) => self.adopt(found),
            }
        }
        overrides
    }

    /// Takes a text out of `entry`, so that what remains are the numbers.
    fn take_text(
        &mut self,
        entry: &mut Json,
        pointer: &str,
        field: &str,
        default: Option<&str>,
        most: usize,
    ) -> Option<String> {
        let value = entry.as_object_mut()?.remove(field);
        let problem = match (&value, default) {
            (None, Some(default)) => return Some(default.to_owned()),
            (None, None) => "is missing".to_owned(),
            (Some(Json::String(text)), _) if (1..=most).contains(&text.len()) => return Some(text.clone()),
            (Some(Json::String(text)), _) => shown(text),
            (Some(other), _) => shown(&other.to_string()),
        };
        self.refuse(&format!("{pointer}/{field}"), problem, format!("a string of 1 to {most} bytes"));
        None
    }

    /// A text was checked in the place of each of these: it may have been accepted.
    fn refuse_unsayable<'t>(&mut self, unsayable: impl Iterator<Item = &'t (String, String)>) {
        let reported: HashSet<_> = self.found.list().iter().map(|mistake| mistake.path.clone()).collect();
        for (pointer, text) in unsayable.filter(|(pointer, _)| !reported.contains(&path(pointer))) {
            self.refuse(
                pointer,
                format!("is {text}"),
                "a string, a boolean, a list, a table or a 64-bit number",
            );
        }
    }

    fn adopt(&mut self, found: Vec<policy::Mistake>) {
        for policy::Mistake { pointer, problem, accepted } in found {
            self.refuse(&pointer, problem, accepted);
        }
    }

    fn refuse(&mut self, pointer: &str, problem: impl Into<String>, accepted: impl Into<String>) {
        self.found.push(Mistake {
            origin: self.document.locate(pointer),
            path: path(pointer),
            problem: problem.into(),
            accepted: accepted.into(),
        });
    }
}

/// `/policy/0/match/ip` as people write it: `policy[0].match.ip`.
fn path(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        match token.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) if path.is_empty() => path.extend(token.escape_debug()),
            Err(_) => path.extend(std::iter::once('.').chain(token.escape_debug())),
        }
    }
    path
}
