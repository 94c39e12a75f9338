//! What is made of a table of settings for people and editors: sections of a page, and properties of a JSON schema.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use crate::setting::Setting;
use crate::value::TomlType;

/// Adds a section to a Markdown page for the settings outside of every group, and one for each group.
pub fn sections(page: &mut String, table: &[Setting], groups: &[(&str, &str)]) {
    let tops = table.iter().filter(|setting| !setting.path.contains('.'));
    section(page, "Top level", "", tops);
    for (group, doc) in groups {
        let members = table.iter().filter(|setting| group_of(setting) == Some(*group));
        section(page, &format!("`[{group}]`"), doc.trim(), members);
    }
}

/// The properties of the file's JSON schema (draft 2020-12): settings outside of every group, and an object for each group.
#[must_use]
pub fn properties(table: &[Setting], groups: &[(&str, &str)]) -> Map<String, Json> {
    let mut properties = Map::new();
    for setting in table.iter().filter(|setting| !setting.path.contains('.')) {
        properties.insert(setting.path.to_owned(), property(setting));
    }
    for (group, doc) in groups {
        let members = table.iter().filter_map(|setting| {
            let field = setting.path.strip_prefix(group)?.strip_prefix('.')?;
            Some((field.to_owned(), property(setting)))
        });
        let members: Map<_, _> = members.collect();
        let object = json!({
            "type": "object",
            "description": doc.trim(),
            "additionalProperties": false,
            "properties": members,
        });
        properties.insert((*group).to_owned(), object);
    }
    properties
}

fn group_of(setting: &Setting) -> Option<&'static str> {
    setting.path.split_once('.').map(|(group, _)| group)
}

fn section<'a>(page: &mut String, title: &str, doc: &str, settings: impl Iterator<Item = &'a Setting>) {
    // Invariant, here and below: writing to a String cannot fail.
    let _infallible = writeln!(page, "\n## {title}\n");
    if !doc.is_empty() {
        let _infallible = writeln!(page, "{doc}\n");
    }
    page.push_str("| setting | default | accepted | environment | flag |\n|---|---|---|---|---|\n");
    let mut notes = String::new();
    for setting in settings {
        let default = if setting.default.is_empty() { "none".to_owned() } else { code(&written(setting)) };
        let flag = setting.flag_name().map_or("none".to_owned(), |name| code(&format!("--{name}")));
        let accepted = (setting.accepted)();
        let (path, mut variable) = (code(setting.path), code(&setting.environment_name()));
        if let Some(standard) = setting.standard_variable() {
            variable.push_str(", ");
            variable.push_str(&code(standard));
        }
        let _infallible = writeln!(page, "| {path} | {default} | {accepted} | {variable} | {flag} |");
        let _infallible = writeln!(notes, "- {path}: {}", setting.doc.trim());
    }
    page.push('\n');
    page.push_str(&notes);
}

/// The default as the file would have it.
fn written(setting: &Setting) -> String {
    if default_is_text(setting) { format!("{:?}", setting.default) } else { setting.default.to_owned() }
}

fn default_is_text(setting: &Setting) -> bool {
    setting.types.contains(&TomlType::String)
}

fn property(setting: &Setting) -> Json {
    let mut schema = (setting.schema)();
    let default = match setting.default {
        "" => None,
        text if default_is_text(setting) => Some(Json::from(text)),
        text => serde_json::from_str(text).ok(),
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), Json::from(setting.doc.trim()));
        object.extend(default.map(|default| ("default".to_owned(), default)));
    }
    schema
}

/// The text as code of Markdown.
#[must_use]
pub fn code(text: &str) -> String {
    format!("`{text}`")
}
