//! What a table of a document's keys is, and what is made of it: the reference page, the JSON schema, and which keys are known.
//! The tables are in `route_keys.rs` and `upstream_keys.rs`, and `part.rs` reads by them.

use serde_json::{Map, Value, json};

/// What `percent` of a canary and of a split may be.
pub(super) const PERCENT: &str = "a number from 0 to 100, with one decimal at most";

/// One key of a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentKey {
    /// Its place in the document: `jwt.issuer`.
    pub path: &'static str,
    /// What it may be.
    pub shape: Shape,
    /// What holds without it; empty: nothing.
    pub default: &'static str,
    /// What it does, after a blank.
    pub doc: &'static str,
    /// The key of the same table behind which mistakes list it; empty: behind the one that stands before it here.
    pub(super) after: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A name, as policies have them.
    Name,
    /// A text of so many bytes.
    Text(usize, usize),
    /// A whole number in a range.
    Number(u64, u64),
    /// Percent, one decimal allowed.
    Percent,
    /// Seconds in a range, fractions allowed.
    Seconds(f64, f64),
    /// True or false.
    Flag,
    /// One of some words.
    Word(&'static [&'static str]),
    /// A text, or a list of so many, each of at most so many bytes.
    OneOrMore(usize, usize),
    /// A list of so many texts, each of at most so many bytes.
    Texts(usize, usize),
    /// A list of so many servers: URLs, or tables of the keys under `servers`.
    Servers(usize),
    /// A list of 2 to so many upstreams with their percentages, which are 100 together.
    Shares(usize),
    /// A table of so many names and texts.
    Pairs(usize),
    /// A table of the keys that follow.
    Table,
    /// A table of these keys, which stand in other tables, too.
    Shared(&'static [DocumentKey]),
}

/// Declares the keys of a document. A row is `path: Shape, default;` under its documentation, or `path after other: ...` where
/// mistakes list it in another place.
macro_rules! document_keys {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $(.$field:ident)? $(after $after:ident)?: $shape:expr, $default:literal;
    )+) => {
        &[$(DocumentKey {
            path: concat!(stringify!($name) $(, ".", stringify!($field))?),
            shape: $shape,
            default: $default,
            doc: concat!($($doc),+),
            after: concat!($(stringify!($after))?),
        }),+]
    };
}
pub(super) use document_keys;

impl DocumentKey {
    /// What is accepted, in words.
    #[must_use]
    pub fn accepted(&self) -> String {
        match self.shape {
            Shape::Name => "1 to 64 of a-z, 0-9, `-`, `_`, `.`, starting with a letter".to_owned(),
            Shape::Text(least, most) => format!("a string of {least} to {most} bytes"),
            Shape::Number(least, most) => format!("a whole number from {least} to {most}"),
            Shape::Percent => PERCENT.to_owned(),
            Shape::Seconds(least, most) => format!("seconds from {least} to {most}"),
            Shape::Flag => "true, false".to_owned(),
            Shape::Word(words) => words.join(", "),
            Shape::OneOrMore(most, _) => format!("a string, or a list of up to {most}"),
            Shape::Texts(most, _) => format!("a list of up to {most} strings"),
            Shape::Servers(most) => format!("a list of 1 to {most} URLs, or tables"),
            Shape::Shares(most) => format!("a list of 2 to {most} tables"),
            Shape::Pairs(most) => format!("a table of up to {most} strings"),
            Shape::Table | Shape::Shared(_) => "a table".to_owned(),
        }
    }

    /// Its JSON schema, where it is one of `keys`.
    fn schema(&self, keys: &'static [Self]) -> Value {
        let mut schema = match self.shape {
            Shape::Name => json!({ "type": "string", "pattern": "^[a-z][a-z0-9._-]{0,63}$" }),
            Shape::Text(least, most) => json!({ "type": "string", "minLength": least, "maxLength": most }),
            Shape::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Shape::Percent => json!({ "type": "number", "minimum": 0, "maximum": 100 }),
            Shape::Seconds(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
            Shape::Flag => json!({ "type": "boolean" }),
            Shape::Word(words) => json!({ "enum": words }),
            Shape::OneOrMore(most, _) => json!({ "oneOf": [
                { "type": "string" },
                { "type": "array", "maxItems": most, "items": { "type": "string" } },
            ] }),
            Shape::Texts(most, _) => {
                json!({ "type": "array", "maxItems": most, "items": { "type": "string" } })
            }
            Shape::Servers(most) => {
                let server = json!({ "oneOf": [{ "type": "string" }, table(keys, self.path)] });
                json!({ "type": "array", "minItems": 1, "maxItems": most, "items": server })
            }
            Shape::Shares(most) => {
                let share = table(keys, self.path);
                json!({ "type": "array", "minItems": 2, "maxItems": most, "items": share })
            }
            Shape::Pairs(most) => json!({
                "type": "object", "maxProperties": most, "additionalProperties": { "type": "string" },
            }),
            Shape::Table => table(keys, self.path),
            Shape::Shared(inner) => table(inner, ""),
        };
        schema["description"] = Value::from(self.doc.trim());
        schema
    }

    /// Its name in the table of this name, if it stands right in that; the document itself has none.
    fn name_in(&self, table: &str) -> Option<&'static str> {
        let (of, name) = self.path.split_once('.').unwrap_or(("", self.path));
        (of == table).then_some(name)
    }
}

/// Every key of a document, with its path: after a table whose keys are shared, those.
pub fn rows(keys: &'static [DocumentKey]) -> impl Iterator<Item = (String, &'static DocumentKey)> {
    keys.iter().flat_map(|key| {
        let shared = if let Shape::Shared(shared) = key.shape { shared } else { &[] };
        let shared = shared.iter().map(move |inner| (format!("{}.{}", key.path, inner.path), inner));
        std::iter::once((key.path.to_owned(), key)).chain(shared)
    })
}

/// The JSON schema of a document with these keys.
#[must_use]
pub fn schema(keys: &'static [DocumentKey]) -> Value {
    let mut schema = table(keys, "");
    schema["required"] = json!(["name"]);
    schema
}

/// The JSON schema of one of its tables; that of no name is the document itself.
fn table(keys: &'static [DocumentKey], table: &str) -> Value {
    let properties = members(keys, table).map(|(name, key)| (name.to_owned(), key.schema(keys)));
    let properties: Map<String, Value> = properties.collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// The keys right in a table, with their names there.
pub(super) fn members(
    keys: &'static [DocumentKey],
    table: &str,
) -> impl Iterator<Item = (&'static str, &'static DocumentKey)> {
    keys.iter().filter_map(move |key| Some((key.name_in(table)?, key)))
}

/// The names of those keys, in the order in which mistakes list them.
pub(super) fn names(keys: &'static [DocumentKey], table: &str) -> Vec<&'static str> {
    let (moved, here): (Vec<_>, Vec<_>) = members(keys, table).partition(|(_, key)| !key.after.is_empty());
    let mut names: Vec<&str> = here.into_iter().map(|(name, _)| name).collect();
    for (name, key) in moved {
        let place = names.iter().position(|other| *other == key.after);
        names.insert(place.map_or(names.len(), |place| place + 1), name);
    }
    names
}

#[cfg(test)]
mod tests;
