//! `NOTICE`: whose works are in the binary, and the licences that want to be shown with them.
//!
//! It is the repository's `NOTICE`, the console's, and of every crate its name, version and licence. Where a licence leaves the
//! choice of Apache-2.0, that is chosen: its text is `LICENSE`, which every package has beside this file. Of other crates, all
//! texts are here, and so are those in folders below a crate, which are of what others have written in C. A text that several
//! crates have is written once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Dist;
use super::sbom::{LockedPackage, LockedPackages};

/// The licence that is chosen where there is a choice.
const CHOSEN: &str = "Apache-2.0";
/// How names of files begin that are licences, in small letters.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
/// Of those, the ones in folders below. Others there are alternatives that nobody has to choose.
const NAMES_BELOW: [&str; 3] = ["license", "licence", "notice"];

/// Writes `NOTICE`, and returns its path.
///
/// # Errors
/// When a crate's sources are not there.
pub(super) fn write(dist: &Dist, metadata: &LockedPackages) -> anyhow::Result<PathBuf> {
    let mut notice = String::new();
    for source in ["NOTICE", "console/NOTICE.txt"] {
        let source = dist.source(source);
        notice += &fs::read_to_string(&source).with_context(|| source.display().to_string())?;
        notice.push('\n');
    }
    notice += &of_others(&metadata.reached().into_values().collect::<Vec<_>>())?;
    let path = dist.to.join("NOTICE");
    fs::write(&path, notice).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The part about crates.
fn of_others(packages: &[&LockedPackage]) -> anyhow::Result<String> {
    let mut notice = format!(
        "The program contains these crates, and Rust's standard library. Where a licence leaves the choice, {CHOSEN} is \
         chosen.\n\n"
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let Some(folder) = package.folder_of_others() else { continue };
        let name = format!("{} {}", package.name, package.version);
        let license = package.license().unwrap_or_default();
        writeln!(notice, "{name}: {license}")?;
        for file in files(folder, is_chosen(&license))? {
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            let named = texts.entry(text.trim().to_owned()).or_default();
            if !named.contains(&name) {
                named.push(name.clone());
            }
        }
    }
    let mut texts: Vec<_> = texts.into_iter().map(|(text, names)| (names.join(", "), text)).collect();
    texts.sort();
    for (names, text) in texts {
        write!(notice, "\n=== {names}\n\n{text}\n")?;
    }
    Ok(notice)
}

/// Whether a licence leaves the choice of the one whose text is there anyway.
fn is_chosen(license: &str) -> bool {
    let mut alternatives = license.split(" OR ");
    !license.contains(" AND ") && alternatives.any(|one| one.trim_matches(['(', ')', ' ']) == CHOSEN)
}

/// The files of a crate that are to be shown, in order.
fn files(folder: &Path, is_chosen: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        // Of the crate itself, where its licence is in LICENSE, what it asks to be named with.
        let names: &[&str] = match (next == folder, is_chosen) {
            (true, true) => &["notice"],
            (true, false) => &NAMES,
            (false, _) => &NAMES_BELOW,
        };
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if names.iter().any(|begin| name.starts_with(begin)) && !is_source(&name) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file of this name is code, as `license.rs` is.
fn is_source(name: &str) -> bool {
    [".rs", ".c", ".h", ".py", ".toml", ".json"].iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_one_and_a_demand_is_none() {
        for chosen in [
            "Apache-2.0",
            "MIT OR Apache-2.0",
            "(Apache-2.0 OR ISC OR MIT)",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
        ] {
            assert!(is_chosen(chosen), "{chosen}");
        }
        for other in [
            "MIT",
            "Apache-2.0 AND ISC",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "",
        ] {
            assert!(!is_chosen(other), "{other}");
        }
    }

    #[test]
    fn licences_that_must_be_shown_are_and_others_are_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let metadata = LockedPackages::of(root).unwrap();
        let notice = of_others(&metadata.reached().into_values().collect::<Vec<_>>()).unwrap();
        // Of a crate, of what one has in C below it, of a table of Unicode; and one that leaves the choice.
        for shown in ["Sean McArthur", "Microsoft Corporation", "UNICODE LICENSE V3", "\nanyhow 1."] {
            assert!(notice.contains(shown), "{shown}");
        }
        for absent in ["\ntidegate-limiter ", "\ninsta ", "GNU GENERAL PUBLIC LICENSE"] {
            assert!(!notice.contains(absent), "{absent}");
        }
    }
}
