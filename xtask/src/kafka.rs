//! Kafka for the tests of forwarding: its jars from Maven Central, into `.tools/kafka`.
//!
//! `xtask/kafka/pom.xml` names the version, and so those of all that it needs; each file is compared with
//! `xtask/kafka/sha256sums`, and there are no others. Another version of Kafka brings another list:
//! `cd .tools/kafka && sha256sum *.jar`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::run;

const LIST: &str = "sha256sums";

/// Fetches the jars, once per list of them.
///
/// # Errors
/// When they cannot be fetched, or are not those of the list.
pub(crate) fn kafka(root: &Path) -> anyhow::Result<()> {
    let (folder, jars) = (root.join("xtask/kafka"), root.join(".tools/kafka"));
    let wanted = fs::read_to_string(folder.join(LIST)).context("xtask/kafka/sha256sums")?;
    let stamp = jars.join(LIST);
    if fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        return Ok(());
    }
    if jars.exists() {
        fs::remove_dir_all(&jars).with_context(|| jars.display().to_string())?;
    }
    run(Command::new("mvn")
        .args(["--quiet", "--batch-mode", "--strict-checksums", "--file"])
        .arg(folder.join("pom.xml"))
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", jars.display())))?;
    let files = fs::read_dir(&jars).with_context(|| jars.display().to_string())?.count();
    let listed = wanted.lines().count();
    if files != listed {
        bail!("{} has {files} files, and xtask/kafka/{LIST} {listed}", jars.display());
    }
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet"])
        .arg(folder.join(LIST))
        .current_dir(&jars))?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}
