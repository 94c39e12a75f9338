//! `cargo xtask api`: `docs/api.md`, the page that people read of `docs/openapi.json`.
//!
//! The document itself is what the server says, which a test of the clients compares. Here it becomes a page: a section for each part
//! of the API with its requests, then the types that bodies have. What every request may be answered is said once, and a document in
//! which one differs is refused, so that nothing is left out in silence.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

pub(crate) const DOCUMENT: &str = "docs/openapi.json";
pub(crate) const PAGE: &str = "docs/api.md";

/// An example that is longer, in bytes, has a line for each of its fields.
const SHORT: usize = 110;

/// Parts of the API by their tags, in the order of the page.
const PARTS: [(&str, &str); 9] = [
    ("simple", "The simple API"),
    ("decisions", "Decisions"),
    ("permits", "Permits"),
    ("configuration", "Configuration"),
    ("keys", "API keys"),
    ("gateway", "The gateway"),
    ("edge", "The edge"),
    ("intake", "The intake"),
    ("operation", "Operation"),
];

const INTRODUCTION: &str = "# HTTP API

<!-- Made by `cargo xtask api` of openapi.json. -->

What `http.listen` (127.0.0.1:4000) answers; with `admin.listen` set, configuration and operation are there instead. Programs take
[openapi.json](openapi.json), or `GET /openapi.json` of a server. Names, states and readiness (`/livez`, `/readyz`, `/metrics`) are in
[what is asked of a server](asking.md#what-it-answers), metrics in the [intake](intake-reference.md), registration in the
[edge](edge-reference.md#the-registration-api), and which token may do what in [tokens](tokens.md).

Any request can be answered 4xx: it is wrong, or may not do this, and nothing was charged or changed; or 5xx: the store or the disk gave no
answer, so try again. Both have a [Problem](#problem) as `application/problem+json`.

In a table, a name with `*` must be given, and in a reply it is always there.
";

/// Writes the page.
///
/// # Errors
/// When the document is missing, or has what a page has no place for.
pub(crate) fn api(root: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    let page = page(&serde_json::from_str(&text).context(DOCUMENT)?)?;
    std::fs::write(root.join(PAGE), page).context(PAGE)
}

/// Whether the page that is kept is the one that the document makes.
///
/// # Errors
/// When the document is missing, or has what a page has no place for.
pub(crate) fn is_current(document: &str, kept: &str) -> anyhow::Result<bool> {
    Ok(page(&serde_json::from_str(document).context(DOCUMENT)?)? == kept)
}

/// The page of a document.
fn page(document: &Value) -> anyhow::Result<String> {
    let mut page = INTRODUCTION.to_owned();
    let paths = document["paths"].as_object().context("no paths")?;
    let mut left: usize = paths.values().filter_map(Value::as_object).map(Map::len).sum();
    for (tag, title) in PARTS {
        write!(page, "\n## {title}\n")?;
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().context("no methods")? {
                if operation["tags"][0] == tag {
                    request(&mut page, method, path, operation)
                        .with_context(|| format!("{method} {path}"))?;
                    left -= 1;
                }
            }
        }
    }
    if left > 0 {
        bail!("{left} requests have a tag that xtask/src/api.rs has no part for");
    }
    page.push_str("\n## Types\n");
    for (name, schema) in document["components"]["schemas"].as_object().context("no schemas")? {
        write!(page, "\n### {name}\n\n{}\n", text(schema, "description"))?;
        fields(&mut page, schema)?;
    }
    Ok(page)
}

/// One request: what it does, what it takes, what it is answered.
fn request(page: &mut String, method: &str, path: &str, operation: &Value) -> anyhow::Result<()> {
    write!(page, "\n### `{} {path}`\n\n{}", method.to_uppercase(), text(operation, "summary"))?;
    match text(operation, "description") {
        "" => page.push('\n'),
        more => writeln!(page, " {more}")?,
    }
    if let Some(parameters) = operation["parameters"].as_array() {
        page.push_str("\n| parameter | in | type | what it is |\n|---|---|---|---|\n");
        for it in parameters {
            let star = if it["required"] == true { "*" } else { "" };
            let (name, place, kind) = (text(it, "name"), text(it, "in"), kind(&it["schema"]));
            writeln!(page, "| `{name}`{star} | {place} | {kind} | {} |", cell(text(it, "description")))?;
        }
    }
    for (media, body) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
        write!(page, "\nBody: {}, `{media}`\n", kind(&body["schema"]))?;
        example(page, body)?;
    }
    for (status, reply) in operation["responses"].as_object().context("no responses")? {
        if status.ends_with("XX") {
            continue;
        }
        if status.parse::<u16>().is_ok_and(|status| status >= 400) {
            bail!("{status} has a reply of its own");
        }
        write!(page, "\n{status}: {}", sentence(text(reply, "description")))?;
        let bodies = reply["content"].as_object().into_iter().flatten();
        let bodies = bodies.map(|(media, body)| format!("{}, `{media}`", kind(&body["schema"])));
        let bodies = bodies.collect::<Vec<_>>().join("; or ");
        writeln!(page, "{}{bodies}", if bodies.is_empty() { "" } else { " " })?;
        for (name, field) in reply["headers"].as_object().into_iter().flatten() {
            write!(page, "\nField `{name}`: {}.\n", text(field, "description").trim_end_matches('.'))?;
        }
        for body in reply["content"].as_object().into_iter().flat_map(Map::values) {
            example(page, body)?;
        }
    }
    Ok(())
}

fn example(page: &mut String, body: &Value) -> anyhow::Result<()> {
    match &body["example"] {
        Value::Null => {}
        Value::String(shown) => write!(page, "\n```text\n{}\n```\n", shown.trim_end())?,
        shown => {
            let (short, long) = (shown.to_string(), format!("{shown:#}"));
            let shown = if short.len() <= SHORT { short } else { long };
            write!(page, "\n```json\n{shown}\n```\n")?;
        }
    }
    Ok(())
}

/// The table of a type's fields, with those of the types that it is put together of.
fn fields(page: &mut String, schema: &Value) -> anyhow::Result<()> {
    if let Some(choices) = schema["oneOf"].as_array() {
        page.push('\n');
        for choice in choices {
            let what = text(choice, "description");
            writeln!(page, "- {}{}{what}", kind(choice), if what.is_empty() { "" } else { ": " })?;
        }
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        if part["$ref"].is_string() {
            write!(page, "\nAll of {}.\n", kind(part))?;
        }
        fields(page, part)?;
    }
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    page.push_str("\n| field | type | what it is |\n|---|---|---|\n");
    for (name, field) in properties {
        let star = if required.iter().any(|it| it == name) { "*" } else { "" };
        writeln!(page, "| `{name}`{star} | {} | {} |", kind(field), cell(text(field, "description")))?;
    }
    Ok(())
}

/// What a value is, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let named = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    let mut kind = match named.as_str() {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if !schema["additionalProperties"]["type"].is_null() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        _ => named,
    };
    let bound = |name: &str| schema[name].as_number().map(ToString::to_string).filter(|it| it != "0");
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => kind = format!("{kind}, {least} to {most}"),
        (None, Some(most)) => kind = format!("{kind}, up to {most}"),
        (Some(least), None) => kind = format!("{kind}, {least} or more"),
        (None, None) => {}
    }
    if !schema["default"].is_null() {
        kind = format!("{kind}, else {}", schema["default"]);
    }
    kind
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default().trim()
}

