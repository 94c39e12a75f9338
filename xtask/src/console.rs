//! `cargo xtask console [--lint | --picture]`: builds `console/dist`, which the binary embeds, checks the sources of it, or makes
//! the pictures of the overview.
//!
//! What is built is committed, so that nobody needs Node to build the binary; a test of the binary sees that it is of
//! the sources beside it.
//!
//! The pictures, of which the README has one, are of a server that has counted ten minutes of traffic: so long the command
//! takes. Those of the other views are kept by the tests of the console (`TIDEGATE_SCREENSHOTS`).

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::chore::{cargo, run};

/// How long there is traffic before the pictures are taken, in seconds.
const PICTURED: &str = "600";

/// Builds the console; with `--lint`, checks its formatting, its types and what the linter knows, and builds nothing; with
/// `--picture`, makes the pictures of the overview.
///
/// # Errors
/// When a check fails, or what is needed is not installed.
pub(crate) fn console(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let folder = root.join("console");
    if arguments.iter().any(|argument| argument == "--picture") {
        return picture(root, &folder);
    }
    let npm = |program: &str| Command::new(root.join(".npm/node_modules/.bin").join(program));
    if !arguments.iter().any(|argument| argument == "--lint") {
        return run(Command::new("node").arg(folder.join("build.mjs")));
    }
    run(npm("biome").arg("check").current_dir(&folder))?;
    // The compiler looks for packages beside the sources.
    run(Command::new("node").arg(folder.join("build.mjs")).arg(root.join("target/console")))?;
    run(npm("tsc").args(["--project", "tsconfig.json"]).current_dir(&folder))
}

/// Builds the binary, has it serve for ten minutes of traffic, and keeps the pictures of its overview.
fn picture(root: &Path, folder: &Path) -> anyhow::Result<()> {
    run(cargo()
        .args(["build", "--release", "--package", "tidegate", "--bin", "tidegate"])
        .current_dir(root))?;
    let packages = folder.join("node_modules");
    match symlink("../.npm/node_modules", &packages) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{} cannot be made", packages.display()));
        }
        _ => {}
    }
    let mut taking = Command::new("node");
    taking.arg(folder.join("test/picture.mjs")).arg(PICTURED);
    taking.env("TIDEGATE_BIN", root.join("target/release/tidegate"));
    run(taking.env("TIDEGATE_SCREENSHOTS", root.join("docs/images")))
}
