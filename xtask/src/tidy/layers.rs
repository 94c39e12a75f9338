//! Arrows only go down: which crate may depend on which, read from `cargo metadata`.
//!
//! The table is the picture in `ARCHITECTURE.md`. Crates of one layer never depend on each other,
//! so services meet in the binary and each can be read, tested and removed alone. The rule holds
//! for tests and build scripts as for the library: a test that needs a neighbour belongs above both.
//! The pure crates also list what they may use from outside, by name: a runtime, a clock or a
//! socket gets in only by way of this file. Every crate takes the workspace's lints, and none is named
//! for what holds anything.

use std::path::Path;

use super::{Dependency, Finding, WorkspaceMetadata, WorkspacePackage};

/// Height of each crate of the workspace; a crate may depend on lower ones only.
const LAYERS: &[(&str, u8)] = &[
    ("tidegate-algorithms", 1),
    ("tidegate-wire", 1),
    ("tidegate-judge", 2),
    ("tidegate-store", 2),
    ("tidegate-control", 2),
    ("tidegate-log", 2),
    ("tidegate-net", 2),
    ("tidegate-settings", 2),
    ("tidegate-upstream", 2),
    ("tidegate-testkit", 1),
    ("tidegate-postgres", 1),
    ("tidegate-access", 3),
    ("tidegate-certificates", 3),
    ("tidegate-limiter", 4),
    ("tidegate-gateway", 4),
    ("tidegate-edge", 4),
    ("tidegate-intake", 4),
    ("tidegate-admin", 4),
    ("tidegate-tester", 4),
    ("tidegate-kafka", 5),
    ("tidegate", 6),
    ("tidegate-fuzz", 7),
    ("xtask", 7),
];

/// What the pure crates may use, and what only their tests may use.
const PURE: &[(&str, &[&str])] = &[
    ("tidegate-algorithms", &["jiff", "serde", "serde_json", "sha2", "strsim", "thiserror"]),
    ("tidegate-judge", &["hdrhistogram", "serde", "serde_json", "thiserror", "toml"]),
    (
        "tidegate-wire",
        &[
            "bytes",
            "http",
            "httparse",
            "itoa",
            "memchr",
            "ppp",
            "prost",
            "saphyr-parser",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "siphasher",
            "sfv",
            "thiserror",
            "utoipa",
        ],
    ),
];
const PURE_TESTS: &[&str] = &["insta", "proptest", "serde_json", "tempfile", "toml"];

/// How no crate's name ends.
const GRAB_BAGS: &[&str] = &["core", "common", "util", "utils", "misc", "shared"];

/// Every arrow that does not go down, and every guest in a pure crate.
pub(super) fn check(metadata: &WorkspaceMetadata, root: &Path) -> Vec<Finding> {
    let ours = metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id));
    ours.flat_map(|package| check_package(package, root)).collect()
}

fn check_package(package: &WorkspacePackage, root: &Path) -> Vec<Finding> {
    let manifest = Path::new(&package.manifest_path);
    let path = manifest.strip_prefix(root).unwrap_or(manifest).display().to_string();
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    let line_of = |name: &str| text.lines().position(|line| line.starts_with(name)).unwrap_or(0);

    if GRAB_BAGS.iter().any(|bag| package.name.ends_with(bag)) {
        let message = format!("`{}` says nothing of what is in it: name it by that", package.name);
        return vec![Finding::at(&path, line_of("name"), message)];
    }
    let Some(height) = layer(&package.name) else {
        let message = format!(
            "`{}` has no layer: give it one in xtask/src/tidy/layers.rs and in ARCHITECTURE.md",
            package.name
        );
        return vec![Finding::at(&path, 0, message)];
    };
    let mut findings = Vec::new();
    if !text.contains("[lints]\nworkspace = true") {
        let message = "the workspace's lints, one of which forbids `unsafe`, do not hold here: `[lints]`, \
                       `workspace = true`";
        findings.push(Finding::at(&path, 0, message));
    }
    let complaints = package.dependencies.iter().filter_map(|dependency| {
        complaint(&package.name, height, dependency)
            .map(|message| Finding::at(&path, line_of(&dependency.name), message))
    });
    findings.extend(complaints);
    findings
}

fn complaint(package: &str, height: u8, dependency: &Dependency) -> Option<String> {
    let used = &dependency.name;
    if let Some(used_height) = layer(used) {
        return (used_height >= height).then(|| {
            format!(
                "`{package}` (layer {height}) depends on `{used}` (layer {used_height}): arrows only go \
                 down; take what it needs as an argument or a trait, or move the shared part down"
            )
        });
    }
    let (_, allowed) = PURE.iter().find(|(name, _)| *name == package)?;
    let for_tests = dependency.kind.as_deref() == Some("dev");
    let welcome = allowed.contains(&used.as_str()) || for_tests && PURE_TESTS.contains(&used.as_str());
    (!welcome).then(|| {
        format!(
            "`{package}` is pure and `{used}` is not on its list: keep runtimes, clocks and sockets in \
             `net`, or argue for it in xtask/src/tidy/layers.rs"
        )
    })
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, height)| *height)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in the manifest of a crate with this dependency, apart from its lints.
    fn found(package: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("Cargo.toml"), "[lints]\nworkspace = true\n").unwrap();
        found_in(folder.path(), package, dependency, kind)
    }

    fn found_in(root: &Path, package: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let package = WorkspacePackage {
            id: "it".to_owned(),
            name: package.to_owned(),
            version: "0.1.0".to_owned(),
            manifest_path: root.join("Cargo.toml").display().to_string(),
            dependencies: vec![Dependency { name: dependency.to_owned(), kind: kind.map(str::to_owned) }],
            targets: Vec::new(),
        };
        let metadata =
            WorkspaceMetadata { packages: vec![package], workspace_members: vec!["it".to_owned()] };
        check(&metadata, root).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_up_or_sideways_is_found() {
        assert!(found("tidegate-store", "tidegate-limiter", None)[0].contains("arrows only go down"));
        assert!(found("tidegate-limiter", "tidegate-admin", None)[0].starts_with("Cargo.toml:1: "));
        assert_eq!(found("tidegate-limiter", "tidegate-gateway", Some("dev")).len(), 1);
        assert_eq!(found("tidegate-limiter", "tidegate-store", None), Vec::<String>::new());
        assert_eq!(found("tidegate", "tidegate-limiter", Some("dev")), Vec::<String>::new());
    }

    #[test]
    fn a_runtime_in_a_pure_crate_is_found() {
        assert!(found("tidegate-algorithms", "tokio", None)[0].contains("pure"));
        assert_eq!(found("tidegate-wire", "tokio", Some("dev")).len(), 1);
        assert_eq!(found("tidegate-wire", "proptest", None).len(), 1);
        assert_eq!(found("tidegate-wire", "proptest", Some("dev")), Vec::<String>::new());
        assert_eq!(found("tidegate-net", "tokio", None), Vec::<String>::new());
    }

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_found() {
        let findings = found_in(Path::new("/nowhere"), "tidegate-net", "serde", None);
        assert!(findings[0].contains("the workspace's lints"), "{findings:?}");
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        assert!(found("tidegate-utils", "serde", None)[0].contains("says nothing of what is in it"));
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert!(found("tidegate-mailer", "serde", None)[0].contains("has no layer"));
    }
}
