//! `cargo xtask reproduce`: whether the last commit gives the same bytes when it is built twice.
//!
//! ```text
//!   git archive HEAD ──┬─> target/reproduce/one ──────────────── dist, clients ──> target/dist ──┐
//!                      └─> target/reproduce/another/further/down ─ dist, clients ──> target/dist ──┴─> every file compared
//! ```
//!
//! The folders have names of other lengths, since a path that is left shifts what comes after it. Both builds are this
//! machine's: that another one gives the same bytes needs its compilers and what packs to be of the same versions, and
//! is tried by comparing `SHA256SUMS`. So that a name of this machine's folders is seen even though both builds write it,
//! the binaries are searched for those.
//!
//! It takes as long as two release builds, so no test does all of it: one in `mod.rs` compiles a workspace of two crates twice, and
//! one of the packages' calls this chore with a binary that is there, which is then packed in both folders, without the clients:
//! what these are packed with, `make setup` has installed beside the sources, and is lent to both folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::{dist, places};
use crate::chore::run;
use crate::clients;

/// Where the sources are put, below `target/reproduce`.
const FOLDERS: [&str; 2] = ["one", "another/further/down"];
/// What clients are packed with, beside the sources.
const LENT: [&str; 3] = [".npm", ".tools", ".venv"];
/// What is compiled, and may have the names of folders in it.
const COMPILED: [&str; 2] = ["tidegate", "tidegate.debug"];

/// Builds what is shipped twice, and compares. With the arguments of `dist`, both are made so, and without clients: a binary that
/// these name was built elsewhere, and is not searched for folders. With `--clients`, the clients alone.
///
/// # Errors
/// When a build fails, a file differs, or a binary has the name of a folder of this machine.
pub(crate) fn reproduce(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let place = root.join("target/reproduce");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    let is_clients_alone = arguments.iter().any(|argument| argument == "--clients");
    let mut sums = Vec::new();
    for name in FOLDERS {
        let folder = place.join(name);
        export(root, &folder)?;
        let made = folder.join("target/dist");
        if !is_clients_alone {
            dist(&folder, arguments)?;
        }
        if arguments.is_empty() {
            named(&folder, &made)?;
        }
        if arguments.is_empty() || is_clients_alone {
            lend(root, &folder)?;
            clients::pack(&folder)?;
        }
        let text = fs::read_to_string(made.join("SHA256SUMS")).context("SHA256SUMS")?;
        sums.push(by_file(&text));
    }
    let different = different(&sums[0], &sums[1]);
    if !different.is_empty() {
        bail!("not the same in both folders of {}: {}", place.display(), different.join(", "));
    }
    println!("the same bytes twice:");
    for (file, sum) in &sums[0] {
        println!("  {sum}  {file}");
    }
    Ok(())
}

/// Links to what is beside the sources, where it is.
fn lend(root: &Path, folder: &Path) -> anyhow::Result<()> {
    for name in LENT {
        std::os::unix::fs::symlink(root.join(name), folder.join(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Puts the files of the last commit into a folder.
fn export(root: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let archive = folder.with_extension("tar");
    run(Command::new("git").args(["archive", "--output"]).arg(&archive).arg("HEAD").current_dir(root))?;
    run(Command::new("tar").args(["--extract", "--directory"]).arg(folder).arg("--file").arg(&archive))?;
    fs::remove_file(&archive).with_context(|| archive.display().to_string())
}

/// Refuses binaries that name a folder of this machine.
fn named(folder: &Path, made: &Path) -> anyhow::Result<()> {
    for file in COMPILED {
        let bytes = fs::read(made.join(file)).with_context(|| file.to_owned())?;
        for (place, _) in places(folder, &folder.join("target/dist-build")) {
            let place = place.display().to_string();
            if let Some(at) = find(&bytes, place.as_bytes()) {
                let end = bytes.len().min(at + 200);
                let printed =
                    bytes[at..end].split(|byte| !byte.is_ascii_graphic()).next().unwrap_or_default();
                bail!("{file} names a folder of this machine: {}", String::from_utf8_lossy(printed));
            }
        }
    }
    Ok(())
}

/// Where `wanted` begins in `bytes`.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(next) = bytes[from..].iter().position(|byte| *byte == first) {
        if bytes[from + next..].starts_with(wanted) {
            return Some(from + next);
        }
        from += next + 1;
    }
    None
}

/// Sums by the file that they are of.
fn by_file(sums: &str) -> BTreeMap<String, String> {
    let pairs = sums.lines().filter_map(|line| line.split_once("  "));
    pairs.map(|(sum, file)| (file.to_owned(), sum.to_owned())).collect()
}

/// Files that are not in both, or differ.
fn different(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let files = one.keys().chain(other.keys().filter(|file| !one.contains_key(*file)));
    files.filter(|file| one.get(*file) != other.get(*file)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chore::capture;

    #[test]
    fn files_that_differ_or_are_missing_are_named() {
        let (one, other) = (by_file("aa  x\nbb  y\ncc  z\n"), by_file("aa  x\nbc  y\ndd  w\n"));
        assert_eq!(different(&one, &other), ["y", "z", "w"]);
        assert!(different(&one, &one.clone()).is_empty());
    }

    #[test]
    fn a_folder_that_a_binary_names_is_found_wherever_it_stands() {
        let folder = Path::new("/sources/of/it");
        let made = tempfile::tempdir().unwrap();
        for file in COMPILED {
            fs::write(made.path().join(file), b"\0/tidegate/src\0").unwrap();
        }
        named(folder, made.path()).unwrap();
        fs::write(made.path().join("tidegate.debug"), b"\0/sour/sources/of/it/src/main.rs\0after").unwrap();
        let said = named(folder, made.path()).unwrap_err().to_string();
        assert!(
            said.ends_with("tidegate.debug names a folder of this machine: /sources/of/it/src/main.rs"),
            "{said}"
        );
    }

    #[test]
    fn what_is_exported_is_what_was_committed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, to) = (folder.path().join("repository"), folder.path().join("to"));
        fs::create_dir(&root).unwrap();
        let git = |words: &[&str]| {
            let known = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"];
            capture(Command::new("git").args(known).args(words).current_dir(&root)).unwrap();
        };
        git(&["init", "--quiet"]);
        fs::write(root.join("file"), "committed").unwrap();
        git(&["add", "file"]);
        git(&["commit", "--quiet", "--message", "one"]);
        fs::write(root.join("file"), "changed since").unwrap();
        export(&root, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "committed");
        assert!(export(&to, &folder.path().join("nowhere")).is_err(), "{} is no repository", to.display());
    }
}
