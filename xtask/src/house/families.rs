//! Names of metrics that no documentation has.
//!
//! A name is a text of the sources that begins as our metrics do. A text that a constant keeps is something else: a table of
//! PostgreSQL, a channel, a cookie.

use std::collections::BTreeMap;

use super::CountedItem;
use super::rooms::CrateRoom;

/// How the names of our metrics begin.
const STARTS: [&str; 2] = ["tidegate_", "process_"];
/// What a family's name has at its end on the page and not in the code.
const ENDS: [&str; 3] = ["", "_total", "_info"];
/// What the names of a histogram's samples have at their end in the code and not on the page.
const OF_SAMPLES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// The families that are in the code of these crates and not on the page.
pub(super) fn undocumented(rooms: &[CrateRoom<'_>], page: &str) -> Vec<CountedItem> {
    let mut named: BTreeMap<&str, Option<(&str, &str)>> = BTreeMap::new();
    for room in rooms {
        for file in &room.files {
            let lines =
                file.source.raw.iter().enumerate().filter(|(number, _)| !file.source.is_test(*number));
            for (_, line) in lines {
                let is_constant = line.contains("const ") && line.contains(": &str = ");
                for name in line.split('"').filter(|text| is_family(text)) {
                    let place =
                        named.entry(name).or_insert(Some((room.name.as_str(), file.source.path.as_str())));
                    if is_constant {
                        *place = None;
                    }
                }
            }
        }
    }
    let is_row = |name: &str| ENDS.iter().any(|end| page.contains(&format!("| `{name}{end}` |")));
    let is_listed =
        |name: &str| is_row(name) || OF_SAMPLES.iter().any(|end| name.strip_suffix(end).is_some_and(is_row));
    let missing = named.into_iter().filter(|(name, _)| !is_listed(name));
    let items = missing.filter_map(|(name, place)| {
        let (room, path) = place?;
        let detail = "not in docs/metrics.md".to_owned();
        Some(CountedItem { room: room.to_owned(), name: format!("`{name}` ({path})"), detail })
    });
    items.collect()
}

fn is_family(text: &str) -> bool {
    STARTS.iter().any(|start| text.len() > start.len() && text.starts_with(start))
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::rooms::rooms;
    use crate::source::Source;

    #[test]
    fn a_family_that_is_not_on_the_page_is_found_and_a_constant_is_none() {
        let text = "const TABLE: &str = \"tidegate_table\";\nfn f() { ask(\"tidegate_table\"); count(\"tidegate_good\"); \
                    gauge(\"tidegate_bad\"); of(\"tidegate_good_bucket\"); x(\"tidegate_Not\", \"tidegate_\") }\n";
        let sources = [Source::new("crates/x/src/lib.rs", text)];
        let found = undocumented(&rooms(&sources), "| `tidegate_good_total` | counter |");
        let names: Vec<_> = found.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["`tidegate_bad` (crates/x/src/lib.rs)"]);
    }
}
