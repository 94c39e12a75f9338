//! The list of what the binary is built of, as CycloneDX 1.5: every crate with its version, licence, source and
//! digest, and which needs which.
//!
//! It is made of `cargo metadata` and `Cargo.lock`, which is where cargo-cyclonedx has it from, too; what only
//! tests need is left out, what is built in from C (SQLite, zstd, mimalloc, ring) is inside the crate of that name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Dist;
use crate::chore::{capture, cargo};

/// The binary is built for this machine.
const PACKAGE: &str = "tidegate";

/// What cargo knows of all crates of the workspace.
#[derive(Deserialize)]
pub(super) struct LockedPackages {
    packages: Vec<LockedPackage>,
    resolve: Resolve,
}

/// A crate.
#[derive(Deserialize)]
pub(super) struct LockedPackage {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

impl LockedPackage {
    /// Its licence, as SPDX says it: a slash was written before that had expressions.
    pub(super) fn license(&self) -> Option<String> {
        Some(self.license.as_ref()?.replace('/', " OR "))
    }

    /// The folder of its sources, if others have written them.
    pub(super) fn folder_of_others(&self) -> Option<&Path> {
        self.source.as_ref()?;
        self.manifest_path.parent()
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<DependencyEdge>,
}

#[derive(Deserialize)]
struct DependencyEdge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

impl DependencyEdge {
    /// Whether it is for tests alone.
    fn is_for_tests(&self) -> bool {
        self.dep_kinds.iter().all(|kind| kind.kind.as_deref() == Some("dev"))
    }
}

impl LockedPackages {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo does not know its own packages.
    pub(super) fn of(root: &Path) -> anyhow::Result<Self> {
        let host = capture(std::process::Command::new("rustc").arg("-vV"))?;
        let host =
            host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names its host")?;
        let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host];
        let text = capture(cargo().args(arguments).current_dir(root))?;
        serde_json::from_str(&text).context("cargo metadata")
    }

    /// Everything that the binary reaches, by the name that it has in lists of packages.
    pub(super) fn reached(&self) -> BTreeMap<String, &LockedPackage> {
        let (edges, packages) = (self.edges(), self.by_id());
        let own = self.own();
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = own.iter().map(|it| it.id.as_str()).collect();
        while let Some(id) = next.pop() {
            if reached.insert(id) {
                next.extend(edges.get(id).into_iter().flatten());
            }
        }
        reached.iter().filter_map(|id| packages.get(id)).map(|it| (purl(it), *it)).collect()
    }

    fn own(&self) -> Option<&LockedPackage> {
        self.packages.iter().find(|it| it.name == PACKAGE && it.source.is_none())
    }

    fn by_id(&self) -> BTreeMap<&str, &LockedPackage> {
        self.packages.iter().map(|it| (it.id.as_str(), it)).collect()
    }

    fn edges(&self) -> BTreeMap<&str, Vec<&str>> {
        let nodes = self.resolve.nodes.iter();
        nodes
            .map(|node| {
                let needed = node.deps.iter().filter(|edge| !edge.is_for_tests());
                (node.id.as_str(), needed.map(|edge| edge.pkg.as_str()).collect())
            })
            .collect()
    }
}

/// Writes `tidegate.cdx.json`.
///
/// # Errors
/// When there is no lock file.
pub(super) fn write(dist: &Dist, metadata: &LockedPackages) -> anyhow::Result<()> {
    let bom = bom(metadata, &dist.root, &dist.version)?;
    std::fs::write(dist.to.join("tidegate.cdx.json"), format!("{bom:#}\n")).context("tidegate.cdx.json")
}

fn bom(metadata: &LockedPackages, root: &Path, version: &str) -> anyhow::Result<Value> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    Ok(document(metadata, &digests(&lock)?, version))
}

/// Digests by name and version.
fn digests(lock: &str) -> anyhow::Result<BTreeMap<(String, String), String>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let lock: Lock = toml::from_str(lock).context("Cargo.lock")?;
    let digest = |it: Locked| Some(((it.name, it.version), it.checksum?));
    Ok(lock.package.into_iter().filter_map(digest).collect())
}

fn document(metadata: &LockedPackages, digests: &BTreeMap<(String, String), String>, version: &str) -> Value {
    let (edges, packages, found) = (metadata.edges(), metadata.by_id(), metadata.reached());
    let components: Vec<Value> = found
        .iter()
        .filter(|(_, it)| it.name != PACKAGE)
        .map(|(purl, it)| component(purl, it, digests))
        .collect();
    let dependencies: Vec<Value> = found
        .iter()
        .map(|(from, it)| {
            let needed = edges.get(it.id.as_str()).into_iter().flatten();
            let needed: BTreeSet<String> =
                needed.filter_map(|id| packages.get(id)).map(|it| purl(it)).collect();
            json!({ "ref": from, "dependsOn": needed })
        })
        .collect();
    let own = format!("pkg:cargo/{PACKAGE}@{}", metadata.own().map_or(version, |it| it.version.as_str()));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "bom-ref": own, "name": PACKAGE, "version": version, "purl": own,
            "licenses": [{ "expression": "Apache-2.0" }],
        }},
        "components": components,
        "dependencies": dependencies,
    })
}

fn component(purl: &str, package: &LockedPackage, digests: &BTreeMap<(String, String), String>) -> Value {
    let LockedPackage { name, version, .. } = package;
    let mut component =
        json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl });
    if let Some(license) = package.license() {
        component["licenses"] = json!([{ "expression": license }]);
    }
    if let Some(digest) = digests.get(&(name.clone(), version.clone())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
    }
    component
}

fn purl(package: &LockedPackage) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_binary_is_listed_and_what_only_tests_need_is_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let bom = bom(&LockedPackages::of(root).unwrap(), root, "9.9.9").unwrap();
        let components = bom["components"].as_array().unwrap();
        let of = |name: &str| components.iter().find(|it| it["name"] == name);
        let tokio = of("tokio").unwrap();
        assert_eq!(tokio["licenses"][0]["expression"], "MIT");
        assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
        assert!(of("tidegate-limiter").is_some() && of("libsqlite3-sys").is_some());
        for tests_alone in ["insta", "proptest", "tidegate-testkit", "xtask"] {
            assert!(of(tests_alone).is_none(), "{tests_alone}");
        }
        // Every crate that another one needs is itself described.
        let known: BTreeSet<&str> = components.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
        for edges in bom["dependencies"].as_array().unwrap() {
            for needed in edges["dependsOn"].as_array().unwrap() {
                assert!(known.contains(needed.as_str().unwrap()), "{needed}");
            }
        }
        assert_eq!(bom["metadata"]["component"]["version"], "9.9.9");
    }
}
