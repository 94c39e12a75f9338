//! Which files of a crate use what other files of it define, read from paths.
//!
//! A path is followed through re-exports to the file that defines what it ends in, so `pub use` is no use by itself. A file
//! may use what the file of a folder that it stands in defines (`mod.rs`, or `x.rs` of `x/`): words that the parts of a folder
//! share stand there, and moving them would make no part readable alone. What is used by method calls is not seen, since no path
//! says it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::rooms::RoomFile;
use super::tokens::{CodeToken, is_name, text_at};

/// The files of a crate that have modules, and which of them each one uses, by index.
pub(super) struct Uses<'a> {
    /// The files.
    pub(super) files: Vec<&'a RoomFile<'a>>,
    /// For each of them, the files that it uses.
    pub(super) edges: Vec<BTreeSet<usize>>,
}

/// One path of a `use` item.
#[derive(Debug, PartialEq, Eq)]
struct ImportedPath<'a> {
    path: Vec<&'a str>,
    alias: Option<&'a str>,
    is_public: bool,
}

/// What is known of all modules of a crate.
struct Modules<'a> {
    /// Where each module stands in the list of files.
    index: HashMap<Vec<&'a str>, usize>,
    /// By file: what a name of a `use` item stands for, as a path from the root.
    names: Vec<BTreeMap<&'a str, Vec<&'a str>>>,
}

/// More re-exports of re-exports than anybody writes.
const MAX_REEXPORTS: usize = 8;

/// Reads the paths of all files.
pub(super) fn uses<'a>(files: &'a [RoomFile<'a>]) -> Uses<'a> {
    let files: Vec<&RoomFile<'_>> = files.iter().filter(|file| file.module.is_some()).collect();
    let own: Vec<Vec<&str>> =
        files.iter().map(|file| file.module.iter().flatten().map(String::as_str).collect()).collect();
    let tokens: Vec<Vec<CodeToken<'_>>> = files.iter().map(|file| file.tokens()).collect();
    let index = own.iter().enumerate().map(|(place, module)| (module.clone(), place)).collect();
    let mut modules = Modules { index, names: vec![BTreeMap::new(); files.len()] };
    let mut used: Vec<Vec<Vec<&str>>> = Vec::new();
    let mut plain = Vec::new();
    for (place, tokens) in tokens.iter().enumerate() {
        let (imports, paths) = read(tokens);
        used.push(imports.iter().filter_map(|import| modules.import(place, &own[place], import)).collect());
        plain.push(paths);
    }
    let mut edges = Vec::new();
    for (place, paths) in plain.iter().enumerate() {
        let more = paths.iter().filter_map(|path| modules.absolute_or_imported(place, &own[place], path));
        let all = used[place].iter().cloned().chain(more);
        let targets = all.filter_map(|path| modules.target(&path, 0));
        edges.push(targets.filter(|target| !own[place].starts_with(&own[*target])).collect());
    }
    Uses { files, edges }
}

impl<'a> Modules<'a> {
    /// Keeps the name that an import gives; the path that it uses, if it leads into this crate and is no re-export.
    fn import(&mut self, place: usize, own: &[&'a str], import: &ImportedPath<'a>) -> Option<Vec<&'a str>> {
        let mut path = self.absolute(own, &import.path)?;
        if path.last() == Some(&"self") {
            path.pop();
        }
        if let Some(name) = import.alias.or(path.last().copied()) {
            let names = &mut self.names[place];
            if import.is_public {
                names.insert(name, path.clone());
            } else {
                names.entry(name).or_insert_with(|| path.clone());
            }
        }
        (!import.is_public).then_some(path)
    }

    /// The path from the root of the crate; `None` if it leads elsewhere.
    fn absolute(&self, own: &[&'a str], path: &[&'a str]) -> Option<Vec<&'a str>> {
        let (first, rest) = path.split_first()?;
        match *first {
            "crate" => Some(rest.to_vec()),
            "self" => Some([own, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|name| **name == "super").count();
                let above = own.len().checked_sub(ups)?;
                Some([&own[..above], &path[ups..]].concat())
            }
            _ => {
                let below = [own, &path[..1]].concat();
                self.index.contains_key(&below).then(|| [own, path].concat())
            }
        }
    }

    /// As [`Self::absolute`], also for a path that begins with an imported module.
    fn absolute_or_imported(&self, place: usize, own: &[&'a str], path: &[&'a str]) -> Option<Vec<&'a str>> {
        self.absolute(own, path).or_else(|| {
            let module = self.names[place].get(path.first()?)?;
            self.index.contains_key(module).then(|| [module.as_slice(), &path[1..]].concat())
        })
    }

    /// The file that defines what this path ends in.
    fn target(&self, path: &[&'a str], reexports: usize) -> Option<usize> {
        let length = (0..=path.len()).rev().find(|length| self.index.contains_key(&path[..*length]))?;
        let module = self.index[&path[..length]];
        let elsewhere = path.get(length).and_then(|name| self.names[module].get(name));
        match elsewhere {
            Some(elsewhere) if reexports < MAX_REEXPORTS => {
                let further = [elsewhere.as_slice(), &path[length + 1..]].concat();
                self.target(&further, reexports + 1)
            }
            _ => Some(module),
        }
    }
}

