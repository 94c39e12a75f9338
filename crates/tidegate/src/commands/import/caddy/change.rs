//! Changes of a route: keys and edits of fields, and the route in the place of one that is not understood.

use serde_json::{Value, json};

use super::super::product::{ProductTable, SourceLocation};

/// A change of requests, or of their replies.
#[derive(Clone, Debug)]
pub(super) enum CaddyChange {
    /// A key of the route.
    Key(&'static str, Value),
    /// An edit of a field: `request_fields` or `response_fields`; `set`, `add`, `remove`, or `put`, which is `add` in the place of
    /// another one; the name; the value.
    Field(&'static str, &'static str, String, String),
    /// Nobody passes, since something that may keep people out is not understood.
    Closed,
}

/// A route in the place of one that is not understood, so that no other one takes its requests.
pub(super) fn closed(source: SourceLocation) -> ProductTable {
    let mut table = ProductTable::new(source);
    table.set("respond", json!({ "status": 503, "body": "not imported" }));
    table
}

/// `None`: it does not go with what is there.
pub(super) fn put_key(table: &mut ProductTable, key: &'static str, value: &Value) -> Option<()> {
    let clashes: &[&str] = match key {
        "add_prefix" => &["replace_path"],
        "strip_prefix" => &["add_prefix", "replace_path"],
        "replace_path" => &["add_prefix", "strip_prefix"],
        _ => &[],
    };
    let known = table.fields.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
    let is_same = known.is_none_or(|known| known == value);
    let is_free = !table.fields.iter().any(|(known, _)| clashes.contains(known));
    (is_same && is_free).then(|| table.set(key, value.clone()))
}

/// Adds an edit of a field to those that a route has. `None`: what the field has already would come to something else than in Caddy, which
/// takes fields off a reply last.
pub(super) fn put_field(
    table: &mut ProductTable,
    side: &'static str,
    how: &str,
    name: &str,
    value: &str,
) -> Option<()> {
    let known = table.fields.iter().find(|(known, _)| *known == side).map(|(_, edits)| edits.clone());
    let mut edits = known.unwrap_or_else(|| json!({}));
    let name = name.to_ascii_lowercase();
    let [is_set, is_added] = ["set", "add"].map(|how| edits[how].get(&name).is_some());
    let is_removed = edits["remove"].as_array().is_some_and(|names| names.contains(&json!(name)));
    match how {
        "remove" if is_set || is_added => return None,
        "remove" if is_removed => {}
        "remove" => {
            if !edits["remove"].is_array() {
                edits["remove"] = json!([]);
            }
            edits["remove"].as_array_mut()?.push(json!(name));
        }
        _ if is_removed || is_set => return None,
        "put" => edits["add"][&name] = json!(value),
        _ if is_added => return None,
        how => edits[how][&name] = json!(value),
    }
    table.set(side, edits);
    Some(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_wire::yaml::Position;

    use super::*;

    #[test]
    fn edits_of_one_field_are_those_that_come_to_the_same_as_in_caddy() {
        let source = SourceLocation { file: Arc::from("x"), place: Position { line: 1, column: 1 } };
        for (edits, expected) in [
            (vec![("put", "a"), ("put", "b")], Some(json!({ "add": { "x-a": "b" } }))),
            (vec![("set", "a")], Some(json!({ "set": { "x-a": "a" } }))),
            (vec![("remove", ""), ("remove", "")], Some(json!({ "remove": ["x-a"] }))),
            (vec![("set", "a"), ("set", "b")], None),
            (vec![("add", "a"), ("add", "b")], None),
            (vec![("put", "a"), ("remove", "")], None),
            (vec![("remove", ""), ("put", "a")], None),
        ] {
            let mut table = ProductTable::new(source.clone());
            let put =
                |(how, value): &(&str, &str)| put_field(&mut table, "response_fields", how, "X-A", value);
            let done: Option<Vec<()>> = edits.iter().map(put).collect();
            let found = done.and_then(|_| table.fields.pop()).map(|(_, edits)| edits);
            assert_eq!(found, expected, "{edits:?}");
        }
    }
}
