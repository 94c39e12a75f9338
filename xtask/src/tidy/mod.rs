//! `cargo xtask tidy`: the rules of the house that a compiler does not know.
//!
//! Each rule is a function from what it reads to [`Finding`]s, so that its tests hand it a small
//! text that must fail. Nothing here fixes anything: a finding says where, what, and how to mend it.
//! Rules have no switches. Three admit a written reason, and it stands where the reader needs it:
//! `Over 400 lines because ...`, `// Sleeps because ...`, and the `skip` list of `deny.toml`.

mod book;
mod commands;
mod compatibility;
mod dead;
mod decisions;
pub(crate) mod faults;
mod figures;
mod invariants;
mod layers;
mod links;
mod references;
mod style;
mod verdict;
mod versions;

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

pub(crate) use self::links::target_of;
use crate::chore::cargo;
use crate::house;
use crate::source::Source;

/// Dependencies are judged as they are built here; what only Windows needs is not ours to keep tidy.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the repository's root.
    pub(crate) path: String,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// What is wrong and how to mend it.
    pub(crate) message: String,
}

impl Finding {
    /// A finding at `line`, counted from 0 as the rules count.
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: line + 1, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The part of `cargo metadata` that the rules read.
#[derive(Deserialize)]
struct WorkspaceMetadata {
    packages: Vec<WorkspacePackage>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct WorkspacePackage {
    id: String,
    name: String,
    version: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct CargoTarget {
    src_path: String,
}

/// A text file of the repository.
pub(crate) struct TextFile {
    /// Path from the repository's root.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

/// Runs every rule over the repository at `root` and prints what it finds.
///
/// # Errors
/// When a rule is broken, or the repository cannot be read.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let metadata = metadata(root)?;
    let files = files(root)?;
    let sources: Vec<Source> =
        files.iter().filter(|f| f.path.ends_with(".rs")).map(|f| Source::new(&f.path, &f.text)).collect();

    let mut findings = layers::check(&metadata, root);
    findings.extend(versions::check(&metadata, root)?);
    findings.extend(sources.iter().flat_map(style::check));
    findings.extend(files.iter().flat_map(style::check_script));
    findings.extend(dead::check(&sources, &dead::roots(&metadata, root)));
    findings.extend(files.iter().flat_map(commands::check));
    findings.extend(links::check(&files, |path| root.join(path).exists()));
    findings.extend(book::check(&files));
    findings.extend(book::check_api(&files)?);
    findings.extend(figures::check(&files));
    let known = references::KnownNames::read(root, &files)?;
    findings.extend(references::check(&files, &known, |path| root.join(path).exists()));
    findings.extend(compatibility::check(&files, &known));
    findings.extend(faults::check(&sources, &files));
    let page = files.iter().find(|file| file.path == "docs/faults.md").context("docs/faults.md")?;
    findings.extend(faults::check_marks(&page.text, &sources, &files));
    findings.extend(decisions::check(&files));
    findings.extend(decisions::check_order(&files));
    findings.extend(verdict::check(&files));
    findings.extend(invariants::check(&files, &sources));
    let measured = house::check(root, &sources)?.into_iter();
    findings.extend(measured.map(|it| Finding {
        path: house::LIST.to_owned(),
        line: it.line,
        message: it.message,
    }));
    findings.sort();
    findings.dedup();

    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} to mend", findings.len());
    }
    println!("tidy: {} files in order", files.len());
    Ok(())
}

fn metadata(root: &Path) -> anyhow::Result<WorkspaceMetadata> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM])
        .current_dir(root)
        .output()
        .context("cargo metadata does not start")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed an unexpected form")
}

/// Every UTF-8 file that git tracks or would track.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<TextFile>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files does not start")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
    let paths = listed.split_terminator('\0');
    Ok(paths.filter_map(|path| read(root, path)).collect())
}

/// `None` for a deleted file and for one that is not text.
fn read(root: &Path, path: &str) -> Option<TextFile> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    Some(TextFile { path: path.to_owned(), text })
}
