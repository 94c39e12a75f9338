//! How a route changes the path: `strip_prefix` and `add_prefix`, or `replace_path`; and which slashes it leaves to its servers.

use serde::Deserialize;
use tidegate_wire::path::{normal_form, one_spelling};

use super::auth::Auth;
use super::matches::{PathPattern, covers};
use super::part::KeyReader;

/// What slashes in doubt are to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slashes {
    /// `%2F`, `%5C` and backslashes.
    pub encoded: EncodedSlash,
    /// Whether several in a row are one to its servers.
    pub merge: bool,
}

/// What becomes of a path with `%2F`, `%5C` or a backslash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncodedSlash {
    /// It goes on as it came where the route would be the same if they were slashes.
    SameRoute,
    /// It goes on as it came: the servers take them for a part of a name.
    Keep,
    /// It is refused.
    Refuse,
}

/// Where another service decides by the path, it is left nothing to doubt unless the route says so.
pub(super) fn slashes(reader: &mut KeyReader<'_>, auth: Option<&Auth>) -> Slashes {
    let is_judged = auth.is_some_and(|auth| auth.ways().iter().any(|way| matches!(way, Auth::Forward(_))));
    let default = if is_judged { EncodedSlash::Refuse } else { EncodedSlash::SameRoute };
    let encoded = reader.choice("encoded_slash");
    let merge = reader.flag("merge_slashes").unwrap_or(is_judged);
    Slashes { encoded: encoded.unwrap_or(default), merge }
}

/// The prefix to strip and the one to add, and the path in place of all of it.
pub(super) fn rewrite(reader: &mut KeyReader<'_>, path: &PathPattern) -> ([Box<str>; 2], Option<Box<str>>) {
    let [strip_prefix, add_prefix] = ["strip_prefix", "add_prefix"].map(|key| prefix(reader, key));
    // As the route's path is spelt.
    let strip_prefix: Box<str> = String::from_utf8_lossy(&one_spelling(strip_prefix.as_bytes())).into();
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

fn prefix(reader: &mut KeyReader<'_>, field: &str) -> Box<str> {
    let Some(text) = reader.text(field) else { return "".into() };
    if text == "/" || !is_normal(text) {
        reader.mistake(
            field,
            format!("is {text:?}"),
            "a path that begins with a slash and does not end with one",
        );
    }
    text.into()
}

/// Whether it is in normal form, but for its spelling, which servers get as it was written.
fn is_normal(text: &str) -> bool {
    normal_form(text.as_bytes()).is_ok_and(|form| *form == *one_spelling(text.as_bytes()))
}

fn replace_path(reader: &mut KeyReader<'_>) -> Option<Box<str>> {
    let text = reader.text("replace_path")?;
    if !is_normal(text) {
        reader.mistake("replace_path", format!("is {text:?}"), "a path in normal form");
    }
    Some(text.into())
}
