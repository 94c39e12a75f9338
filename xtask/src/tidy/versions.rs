//! One version of each crate, or a reason in `deny.toml`.
//!
//! The `skip` list of `deny.toml` is the only place that admits a second version. It can only
//! shrink: an entry that no longer has a duplicate fails here (cargo-deny only warns about it).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use super::{Finding, WorkspaceMetadata};

#[derive(Deserialize)]
struct Deny {
    bans: Bans,
}

#[derive(Deserialize)]
struct Bans {
    #[serde(default)]
    skip: Vec<Skip>,
}

#[derive(Deserialize)]
struct Skip {
    /// `name@version`, as cargo-deny reads it.
    #[serde(rename = "crate")]
    spec: String,
}

/// Duplicates that are not admitted, and admissions without a duplicate.
pub(super) fn check(metadata: &WorkspaceMetadata, root: &Path) -> anyhow::Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let packages = metadata.packages.iter().map(|package| (package.name.as_str(), package.version.as_str()));
    compare(packages, &text)
}

fn compare<'a>(
    packages: impl Iterator<Item = (&'a str, &'a str)>,
    deny_toml: &str,
) -> anyhow::Result<Vec<Finding>> {
    let deny: Deny = toml::from_str(deny_toml).context("deny.toml")?;
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version) in packages {
        versions.entry(name).or_default().insert(version);
    }
    let mut findings = Vec::new();
    for (name, present) in versions.iter().filter(|(_, present)| present.len() > 1) {
        let admitted =
            |version: &str| deny.bans.skip.iter().any(|skip| skip.spec == format!("{name}@{version}"));
        let open: Vec<&str> = present.iter().copied().filter(|version| !admitted(version)).collect();
        if open.len() > 1 {
            let message = format!(
                "{name} comes in versions {}: raise one user of it (`cargo tree -i {name}@{}`) or give a \
                 reason in deny.toml's skip list",
                open.join(" and "),
                open[0]
            );
            findings.push(Finding::at("Cargo.lock", 0, message));
        }
    }
    for skip in &deny.bans.skip {
        let (name, version) = skip.spec.split_once('@').unwrap_or((&skip.spec, ""));
        let needed = versions.get(name).is_some_and(|present| present.len() > 1 && present.contains(version));
        if !needed {
            let line = deny_toml.lines().position(|line| line.contains(&skip.spec)).unwrap_or(0);
            let message = format!("{} is skipped but is no duplicate any more: remove the entry", skip.spec);
            findings.push(Finding::at("deny.toml", line, message));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [(&str, &str); 3] = [("syn", "2.0.1"), ("syn", "3.0.9"), ("serde", "1.0.0")];

    #[test]
    fn a_second_version_needs_a_reason() {
        let findings = compare(TWO.into_iter(), "[bans]\n").unwrap();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.starts_with("syn comes in versions 2.0.1 and 3.0.9"));
        let admitted = "[bans]\nskip = [{ crate = \"syn@2.0.1\", reason = \"derive macros\" }]\n";
        assert_eq!(compare(TWO.into_iter(), admitted).unwrap(), Vec::new());
    }

    #[test]
    fn an_entry_without_a_duplicate_must_go() {
        let stale = "[bans]\nskip = [\n  { crate = \"serde@1.0.0\" },\n  { crate = \"syn@2.0.1\" },\n]\n";
        let findings = compare(TWO.into_iter(), stale).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("deny.toml", 3));
    }
}
