//! The configuration that an importer makes: documents in the order of a file, each with the place that it
//! comes from.
//!
//! They are written as TOML and then read by the server's own reader, so that what is written is what a
//! server accepts. What it refuses is reported at the place that the document comes from.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_algorithms::policy::MAX_NAME_BYTES;
use tidegate_wire::yaml::{Finding, Position};

use super::{Imported, Located};
use crate::config::{self, Environment, File, Flags};

/// Where a document comes from.
#[derive(Clone, Debug)]
pub(super) struct SourceLocation {
    pub(super) file: Arc<str>,
    pub(super) place: Position,
}

/// A table of the file that is being made, its keys in the order in which they are written.
#[derive(Clone, Debug)]
pub(super) struct ProductTable {
    pub(super) source: SourceLocation,
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl ProductTable {
    pub(super) fn new(source: SourceLocation) -> Self {
        Self { source, fields: Vec::new() }
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        match self.fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value.into(),
            None => self.fields.push((name, value.into())),
        }
    }

    /// The value of a key, or null.
    pub(super) fn value(&self, name: &str) -> Value {
        self.fields
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }
}

/// Everything that is being made.
#[derive(Debug, Default)]
pub(super) struct Product {
    pub(super) listeners: Vec<ProductTable>,
    pub(super) upstreams: Vec<ProductTable>,
    pub(super) policies: Vec<ProductTable>,
    pub(super) routes: Vec<ProductTable>,
    /// Attributes of limits, and the sources of their values.
    pub(super) attributes: Vec<(String, Value)>,
    names: BTreeSet<String>,
    pub(super) warnings: Vec<Located>,
    pub(super) missing: Vec<Located>,
}

impl Product {
    /// Something has no effect here, or another one.
    pub(super) fn differs(&mut self, source: &SourceLocation, path: &str, problem: impl Into<String>) {
        self.warnings.push(located(source, path, problem.into(), String::new()));
    }

    /// Something was not understood.
    pub(super) fn lacks(&mut self, source: &SourceLocation, path: &str, problem: impl Into<String>) {
        self.missing.push(located(source, path, problem.into(), String::new()));
    }

    /// A name that nothing else has, made of `words`.
    pub(super) fn name(&mut self, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|text| word(text)).filter(|it| !it.is_empty()).collect();
        let mut name = words.join("-");
        if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
            name.insert(0, 'n');
        }
        let mut chosen = cut(&name, "");
        let mut number = 1;
        while !self.names.insert(chosen.clone()) {
            number += 1;
            chosen = cut(&name, &format!("-{number}"));
        }
        chosen
    }

    /// The file's text, and everything that is to be known of it.
    pub(super) fn finish(mut self, header: &str) -> Imported {
        let lists = [
            ("gateway.listener", &self.listeners),
            ("upstream", &self.upstreams),
            ("policy", &self.policies),
            ("route", &self.routes),
        ];
        let mut toml = header.to_owned();
        if !self.attributes.is_empty() {
            toml.push_str("\n[attributes.gateway]\n");
            for (name, value) in &self.attributes {
                // Invariant: writing to a string does not fail.
                let _infallible = writeln!(toml, "{} = {}", bare(name), inline(value));
            }
        }
        for (table, documents) in lists {
            for ProductTable { source, fields } in documents {
                let _infallible =
                    writeln!(toml, "\n# {}:{}\n[[{table}]]", comment(&source.file), source.place.line);
                for (name, value) in fields {
                    let _infallible = writeln!(toml, "{name} = {}", inline(value));
                }
            }
        }
        let counts: Vec<String> = ["listeners", "upstreams", "policies", "routes"]
            .iter()
            .zip(lists)
            .map(|(name, (_, list))| format!("{name}: {}", list.len()))
            .collect();
        let refused = refused(&toml, &lists);
        self.missing.extend(refused);
        Imported { toml, counts: counts.join(", "), warnings: self.warnings, missing: self.missing }
    }
}

/// What the server would refuse of `toml`, at the places that its documents come from.
fn refused(toml: &str, lists: &[(&str, &Vec<ProductTable>)]) -> Vec<Located> {
    let file = File { name: "", bytes: toml.as_bytes() };
    let Err(mistakes) = config::load(Some(file), &Environment::default(), &Flags::default()) else {
        return Vec::new();
    };
    let unknown = SourceLocation { file: "".into(), place: Position { line: 1, column: 1 } };
    let located = |mistake: &config::Mistake| {
        let document = lists.iter().find_map(|(table, documents)| {
            let (index, rest) = mistake.path.strip_prefix(table)?.strip_prefix('[')?.split_once(']')?;
            Some((documents.get(index.parse::<usize>().ok()?)?, format!("{table}{rest}")))
        });
        let (source, path) =
            document.map_or((&unknown, mistake.path.clone()), |(it, path)| (&it.source, path));
        located(source, &path, mistake.problem.clone(), mistake.accepted.clone())
    };
    mistakes.list().iter().map(located).collect()
}

fn located(source: &SourceLocation, path: &str, problem: String, accepted: String) -> Located {
    let finding = Finding { place: source.place, path: path.to_owned(), problem, accepted };
    Located { file: Arc::clone(&source.file), finding }
}

fn cut(name: &str, suffix: &str) -> String {
    // Invariant: `word` leaves ASCII alone.
    name[..name.len().min(MAX_NAME_BYTES - suffix.len())].to_owned() + suffix
}

/// Lower-case letters, digits, `-`, `_` and `.`, as names of documents have them, without what separates at the ends.
pub(super) fn word(text: &str) -> String {
    let known = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let letters = text.chars().map(|letter| if known(letter) { letter.to_ascii_lowercase() } else { '-' });
    letters.collect::<String>().trim_matches('-').to_owned()
}

/// A text that stays within its line of a comment.
pub(super) fn comment(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// A value as TOML on one line. A JSON string is a TOML string, but for one control character.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(name, value)| format!("{} = {}", bare(name), inline(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// A key as TOML, quoted where it must be.
fn bare(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(plain) { name.to_owned() } else { inline(&json!(name)) }
}
