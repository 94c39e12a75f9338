//! The program as packages of pip and npm, for users that have these and no right to install anything else.
//!
//! ```text
//!   tidegate_server-VERSION-py3-none-manylinux_GLIBC_ARCHITECTURE.whl   tidegate among the environment's programs, `python -m tidegate_server`
//!   tidegate-server-VERSION-linux-ARCHITECTURE.tgz                      tidegate in `node_modules/.bin`
//! ```
//!
//! Both have the binary itself as the program that is found on the PATH: nothing is between it and its signals. pip takes the wheel
//! where glibc is as new as its name says, npm the tarball on Linux with glibc and this processor; both refuse it elsewhere.
//! Neither asks a registry for anything
//! ([decision 0412](../../../docs/decisions/0412-the-program-in-one-package-of-pip-and-one-of-npm.md)).

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;

use super::glibc::Glibc;
use super::{Dist, archive, tree};
use crate::chore::run;

/// What both are called. `tidegate` is the client, in both registries' words.
const NAME: &str = "tidegate-server";
const SUMMARY: &str = "The program Tidegate: rate-limit service, API gateway, TCP edge and metrics intake.";
/// What is beside the binary in both.
const WORDS: [&str; 2] = ["LICENSE", "NOTICE"];
/// What both registries would show.
const PAGE: &str = "deploy/package/registry.md";

/// Makes both.
///
/// # Errors
/// When there are no names for this processor, or Python or tar refuses.
pub(super) fn build(dist: &Dist, binary: &Path, glibc: Glibc) -> anyhow::Result<()> {
    let program = fs::read(binary).with_context(|| binary.display().to_string())?;
    let source = dist.source(PAGE);
    let page = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
    wheel(dist, &program, &page, glibc)?;
    tarball(dist, &program, &page)
}

/// Puts `LICENSE` and `NOTICE` into a folder.
fn put_words(dist: &Dist, staged: &Path, folder: &str) -> anyhow::Result<()> {
    for name in WORDS {
        let source = if name == "NOTICE" { dist.to.join(name) } else { dist.source(name) };
        let bytes = fs::read(&source).with_context(|| source.display().to_string())?;
        tree::put(staged, &format!("{folder}/{name}"), &bytes, 0o644)?;
    }
    Ok(())
}

fn wheel(dist: &Dist, program: &[u8], page: &str, glibc: Glibc) -> anyhow::Result<()> {
    let (version, staged) = (&dist.version, dist.to.join("wheel"));
    let Glibc { major, minor } = glibc;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{}", std::env::consts::ARCH);
    let package = format!("tidegate_server-{version}");
    tree::put(&staged, &format!("{package}.data/scripts/tidegate"), program, 0o755)?;
    for module in ["__init__.py", "__main__.py"] {
        let source = dist.source("deploy/package/tidegate_server").join(module);
        let bytes = fs::read(&source).with_context(|| source.display().to_string())?;
        tree::put(&staged, &format!("tidegate_server/{module}"), &bytes, 0o644)?;
    }
    let records = format!("{package}.dist-info");
    let metadata = format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: Apache-2.0\n\
         License-File: LICENSE\nLicense-File: NOTICE\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{page}"
    );
    let kind =
        format!("Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n");
    tree::put(&staged, &format!("{records}/METADATA"), metadata.as_bytes(), 0o644)?;
    tree::put(&staged, &format!("{records}/WHEEL"), kind.as_bytes(), 0o644)?;
    put_words(dist, &staged, &format!("{records}/licenses"))?;
    let mut python = dist.command("python3");
    python.arg(dist.source("xtask/src/dist/wheel.py")).arg(&staged);
    python.arg(dist.to.join(format!("{package}-{tag}.whl"))).arg(dist.epoch.to_string());
    run(python.arg(if dist.is_quick { "1" } else { "9" }))?;
    fs::remove_dir_all(&staged).context("wheel/")
}

fn tarball(dist: &Dist, program: &[u8], page: &str) -> anyhow::Result<()> {
    let (version, staged) = (&dist.version, dist.to.join("npm"));
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("what does npm call {other}?"),
    };
    let package = json!({
        "name": NAME, "version": version, "description": SUMMARY, "license": "Apache-2.0",
        "os": ["linux"], "cpu": [architecture], "libc": ["glibc"], "bin": { "tidegate": "bin/tidegate" },
    });
    tree::put(&staged, "package/bin/tidegate", program, 0o755)?;
    tree::put(&staged, "package/package.json", format!("{package:#}\n").as_bytes(), 0o644)?;
    tree::put(&staged, "package/README.md", page.as_bytes(), 0o644)?;
    put_words(dist, &staged, "package")?;
    let file = dist.to.join(format!("{NAME}-{version}-linux-{architecture}.tgz"));
    archive::compressed(dist, &staged, "package", &file)?;
    fs::remove_dir_all(&staged).context("npm/")
}
