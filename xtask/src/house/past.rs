//! The sources as they were at a commit, so that a finding can say what is new.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::source::Source;

/// The sources and the page of metrics at this commit.
///
/// # Errors
/// When git does not know the commit.
pub(super) fn at(root: &Path, commit: &str, page: &str) -> anyhow::Result<(Vec<Source>, String)> {
    let lines = git(root, &["grep", "--no-color", "--full-name", "-Iz", "-e", "", commit, "--", "*.rs"])?;
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for line in lines.lines() {
        let (place, line) = line.split_once('\0').context("git grep -z ends names by a zero")?;
        let path = place.split_once(':').map_or(place, |(_, path)| path);
        let text = texts.entry(path).or_default();
        text.push_str(line);
        text.push('\n');
    }
    let sources = texts.iter().map(|(path, text)| Source::new(path, text)).collect();
    // An old commit has no such page.
    let page = git(root, &["show", &format!("{commit}:{page}")]).unwrap_or_default();
    Ok((sources, page))
}

/// The commit that last changed this file; `None` if there is none.
pub(super) fn last_change(root: &Path, path: &str) -> Option<String> {
    let commit = git(root, &["log", "-1", "--format=%h", "--", path]).ok()?;
    let commit = commit.trim();
    (!commit.is_empty()).then(|| commit.to_owned())
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("git does not start")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
