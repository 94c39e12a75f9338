//! Whether what a lock names is installed.
//!
//! What is compared: each package of the lock is there at its version, and with its checksum where the installer keeps one. That more is
//! there, or that a registry offers more than the lock has, says nothing against it. npm keeps the checksums of what it has installed, Go
//! writes them into a program. pip keeps none: PyPI never changes a file that it has, and pip compares what it loads with PyPI's sums.
//!
//! Deliberately absent: installing. `setup.rs` does that when one of these says no, and asks once more afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::chore::capture;

/// How many mistakes a message names.
const NAMED: usize = 5;

/// What a virtual environment has, a line each.
const DISTRIBUTIONS: &str = "import importlib.metadata as packages\n\
    for found in packages.distributions(): print(found.metadata['Name'], found.version)";

/// `package-lock.json`, and what npm writes beside the packages that it has installed.
#[derive(Deserialize)]
struct NpmLock {
    packages: BTreeMap<String, NpmPackage>,
}

#[derive(Deserialize)]
struct NpmPackage {
    version: Option<String>,
    integrity: Option<String>,
    #[serde(default)]
    optional: bool,
    /// Systems that it is for, a word or several.
    os: Option<Value>,
    /// Processors that it is for, in Node's words.
    cpu: Option<Value>,
    /// C libraries that it is for.
    libc: Option<Value>,
}

impl NpmPackage {
    /// Whether it may be absent. What only this kind of machine needs is marked as optional, too.
    fn may_be_absent(&self) -> bool {
        let processor = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        let is_for_this_machine = names(self.os.as_ref(), "linux")
            && names(self.cpu.as_ref(), processor)
            && (self.libc.is_none() || names(self.libc.as_ref(), "glibc"));
        self.optional && !is_for_this_machine
    }
}

/// Whether a word, or a list of them, has `word`.
fn names(said: Option<&Value>, word: &str) -> bool {
    match said {
        Some(Value::Array(words)) => words.iter().any(|one| one == word),
        said => said.is_some_and(|one| one == word),
    }
}

/// Whether `folder` has the npm packages of this lock.
///
/// # Errors
/// When one is missing, is of another version or has another checksum, with what it is.
pub(crate) fn npm(lock: &str, folder: &Path) -> anyhow::Result<()> {
    let wanted: NpmLock = serde_json::from_str(lock).context("package-lock.json")?;
    let kept =
        fs::read_to_string(folder.join("node_modules/.package-lock.json")).context("nothing is installed")?;
    let there: NpmLock = serde_json::from_str(&kept).context("what npm has installed")?;
    let wrong =
        wanted.packages.iter().filter(|(place, _)| !place.is_empty()).filter_map(|(place, wanted)| {
            let name = place.rsplit_once("node_modules/").map_or(place.as_str(), |(_, name)| name);
            let version = wanted.version.as_deref().unwrap_or_default();
            let Some(there) = there.packages.get(place) else {
                return (!wanted.may_be_absent()).then(|| format!("{name} {version} is missing"));
            };
            let found = npm_version(&folder.join(place));
            if found.as_deref() != Some(version) {
                return Some(format!("{name} is {}, not {version}", found.as_deref().unwrap_or("not whole")));
            }
            (there.integrity != wanted.integrity).then(|| format!("{name} {version} has another checksum"))
        });
    all_right(wrong.collect())
}

/// The version that a package says it has.
fn npm_version(package: &Path) -> Option<String> {
    let text = fs::read_to_string(package.join("package.json")).ok()?;
    let said: Value = serde_json::from_str(&text).ok()?;
    said["version"].as_str().map(str::to_owned)
}

/// Whether a virtual environment has the Python packages of a list with lines `name==version`.
///
/// # Errors
/// When one is missing or of another version, or the list names one without a version.
pub(crate) fn python(list: &str, environment: &Path) -> anyhow::Result<()> {
    let said = capture(Command::new(environment.join("bin/python")).args(["-c", DISTRIBUTIONS]))?;
    let there: BTreeSet<(String, &str)> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, version)| (normal(name), version))
        .collect();
    let mut wrong = Vec::new();
    for line in list.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if line.is_empty() {
            continue;
        }
        let (name, version) = line.split_once("==").with_context(|| format!("{line} is not pinned"))?;
        let name = normal(name);
        if there.contains(&(name.clone(), version)) {
            continue;
        }
        let other = there.iter().find(|(found, _)| *found == name);
        wrong.push(match other {
            Some((_, found)) => format!("{name} is {found}, not {version}"),
            None => format!("{name} {version} is missing"),
        });
    }
    all_right(wrong)
}

