//! The difference between two documents, in words for the log: `limit 100 -> 50`.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;

use crate::document::{Author, Change, FILE, Kind, Revision};
use crate::service::Parts;

/// Most fields that are named.
const MAX_NAMED: usize = 8;

/// Longest text of one value, in characters.
const MAX_SHOWN: usize = 80;

/// The fields in which two documents differ, with both values; `None` if they are the same. A document
/// that is absent is said to be added or removed.
#[must_use]
pub fn difference(before: Option<&Value>, after: Option<&Value>) -> Option<String> {
    match (before, after) {
        (None, None) => None,
        (None, Some(after)) => Some(format!("added: {}", shown(Some(after)))),
        (Some(before), None) => Some(format!("removed: {}", shown(Some(before)))),
        (Some(before), Some(after)) => {
            let mut fields = Vec::new();
            collect("", before, after, &mut fields);
            let (first, rest) = fields.split_first()?;
            let mut text = first.clone();
            for field in rest.iter().take(MAX_NAMED - 1) {
                text.push_str(", ");
                text.push_str(field);
            }
            if fields.len() > MAX_NAMED {
                // Invariant: writing to a String cannot fail.
                let _infallible = write!(text, ", and {} more", fields.len() - MAX_NAMED);
            }
            Some(text)
        }
    }
}

fn collect(path: &str, before: &Value, after: &Value, fields: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            let path = if path.is_empty() { "it" } else { path };
            fields.push(format!("{path} {} -> {}", shown(Some(before)), shown(Some(after))));
        }
        return;
    };
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (old.get(name), new.get(name)) {
            (Some(before), Some(after)) => collect(&path, before, after, fields),
            (before, after) => fields.push(format!("{path} {} -> {}", shown(before), shown(after))),
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "absent".to_owned(), Value::to_string);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The lines about the changes of one edit by the API. Each change has a revision of its own.
pub(crate) struct ChangeLines {
    first: Revision,
    lines: Vec<ChangeLine>,
}

impl ChangeLines {
    /// About `changes`, which will be made on `parts` in this order.
    pub(crate) fn new(parts: &Parts, changes: &[Change], author: &Author) -> Self {
        let first = parts.documents().revision().next();
        Self { first, lines: changes.iter().map(|change| ChangeLine::new(parts, change, author)).collect() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Says that they were made. Returns the newest revision of them.
    pub(crate) fn write(self) -> Revision {
        let mut revision = self.first;
        for (number, line) in (self.first.0..).zip(self.lines) {
            revision = Revision(number);
            line.write(revision);
        }
        revision
    }
}

/// The line about a change by the API.
struct ChangeLine {
    kind: Kind,
    name: Arc<str>,
    actor: String,
    what: String,
}

impl ChangeLine {
    /// About `change`, which will be made on `parts`.
    fn new(parts: &Parts, change: &Change, author: &Author) -> Self {
        let Change { kind, name, .. } = change;
        let stored = parts.documents().get(*kind, name).and_then(|document| parsed(&document.body));
        // What a first stored document changes is the one that was in force before.
        let before = stored.or_else(|| parts.document(*kind, name));
        let before = change.removed.as_deref().and_then(parsed).or(before);
        let after = change.body.as_deref().and_then(parsed);
        let what = difference(before.as_ref(), after.as_ref()).unwrap_or_else(|| "nothing".to_owned());
        Self { kind: *kind, name: name.clone(), actor: author.actor.clone(), what }
    }

    /// Says that it was made.
    fn write(self, revision: Revision) {
        let Self { kind, name, actor, what } = self;
        // What the file changes is said by the services.
        if kind == FILE {
            return;
        }
        tracing::info!(revision = revision.0, actor, %kind, ?name, change = what, "changed by the API");
    }
}

fn parsed(body: &str) -> Option<Value> {
    serde_json::from_str(body).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_with_both_values() {
        let before = json!({"limit": 100, "match": {"path": "/a"}, "burst": 1, "mode": "enforce"});
        let after = json!({"limit": 50, "match": {"path": "/b"}, "mode": "enforce", "key": []});
        let said = difference(Some(&before), Some(&after)).unwrap();
        for field in
            ["limit 100 -> 50", "match.path \"/a\" -> \"/b\"", "burst 1 -> absent", "key absent -> []"]
        {
            assert!(said.contains(field), "{field} is not in {said}");
        }
        assert!(!said.contains("mode"), "{said}");
        assert_eq!(difference(Some(&before), Some(&before)), None);
        assert_eq!(difference(None, Some(&json!({"limit": 1}))).unwrap(), "added: {\"limit\":1}");
        assert_eq!(difference(Some(&json!(1)), Some(&json!([]))).unwrap(), "it 1 -> []");
    }

    #[test]
    fn a_large_difference_is_cut() {
        let many = |by: usize| Value::Object((0..20).map(|n| (format!("f{n}"), json!(n + by))).collect());
        let said = difference(Some(&many(0)), Some(&many(1))).unwrap();
        assert!(said.ends_with(", and 12 more"), "{said}");
        let long = json!("x".repeat(10_000));
        assert!(difference(Some(&long), None).unwrap().len() < 200);
    }
}
