//! How a route changes the path: `strip_prefix` and `add_prefix`, or `replace_path`.

use tidegate_algorithms::document::DocumentReader;
use tidegate_wire::path::normal_form;

use super::matches::{MAX_TEXT, PathPattern, covers};

/// The prefix to strip and the one to add, and the path in place of all of it.
pub(super) fn rewrite(
    reader: &mut DocumentReader<'_>,
    path: &PathPattern,
) -> ([Box<str>; 2], Option<Box<str>>) {
    let [strip_prefix, add_prefix] = ["strip_prefix", "add_prefix"].map(|key| prefix(reader, key));
    if !strip_prefix.is_empty() && !covers(path, &strip_prefix) {
        let problem = format!("is {strip_prefix:?}, which not every path of the route begins with");
        reader.mistake("strip_prefix", problem, "the literal beginning of path");
    }
    let replace_path = replace_path(reader);
    if replace_path.is_some() && !(strip_prefix.is_empty() && add_prefix.is_empty()) {
        reader.mistake("replace_path", "stands beside strip_prefix or add_prefix", "one of the two");
    }
    ([strip_prefix, add_prefix], replace_path)
}

fn prefix(reader: &mut DocumentReader<'_>, field: &str) -> Box<str> {
    let Some(text) = reader.text(field, 1, MAX_TEXT) else { return "".into() };
    if text == "/" || !normal_form(text.as_bytes()).is_ok_and(|form| *form == *text.as_bytes()) {
        reader.mistake(
            field,
            format!("is {text:?}"),
            "a path that begins with a slash and does not end with one",
        );
    }
    text.into()
}

fn replace_path(reader: &mut DocumentReader<'_>) -> Option<Box<str>> {
    let text = reader.text("replace_path", 1, MAX_TEXT)?;
    if !normal_form(text.as_bytes()).is_ok_and(|form| *form == *text.as_bytes()) {
        reader.mistake("replace_path", format!("is {text:?}"), "a path in normal form");
    }
    Some(text.into())
}
