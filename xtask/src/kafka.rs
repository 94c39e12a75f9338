//! Kafka for the tests of forwarding: its jars from Maven Central, into `.tools/kafka`.
//!
//! `xtask/kafka/pom.xml` names the version, and so those of all that it needs; each file of `xtask/kafka/sha256sums` has to be there as
//! listed. More files are no mistake. Another version of Kafka brings another list: `cd .tools/kafka && sha256sum *.jar`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::run;

const LIST: &str = "sha256sums";

/// Fetches the jars, unless those of the list are there.
///
/// # Errors
/// When they cannot be fetched, or are not those of the list.
pub(crate) fn kafka(root: &Path) -> anyhow::Result<()> {
    let (folder, jars) = (root.join("xtask/kafka"), root.join(".tools/kafka"));
    let list = folder.join(LIST);
    if are_listed(&list, &jars).is_ok() {
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
    are_listed(&list, &jars)
}

/// Whether each file of the list is in the folder, as listed.
///
/// # Errors
/// When one is missing or another, with what to run by hand.
fn are_listed(list: &Path, jars: &Path) -> anyhow::Result<()> {
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "--quiet"]).arg(list).current_dir(jars);
    let checked = check.output().with_context(|| jars.display().to_string())?;
    if !checked.status.success() {
        let wrong = String::from_utf8_lossy(&checked.stdout).trim().replace('\n', ", ");
        bail!("rm -r {} (not as in {}: {wrong})", jars.display(), list.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chore::capture;

    #[test]
    fn there_may_be_more_jars_and_no_other_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (list, jars) = (folder.path().join(LIST), folder.path().join("jars"));
        assert!(are_listed(&list, &jars).is_err(), "nothing is there");
        fs::create_dir(&jars).unwrap();
        fs::write(jars.join("kafka-4.1.2.jar"), "kafka").unwrap();
        fs::write(
            &list,
            capture(Command::new("sha256sum").arg("kafka-4.1.2.jar").current_dir(&jars)).unwrap(),
        )
        .unwrap();
        are_listed(&list, &jars).unwrap();
        fs::write(jars.join("slf4j-2.0.1.jar"), "more").unwrap();
        are_listed(&list, &jars).unwrap();
        fs::write(jars.join("kafka-4.1.2.jar"), "another").unwrap();
        let refused = are_listed(&list, &jars).unwrap_err().to_string();
        assert!(refused.starts_with("rm -r ") && refused.contains("kafka-4.1.2.jar: FAILED"), "{refused}");
        fs::rename(jars.join("kafka-4.1.2.jar"), jars.join("kafka-4.1.3.jar")).unwrap();
        let refused = are_listed(&list, &jars).unwrap_err().to_string();
        assert!(refused.contains("kafka-4.1.2.jar: FAILED open or read"), "{refused}");
    }
}
