//! The file's `[[policy]]`, `[[override]]` and `[attributes]` entries, checked by the code that checks the admin
//! API's documents, with the lines of the file put to its mistakes.
//!
//! They end as the limiter's [`FileLayer`], which keeps the numbers of an override as they were
//! written: the policy they refer to may be replaced by a stored one. An override in the file must
//! name a policy that the file declares (or the built-in one, where it declares none), because an
//! override of a policy that is not there has no effect, and so would hide a typing mistake.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tidegate_algorithms::policy::{self, MAX_NAME_BYTES, MAX_VALUE_BYTES, Policy, Sources};
use tidegate_limiter::policy_set::{AttributeSources, CLIENT_ID, DEFAULT_POLICY, FileLayer, MAX_POLICIES};

use super::document::{ATTRIBUTES, Document, Entries};
use super::mistake::{Found, Mistake, path};
use super::value::shown;

/// Most overrides that a file may have; more belong in the control store.
pub const MAX_OVERRIDES: usize = 10_000;

/// Checks both lists. Mistakes are added to `found`, and the entries that have some left out.
pub(super) fn check(document: &Document<'_>, found: &mut Found) -> FileLayer {
    let mut checker = Checker { document, found };
    let entries = checker.entries("policy", MAX_POLICIES);
    let policies = checker.policies(&entries.values);
    let declared = entries.values.iter().filter_map(|entry| entry.get("name")?.as_str()).collect::<Vec<_>>();
    let Entries { values, unsayable } = checker.entries("override", MAX_OVERRIDES);
    let overrides = checker.overrides(values, &policies, &declared);
    checker.refuse_unsayable(entries.unsayable.iter().chain(&unsayable));
    let sources = checker.sources();
    FileLayer { policies, overrides, sources }
}

/// Reads lists of the file and notes what is wrong with them.
pub(super) struct Checker<'a> {
    pub(super) document: &'a Document<'a>,
    pub(super) found: &'a mut Found,
}

impl Checker<'_> {
    pub(super) fn entries(&mut self, name: &str, most: usize) -> Entries {
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

    fn overrides(
        &mut self,
        entries: Vec<Json>,
        policies: &[Policy],
        declared: &[&str],
    ) -> Vec<(String, String, Json)> {
        let built_in = Policy::default_per_client();
        let policies: HashMap<&str, &Policy> = policies.iter().map(|it| (&*it.name, it)).collect();
        let declared: HashSet<&str> = declared.iter().copied().collect();
        let mut seen = HashMap::new();
        let mut overrides = Vec::new();
        for (index, mut entry) in entries.into_iter().enumerate() {
            let pointer = format!("/override/{index}");
            if !entry.is_object() {
                self.refuse(&pointer, shown(&entry.to_string()), "a table");
                continue;
            }
            let client = self.take_text(&mut entry, &pointer, CLIENT_ID, None, MAX_VALUE_BYTES);
            let name = self.take_text(&mut entry, &pointer, "policy", Some(DEFAULT_POLICY), MAX_NAME_BYTES);
            let Some(name) = name else { continue };
            let base = match policies.get(&*name).copied() {
                Some(policy) => policy,
                None if declared.is_empty() && name == DEFAULT_POLICY => &built_in,
                // A policy that is declared but wrong has been reported already.
                None if declared.contains(&*name) => continue,
                None => {
                    self.refuse(
                        &format!("{pointer}/policy"),
                        shown(&name),
                        "the name of a [[policy]] of this file",
                    );
                    continue;
                }
            };
            if let Err(found) = policy::parse_quota(&entry, &base.quota.spec, &pointer) {
                self.adopt(found);
            }
            let Some(client) = client else { continue };
            if let Some(first) = seen.insert((client.clone(), name.clone()), index) {
                let problem = format!("is for the same client and policy as override[{first}]");
                self.refuse(&pointer, problem, "one override for each client and policy");
            }
            overrides.push((client, name, entry));
        }
        overrides
    }

    /// Where attributes come from: a table for each protocol.
    fn sources(&mut self) -> AttributeSources {
        let mut read = AttributeSources::default();
        let protocols = AttributeSources::PROTOCOLS;
        let accepted = protocols.map(|(name, _)| format!("[{ATTRIBUTES}.{name}]")).join(", ");
        let value = self.document.table(ATTRIBUTES);
        let Json::Object(tables) = value else {
            self.refuse(&format!("/{ATTRIBUTES}"), shown(&value.to_string()), accepted);
            return read;
        };
        for (name, table) in &tables {
            let pointer = format!("/{ATTRIBUTES}/{}", name.replace('~', "~0").replace('/', "~1"));
            let Some((protocol, forms)) = protocols.iter().find(|(protocol, _)| protocol == name) else {
                self.refuse(&pointer, "is not a protocol with sources of its own", accepted.as_str());
                continue;
            };
            let sources = policy::parse_sources(table, &pointer, forms).unwrap_or_else(|found| {
                self.adopt(found);
                Sources::default()
            });
            *read.of_mut(protocol) = sources;
        }
        read
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
    pub(super) fn refuse_unsayable<'t>(&mut self, unsayable: impl Iterator<Item = &'t (String, String)>) {
        let reported: HashSet<_> = self.found.list().iter().map(|mistake| mistake.path.clone()).collect();
        for (pointer, text) in unsayable.filter(|(pointer, _)| !reported.contains(&path(pointer))) {
            self.refuse(
                pointer,
                format!("is {text}"),
                "a string, a boolean, a list, a table or a 64-bit number",
            );
        }
    }

    pub(super) fn adopt(&mut self, found: Vec<policy::Mistake>) {
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
