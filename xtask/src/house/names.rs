//! Names of types that several types have.
//!
//! A type's name says what it is without its path: a reader of `Shared` has to look which of sixteen it is.

use std::collections::BTreeMap;

use super::CountedItem;
use super::rooms::CrateRoom;
use super::tokens::{is_name, text_at};

/// A definition of a struct, an enum, a trait, or an alias that is no part of an implementation.
struct Definition<'a> {
    room: &'a str,
    path: &'a str,
    line: usize,
    name: &'a str,
}

/// The types whose name another type of the workspace has.
pub(super) fn in_workspace(rooms: &[CrateRoom<'_>]) -> Vec<CountedItem> {
    let definitions: Vec<Definition<'_>> = rooms.iter().flat_map(definitions).collect();
    shared(&definitions, "the workspace")
}

/// The types whose name another type of the same crate has.
pub(super) fn in_crate(room: &CrateRoom<'_>) -> Vec<CountedItem> {
    shared(&definitions(room), "the crate")
}

/// How many types there are, and how many names they have.
pub(super) fn totals(rooms: &[CrateRoom<'_>]) -> (usize, usize) {
    let definitions: Vec<Definition<'_>> = rooms.iter().flat_map(definitions).collect();
    (definitions.len(), by_name(&definitions).len())
}

fn shared(definitions: &[Definition<'_>], whole: &str) -> Vec<CountedItem> {
    let several = by_name(definitions).into_values().filter(|same| same.len() > 1);
    let items = several.flat_map(|same| {
        let detail = format!("one of {} in {whole}", same.len());
        same.into_iter().map(move |it| CountedItem {
            room: it.room.to_owned(),
            name: format!("`{}` ({})", it.name, it.path),
            detail: format!("line {}, {detail}", it.line),
        })
    });
    items.collect()
}

fn by_name<'a, 'b>(definitions: &'b [Definition<'a>]) -> BTreeMap<&'a str, Vec<&'b Definition<'a>>> {
    let mut found: BTreeMap<&str, Vec<&Definition<'_>>> = BTreeMap::new();
    for definition in definitions {
        found.entry(definition.name).or_default().push(definition);
    }
    found
}

fn definitions<'a>(room: &'a CrateRoom<'_>) -> Vec<Definition<'a>> {
    let mut found = Vec::new();
    for file in &room.files {
        let tokens = file.tokens();
        let mut depth = 0_usize;
        for (at, token) in tokens.iter().enumerate() {
            let defines = match token.text {
                "{" => {
                    depth += 1;
                    false
                }
                "}" => {
                    depth = depth.saturating_sub(1);
                    false
                }
                "struct" | "enum" | "trait" => true,
                // Deeper ones are the types of an implementation, whose names the trait gives.
                "type" => depth == 0,
                _ => false,
            };
            let name = text_at(&tokens, at + 1);
            if defines && is_name(name) {
                found.push(Definition { room: &room.name, path: &file.source.path, line: token.line, name });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::rooms::rooms;
    use crate::source::Source;

    #[test]
    fn a_name_is_shared_in_a_crate_or_in_the_workspace() {
        let sources = [
            Source::new(
                "crates/x/src/lib.rs",
                "struct Entry;\nenum Kind {}\nimpl I for Kind { type Entry = u8; }\n#[cfg(test)]\nmod tests { struct Kind; }\n",
            ),
            Source::new("crates/x/src/a.rs", "pub(crate) trait Entry {}\nstruct $name;\n"),
            Source::new("xtask/src/main.rs", "type Kind = u8;\nstruct Alone;\n"),
        ];
        let rooms = rooms(&sources);
        let names = |items: Vec<CountedItem>| items.into_iter().map(|item| item.name).collect::<Vec<_>>();
        let (in_lib, in_a) = ("`Entry` (crates/x/src/lib.rs)", "`Entry` (crates/x/src/a.rs)");
        assert_eq!(names(in_crate(&rooms[0])), [in_lib, in_a]);
        let kinds = ["`Kind` (crates/x/src/lib.rs)", "`Kind` (xtask/src/main.rs)"];
        assert_eq!(names(in_workspace(&rooms)), [in_lib, in_a, kinds[0], kinds[1]]);
        assert_eq!(totals(&rooms), (5, 3));
    }
}