/// A name as PyPI compares them: `Flask_Limiter` is `flask-limiter`.
fn normal(name: &str) -> String {
    name.to_lowercase().replace(['_', '.'], "-")
}

/// Whether a program, of which `go version -m` says this, was built of modules that are in `go.sum`.
///
/// # Errors
/// When one is not, with its version.
pub(crate) fn go(sums: &str, said: &str) -> anyhow::Result<()> {
    let sums: BTreeSet<&str> = sums.lines().collect();
    let mut wrong = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // `dep`, a module, its version and its checksum; `=>` where it is replaced, and `mod` of the program's own.
        if let ["dep" | "mod" | "=>", module, version, sum] = words[..]
            && sum.starts_with("h1:")
            && !sums.contains(format!("{module} {version} {sum}").as_str())
        {
            wrong.push(format!("{module} is {version} with {sum}, which go.sum has not"));
        }
    }
    all_right(wrong)
}

/// Whether cargo has installed this version of a program into `tools`.
///
/// # Errors
/// When it has another one or none.
pub(crate) fn cargo(name: &str, version: &str, tools: &Path) -> anyhow::Result<()> {
    let kept = fs::read_to_string(tools.join(".crates.toml")).context("nothing is installed")?;
    let kept: toml::Table = kept.parse().context("what cargo has installed")?;
    let there = kept.get("v1").and_then(toml::Value::as_table).context("what cargo has installed")?;
    // `cargo-deny 0.20.2 (registry+https://...)`
    let of_that_name =
        there.keys().find_map(|key| key.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next());
    match of_that_name {
        Some(found) if found == version && tools.join("bin").join(name).is_file() => Ok(()),
        Some(found) if found != version => bail!("{name} is {found}, not {version}"),
        _ => bail!("{name} {version} is missing"),
    }
}

