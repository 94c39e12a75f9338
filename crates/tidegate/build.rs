//! Tells the program which commit it is built from.
//!
//! `TIDEGATE_COMMIT` if it is set, as where sources come without their history; else what git says, for release
//! builds. Others say "development": they are built from what is in the folder, and not anew for each commit.
//!
//! The program reads it as `BUILD_COMMIT`. Not under the name of a setting: `cargo run` leaves the variable in the program's
//! environment, which warns of settings that there are not.
#![allow(clippy::print_stdout, reason = "it is how a build script speaks to cargo")]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let given = std::env::var("TIDEGATE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = match given {
        Some(commit) => commit,
        None if is_release => {
            // Both change with every commit and checkout.
            for file in ["HEAD", "logs/HEAD"] {
                if let Some(path) = git(&["--git-path", file]).filter(|path| Path::new(path).exists()) {
                    println!("cargo::rerun-if-changed={path}");
                }
            }
            git(&["--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
        }
        None => "development".to_owned(),
    };
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
}

fn git(question: &[&str]) -> Option<String> {
    let said = Command::new("git").arg("rev-parse").args(question).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| text.trim().to_owned())
}
