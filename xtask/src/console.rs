//! `cargo xtask console [--lint]`: builds `console/dist`, which the binary embeds, or checks the sources of it.
//!
//! What is built is committed, so that nobody needs Node to build the binary; a test of the binary sees that it is of
//! the sources beside it.

use std::path::Path;
use std::process::Command;

use crate::chore::run;

/// Builds the console; with `--lint`, checks its formatting, its types and what the linter knows, and builds nothing.
///
/// # Errors
/// When a check fails, or what is needed is not installed.
pub(crate) fn console(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let folder = root.join("console");
    let npm = |program: &str| Command::new(root.join(".npm/node_modules/.bin").join(program));
    if !arguments.iter().any(|argument| argument == "--lint") {
        return run(Command::new("node").arg(folder.join("build.mjs")));
    }
    run(npm("biome").arg("check").current_dir(&folder))?;
    // The compiler looks for packages beside the sources.
    run(Command::new("node").arg(folder.join("build.mjs")).arg(root.join("target/console")))?;
    run(npm("tsc").args(["--project", "tsconfig.json"]).current_dir(&folder))
}
