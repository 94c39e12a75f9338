//! The crates as the measurements see them: their files, and the code in them that is no test.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{CodeToken, tokens};
use crate::source::Source;

/// One crate of the workspace.
pub(super) struct CrateRoom<'a> {
    /// Its folder's name: `gateway`, `xtask`.
    pub(super) name: String,
    /// The files below `src/` that are no tests.
    pub(super) files: Vec<RoomFile<'a>>,
    /// All its files, with the tests, and whether they stand outside `src/`.
    pub(super) all: Vec<(&'a Source, bool)>,
}

/// One file below `src/`.
pub(super) struct RoomFile<'a> {
    /// The file as it is.
    pub(super) source: &'a Source,
    /// The names of its module, below the root of the crate; `None` for the `main.rs` of a crate that has a `lib.rs`, since that
    /// is a crate of its own.
    pub(super) module: Option<Vec<String>>,
    /// Its lines of code, those of tests blank.
    pub(super) code: Vec<String>,
    /// How many lines it has apart from those of tests.
    pub(super) lines: usize,
}

impl RoomFile<'_> {
    /// What it consists of, without tests.
    pub(super) fn tokens(&self) -> Vec<CodeToken<'_>> {
        tokens(&self.code)
    }
}

/// All crates, by name.
pub(super) fn rooms(sources: &[Source]) -> Vec<CrateRoom<'_>> {
    let mut by_name: BTreeMap<&str, Vec<(&Source, &str)>> = BTreeMap::new();
    for source in sources {
        if let Some((name, inside)) = split(&source.path) {
            by_name.entry(name).or_default().push((source, inside));
        }
    }
    by_name.into_iter().map(|(name, sources)| room(name, &sources)).collect()
}

/// The crate that a path belongs to, and the path below it.
fn split(path: &str) -> Option<(&str, &str)> {
    let below = path.strip_prefix("crates/").unwrap_or(path);
    let is_member = below.len() < path.len() || ["xtask/", "fuzz/"].iter().any(|it| path.starts_with(it));
    if is_member { below.split_once('/') } else { None }
}

fn room<'a>(name: &str, sources: &[(&'a Source, &str)]) -> CrateRoom<'a> {
    let has_library = sources.iter().any(|(_, inside)| *inside == "src/lib.rs");
    let inside_src = sources.iter().filter_map(|(source, inside)| {
        let module = inside.strip_prefix("src/")?.strip_suffix(".rs")?;
        Some((*source, module_of(module), has_library && module == "main"))
    });
    let inside_src: Vec<_> = inside_src.collect();
    let tests: BTreeSet<Vec<String>> =
        inside_src.iter().flat_map(|(source, module, _)| modules_of_tests(source, module)).collect();
    let is_test = |module: &[String]| (1..=module.len()).any(|length| tests.contains(&module[..length]));
    let files = inside_src.into_iter().filter(|(_, module, _)| !is_test(module));
    let files = files.filter_map(|(source, module, is_apart)| {
        let count = source.code.len();
        let lines = (0..count).filter(|line| !source.is_test(*line)).count();
        let code = (0..count).map(|line| if source.is_test(line) { "" } else { source.code[line].as_str() });
        let code = code.map(str::to_owned).collect();
        (lines > 0).then_some(RoomFile { source, module: (!is_apart).then_some(module), code, lines })
    });
    let all = sources.iter().map(|(source, inside)| (*source, !inside.starts_with("src/")));
    CrateRoom { name: name.to_owned(), files: files.collect(), all: all.collect() }
}

/// `a/b/mod` is `a::b`; the root has no name.
fn module_of(path: &str) -> Vec<String> {
    let mut names: Vec<String> = path.split('/').map(str::to_owned).collect();
    let is_root = names.len() == 1 && ["lib", "main"].contains(&names[0].as_str());
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// The modules of files that this file declares for tests alone.
fn modules_of_tests(source: &Source, module: &[String]) -> Vec<Vec<String>> {
    let marked = source.code.iter().enumerate().filter(|(_, line)| line.contains("#[cfg(test)]"));
    let declared = marked.filter_map(|(number, _)| {
        let name = source.code.get(number + 1)?.trim().strip_suffix(';')?.rsplit_once("mod ")?.1;
        Some(module.iter().cloned().chain([name.to_owned()]).collect())
    });
    declared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_crate_have_modules_and_tests_do_not_count() {
        let sources = [
            Source::new("crates/x/src/lib.rs", "mod a;\n#[cfg(test)]\nmod model;\n"),
            Source::new(
                "crates/x/src/a/mod.rs",
                "fn a() {}\n#[cfg(test)]\nuse b::B;\n#[cfg(test)]\nmod tests {\n}\n",
            ),
            Source::new("crates/x/src/a/tests.rs", "fn t() {}\n"),
            Source::new("crates/x/src/model.rs", "fn t() {}\n"),
            Source::new("crates/x/src/main.rs", "fn main() {}\n"),
            Source::new("crates/x/tests/it/main.rs", "fn t() {}\n"),
            Source::new("regression/y.rs", "fn t() {}\n"),
        ];
        let rooms = rooms(&sources);
        assert_eq!((rooms.len(), rooms[0].name.as_str(), rooms[0].all.len()), (1, "x", 6));
        let found: Vec<_> = rooms[0].files.iter().map(|file| (file.module.clone(), file.lines)).collect();
        assert_eq!(found, [(Some(vec![]), 1), (Some(vec!["a".to_owned()]), 1), (None, 1)]);
    }
}