fn all_right(wrong: Vec<String>) -> anyhow::Result<()> {
    let more = wrong.len().saturating_sub(NAMED);
    let named = wrong.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    match (named.is_empty(), more) {
        (true, _) => Ok(()),
        (false, 0) => bail!("{named}"),
        (false, more) => bail!("{named}, and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_binaries::script;

    /// A folder of npm with packages of these names, versions and checksums.
    fn npm_folder(packages: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("node_modules")).unwrap();
        let mut kept = BTreeMap::new();
        for (name, version, integrity) in packages {
            let place = format!("node_modules/{name}");
            fs::create_dir_all(folder.path().join(&place)).unwrap();
            let said = format!("{{\"version\": \"{version}\"}}");
            fs::write(folder.path().join(&place).join("package.json"), said).unwrap();
            kept.insert(place, serde_json::json!({"version": version, "integrity": integrity}));
        }
        let kept = serde_json::json!({ "packages": kept }).to_string();
        fs::write(folder.path().join("node_modules/.package-lock.json"), kept).unwrap();
        folder
    }

    #[test]
    fn npm_may_have_more_and_nothing_else_than_the_lock() {
        let lock = serde_json::json!({"packages": {
            "": {"name": "checks"},
            "node_modules/esbuild": {"version": "0.28.2", "integrity": "sha512-a"},
            "node_modules/biome-of-others": {
                "version": "2.6.8", "integrity": "sha512-b", "optional": true, "os": ["darwin"], "cpu": ["arm64", "x64"],
            },
        }});
        let check = |packages: &[(&str, &str, &str)]| {
            npm(&lock.to_string(), npm_folder(packages).path()).map_err(|error| error.to_string())
        };
        let esbuild = ("esbuild", "0.28.2", "sha512-a");
        assert_eq!(check(&[esbuild]), Ok(()));
        assert_eq!(check(&[esbuild, ("another", "1.0.0", "sha512-c")]), Ok(()), "a superset");
        assert_eq!(
            check(&[("esbuild", "0.28.3", "sha512-a")]),
            Err("esbuild is 0.28.3, not 0.28.2".to_owned())
        );
        let other_sum = check(&[("esbuild", "0.28.2", "sha512-z")]);
        assert_eq!(other_sum, Err("esbuild 0.28.2 has another checksum".to_owned()));
        assert_eq!(check(&[("another", "1", "")]), Err("esbuild 0.28.2 is missing".to_owned()));
        assert!(npm(&lock.to_string(), tempfile::tempdir().unwrap().path()).is_err());
    }

    #[test]
    fn what_npm_has_left_out_of_this_machines_packages_is_missing() {
        let cpu = if std::env::consts::ARCH == "x86_64" { "x64" } else { "arm64" };
        let lock = |libc: &str| {
            let package = serde_json::json!({"version": "1.0.0", "optional": true, "os": "linux", "cpu": [cpu], "libc": [libc]});
            serde_json::json!({"packages": {"node_modules/esbuild-here": package}}).to_string()
        };
        let folder = npm_folder(&[]);
        let missing = npm(&lock("glibc"), folder.path()).unwrap_err().to_string();
        assert_eq!(missing, "esbuild-here 1.0.0 is missing");
        npm(&lock("musl"), folder.path()).unwrap();
    }

    #[test]
    fn python_may_have_more_and_nothing_else_than_the_list() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        script("bin/python", "", folder.path());
        let check = |list: &str, there: &str| {
            let python = script("python", &format!("printf '{there}'"), &folder.path().join("bin"));
            assert_eq!(python.program, folder.path().join("bin/python"));
            self::python(list, folder.path()).map_err(|error| error.to_string())
        };
        let list = "# comment\nFlask-Limiter==4.1.1  # what for\n\nruamel.yaml==0.19.1\n";
        assert_eq!(check(list, "flask_limiter 4.1.1\\nruamel.yaml 0.19.1\\n"), Ok(()));
        let more = "pip 26.0\\nFlask_Limiter 4.1.1\\nruamel-yaml 0.19.1\\nadded 1\\n";
        assert_eq!(check(list, more), Ok(()), "a superset");
        let wrong = check(list, "Flask-Limiter 4.2.0\\n");
        let expected = "flask-limiter is 4.2.0, not 4.1.1, ruamel-yaml 0.19.1 is missing";
        assert_eq!(wrong, Err(expected.to_owned()));
        assert_eq!(check("redis>=8\n", ""), Err("redis>=8 is not pinned".to_owned()));
    }

    #[test]
    fn a_program_of_go_is_of_modules_that_go_sum_has() {
        let said = "pebble: go1.26.8\n\tpath\ta/cmd\n\tmod\ta\tv2.1.0\th1:a=\n\tdep\tb\tv1.0.0\n\t=>\tc\tv1.2.0\th1:c=\n\tbuild\t-compiler=gc\n";
        go("a v2.1.0 h1:a=\na v2.1.0/go.mod h1:m=\nc v1.2.0 h1:c=\nmore v1.0.0 h1:d=\n", said).unwrap();
        let wrong = go("a v2.1.0 h1:a=\nc v1.3.0 h1:c=\n", said).unwrap_err().to_string();
        assert_eq!(wrong, "c is v1.2.0 with h1:c=, which go.sum has not");
    }

    #[test]
    fn cargo_may_have_more_programs_and_no_other_version() {
        let tools = tempfile::tempdir().unwrap();
        fs::create_dir(tools.path().join("bin")).unwrap();
        fs::write(tools.path().join("bin/cargo-deny"), "").unwrap();
        let check = |kept: &str| {
            fs::write(tools.path().join(".crates.toml"), format!("[v1]\n{kept}")).unwrap();
            cargo("cargo-deny", "0.20.2", tools.path()).map_err(|error| error.to_string())
        };
        let line =
            |version: &str| format!("\"cargo-deny {version} (registry+https://x)\" = [\"cargo-deny\"]\n");
        assert_eq!(check(&line("0.20.2")), Ok(()));
        let more = format!("\"cargo-deny-more 1.0.0 (registry+https://x)\" = [\"more\"]\n{}", line("0.20.2"));
        assert_eq!(check(&more), Ok(()), "a superset");
        assert_eq!(check(&line("0.20.3")), Err("cargo-deny is 0.20.3, not 0.20.2".to_owned()));
        assert_eq!(check(""), Err("cargo-deny 0.20.2 is missing".to_owned()));
    }

    #[test]
    fn a_message_names_a_few_of_many() {
        let wrong = |count: usize| (0..count).map(|number| number.to_string()).collect();
        assert!(all_right(wrong(0)).is_ok());
        assert_eq!(all_right(wrong(5)).unwrap_err().to_string(), "0, 1, 2, 3, 4");
        assert_eq!(all_right(wrong(7)).unwrap_err().to_string(), "0, 1, 2, 3, 4, and 2 more");
    }
}