/// The imports of a file, and the paths of two or more names outside of them.
fn read<'a>(tokens: &[CodeToken<'a>]) -> (Vec<ImportedPath<'a>>, Vec<Vec<&'a str>>) {
    let (mut imports, mut paths) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let text = tokens[at].text;
        // `use<'a>` in a bound imports nothing.
        if text == "use" && text_at(tokens, at + 1) != "<" {
            at = tree(tokens, at + 1, &[], is_public(&tokens[..at]), &mut imports);
        } else if is_name(text) {
            let end = path_end(tokens, at);
            if end > at + 1 {
                paths.push((at..end).step_by(2).map(|place| tokens[place].text).collect());
            }
            at = end;
        } else if text == "." || text == "::" {
            // What follows is the name of a method, or goes on from a type.
            at += 2;
        } else {
            at += 1;
        }
    }
    (imports, paths)
}

/// Where the path ends that begins at `at`.
fn path_end(tokens: &[CodeToken<'_>], at: usize) -> usize {
    let mut end = at + 1;
    while text_at(tokens, end) == "::" && is_name(text_at(tokens, end + 1)) {
        end += 2;
    }
    end
}

/// Whether what comes after these tokens is `pub`, for however many.
fn is_public(before: &[CodeToken<'_>]) -> bool {
    match before.last().map(|token| token.text) {
        Some("pub") => true,
        Some(")") => {
            let opens = before.iter().rposition(|token| token.text == "(");
            opens.is_some_and(|opens| opens > 0 && before[opens - 1].text == "pub")
        }
        _ => false,
    }
}

/// Reads one tree of a `use` item from `at`; returns where it ends: at a `,`, `}` or `;`.
fn tree<'a>(
    tokens: &[CodeToken<'a>],
    mut at: usize,
    prefix: &[&'a str],
    is_public: bool,
    found: &mut Vec<ImportedPath<'a>>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut alias = None;
    loop {
        match text_at(tokens, at) {
            "{" => {
                at += 1;
                while !["}", ";", ""].contains(&text_at(tokens, at)) {
                    at = tree(tokens, at, &path, is_public, found);
                    if text_at(tokens, at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "," | "}" | ";" | "" => break,
            "::" => at += 1,
            "as" => {
                alias = Some(text_at(tokens, at + 1));
                at += 2;
            }
            name => {
                path.push(name);
                at += 1;
            }
        }
    }
    found.push(ImportedPath { path, alias, is_public });
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::rooms::rooms;
    use crate::house::tokens::tokens;
    use crate::source::Source;

    #[test]
    fn trees_of_imports_are_read_whole() {
        let lines = ["pub(crate) use a::{self, b::{C, D as E}, f::*,}; use super::X as _; fn g() -> impl I + use<'a> { h::i(k.use_l::<M>()) }".to_owned()];
        let tokens = tokens(&lines);
        let (imports, paths) = read(&tokens);
        let read: Vec<String> = imports
            .iter()
            .map(|it| format!("{} {} {}", it.path.join("::"), it.alias.unwrap_or("-"), it.is_public))
            .collect();
        assert_eq!(
            read,
            ["a::self - true", "a::b::C - true", "a::b::D E true", "a::f::* - true", "super::X _ false"]
        );
        assert_eq!(paths, [["h", "i"]]);
    }

    /// The pairs of modules of which the first uses the second.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(&format!("crates/x/src/{path}.rs"), text)).collect();
        let rooms = rooms(&sources);
        let uses = uses(&rooms[0].files);
        let name =
            |place: usize| uses.files[place].module.iter().flatten().cloned().collect::<Vec<_>>().join("::");
        let pairs = uses.edges.iter().enumerate();
        pairs
            .flat_map(|(from, to)| to.iter().map(move |to| (from, *to)))
            .map(|(from, to)| format!("{} {}", name(from), name(to)))
            .collect()
    }

    #[test]
    fn a_reexport_is_followed_to_the_file_that_defines_the_name() {
        let found = edges(&[
            ("lib", "mod a; mod b; pub use a::deep::Thing; pub use self::b::Other as Renamed;"),
            ("a/mod", "pub(crate) mod deep; pub use deep::Thing;"),
            ("a/deep", "pub struct Thing;"),
            ("b", "use crate::Thing; use super::a::Thing as T; struct Other;"),
            ("c", "fn c(_: crate::Renamed) {}"),
        ]);
        assert_eq!(found, ["b a::deep", "c b"]);
    }

    #[test]
    fn a_path_without_an_import_and_one_that_begins_with_an_imported_module_are_uses() {
        let found = edges(&[
            ("lib", "mod a; mod b; fn f() { a::f(); std::mem::drop(1); }"),
            ("a", "use super::b; fn f() { b::inner::g(); }"),
            ("b/mod", "pub mod inner;"),
            ("b/inner", "pub fn g() {}"),
        ]);
        assert_eq!(found, [" a", "a b", "a b::inner"]);
    }

    #[test]
    fn what_the_file_of_the_own_folder_defines_may_be_used() {
        let found = edges(&[
            ("lib", "mod a; pub struct Root;"),
            ("a", "mod b; use b::B; pub struct A;"),
            ("a/b", "use super::A; use crate::Root; pub struct B;"),
        ]);
        assert_eq!(found, ["a a::b"]);
    }
}
