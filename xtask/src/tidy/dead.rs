//! Rust files that no `mod` reaches: the compiler never reads them, so nothing keeps them true.
//!
//! Follows `mod name;` from every target's root as the compiler does: `name.rs` or `name/mod.rs`
//! beside a root or a `mod.rs`, else in the folder named after the file; `#[path = "..."]` counts
//! from the file's own folder. A module inside an inline `mod a { mod b; }` is not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Finding, WorkspaceMetadata};
use crate::source::{Source, starts_word};

/// The root files of all targets of the workspace.
pub(super) fn roots(metadata: &WorkspaceMetadata, root: &Path) -> Vec<String> {
    let ours = metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id));
    let targets = ours.flat_map(|package| &package.targets);
    let inside = targets.filter_map(|target| Path::new(&target.src_path).strip_prefix(root).ok());
    inside.map(|path| path.display().to_string()).collect()
}

/// Every source that is not reached from `roots`.
pub(super) fn check(sources: &[Source], roots: &[String]) -> Vec<Finding> {
    let by_path: BTreeMap<&str, &Source> =
        sources.iter().map(|source| (source.path.as_str(), source)).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<(String, bool)> = roots.iter().map(|root| (root.clone(), true)).collect();
    while let Some((path, is_root)) = open.pop() {
        let Some(source) = by_path.get(path.as_str()) else { continue };
        if reached.insert(path.clone()) {
            open.extend(children(source, is_root).into_iter().map(|child| (child, false)));
        }
    }
    let dead = sources.iter().filter(|source| !reached.contains(&source.path));
    dead.map(|source| {
        let message = "no `mod` reaches this file, so it is never compiled: declare it or remove it";
        Finding::at(&source.path, 0, message)
    })
    .collect()
}

/// The files that this one may declare, whether or not they exist.
fn children(source: &Source, is_root: bool) -> Vec<String> {
    let path = Path::new(&source.path);
    let folder = path.parent().map(|p| p.display().to_string()).unwrap_or_default();
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let below = if is_root || stem == "mod" { folder.clone() } else { format!("{folder}/{stem}") };
    let mut found = Vec::new();
    for (number, line) in source.code.iter().enumerate() {
        for (column, _) in line.match_indices("mod ").filter(|(column, _)| starts_word(line, *column)) {
            let Some(name) = line[column + 4..].trim_end().strip_suffix(';').map(str::trim) else { continue };
            found.push(format!("{below}/{name}.rs"));
            found.push(format!("{below}/{name}/mod.rs"));
            let above = number.checked_sub(1).map_or("", |above| source.raw[above].trim());
            let elsewhere = above.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"));
            found.extend(elsewhere.map(|to| join(&folder, to)));
        }
    }
    found
}

/// `folder/../x` without its detours.
pub(super) fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nothing_declares_is_found() {
        let sources = [
            Source::new("crates/x/src/lib.rs", "pub mod a;\nmod b;\n#[path = \"../odd.rs\"]\nmod odd;\n"),
            Source::new("crates/x/src/a.rs", "mod deep;\n// mod dead;\n"),
            Source::new("crates/x/src/a/deep.rs", ""),
            Source::new("crates/x/src/b/mod.rs", "pub(crate) mod c;"),
            Source::new("crates/x/src/b/c.rs", ""),
            Source::new("crates/x/odd.rs", ""),
            Source::new("crates/x/src/dead.rs", ""),
            Source::new("crates/x/src/a/dead.rs", ""),
        ];
        let dead = check(&sources, &["crates/x/src/lib.rs".to_owned()]);
        let paths: Vec<&str> = dead.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["crates/x/src/dead.rs", "crates/x/src/a/dead.rs"]);
    }
}