/// A text that begins with a capital and ends with a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|it| it.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// A text as a table has it.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_the_server_is_on_the_page_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let document: Value =
            serde_json::from_str(&std::fs::read_to_string(root.join(DOCUMENT)).unwrap()).unwrap();
        let page = page(&document).unwrap();
        let requests = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |it| format!("### `{} {path}`\n", it.to_uppercase()))
        });
        for request in requests {
            assert_eq!(page.matches(&request).count(), 1, "{request}");
        }
    }

    #[test]
    fn a_page_that_was_not_made_anew_is_found() {
        let document = r#"{"paths": {}, "components": {"schemas": {}}}"#;
        let kept = page(&serde_json::from_str(document).unwrap()).unwrap();
        assert!(is_current(document, &kept).unwrap());
        assert!(!is_current(document, &kept.replace("Types", "Kinds")).unwrap());
    }

    #[test]
    fn what_has_no_place_is_refused() {
        let with = |tag: &str, status: &str| {
            serde_json::json!({
                "paths": { "/a": { "get": { "tags": [tag], "responses": { status: { "description": "So." } } } } },
                "components": { "schemas": {} },
            })
        };
        assert!(page(&with("simple", "200")).unwrap().contains("### `GET /a`"));
        assert!(page(&with("new", "200")).is_err() && page(&with("simple", "404")).is_err());
    }

    #[test]
    fn a_type_is_said_in_a_few_words() {
        for (schema, said) in [
            (r##"{"$ref": "#/components/schemas/Who"}"##, "[Who](#who)"),
            (r#"{"type": "array", "items": {"type": "string"}}"#, "list of string"),
            (r#"{"type": ["object", "null"]}"#, "object or null"),
            (r#"{"type": "integer", "minimum": 0, "maximum": 9, "default": 1}"#, "integer, up to 9, else 1"),
            (r#"{"type": "object", "additionalProperties": {"type": "string"}}"#, "object of string"),
        ] {
            assert_eq!(kind(&serde_json::from_str(schema).unwrap()), said);
        }
    }
}
