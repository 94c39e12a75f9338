//! The Java clients, by Maven.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::{binary, empty, packages};
use crate::chore::{capture, find, run};
use crate::dist;

/// Maven, in a folder of the Java clients.
fn maven(root: &Path, folder: &str) -> anyhow::Result<Command> {
    if find("mvn").is_none() {
        bail!("Maven is not installed: `cargo xtask setup` installs it");
    }
    let mut command = Command::new("mvn");
    command.args(["--batch-mode", "--no-transfer-progress", "--quiet"]).current_dir(root.join(folder));
    Ok(command)
}

/// The formatter runs before the compiler, which takes warnings for errors.
pub(super) fn lint(root: &Path) -> anyhow::Result<()> {
    run(maven(root, "clients/java")?.arg("test-compile"))
}

/// The jars with their sources and documentation, in a folder that is a Maven repository, and in this user's.
fn deploy(root: &Path) -> anyhow::Result<Command> {
    let packed = packages(root, "java");
    empty(&packed)?;
    let mut command = maven(root, "clients/java")?;
    command.arg("deploy").arg(format!("-DaltDeploymentRepository=packed::file://{}", packed.display()));
    Ok(command)
}

pub(super) fn pack(root: &Path) -> anyhow::Result<()> {
    run(deploy(root)?.arg("-DskipTests"))?;
    date_metadata(&packages(root, "java"), &dist::date(root, "+%Y%m%d%H%M%S")?)
}

/// Has Maven's lists of versions say another time than that of the build, so that the same sources give the same bytes. All else
/// has the time of `project.build.outputTimestamp`.
fn date_metadata(folder: &Path, date: &str) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            date_metadata(&path, date)?;
        } else if path.ends_with("maven-metadata.xml") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            std::fs::write(&path, dated(&text, date).with_context(|| path.display().to_string())?)?;
            for kind in ["md5", "sha1"] {
                let sum = capture(Command::new(format!("{kind}sum")).arg(&path))?;
                let sum = sum.split_whitespace().next().context("a sum")?;
                std::fs::write(path.with_extension(format!("xml.{kind}")), sum)?;
            }
        }
    }
    Ok(())
}

/// A list of versions with another time.
fn dated(metadata: &str, date: &str) -> Option<String> {
    let (before, rest) = metadata.split_once("<lastUpdated>")?;
    let (_, after) = rest.split_once("</lastUpdated>")?;
    Some(format!("{before}<lastUpdated>{date}</lastUpdated>{after}"))
}

/// The tests, and a project that takes the packages as a user would.
pub(super) fn test(root: &Path) -> anyhow::Result<()> {
    run(deploy(root)?.env("TIDEGATE_BIN", binary(root)))?;
    run(maven(root, "clients/java/example")?.arg("test").env("TIDEGATE_BIN", binary(root)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_versions_have_the_time_that_they_are_given_and_sums_of_that() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("io/github/maven-metadata.xml");
        std::fs::create_dir_all(list.parent().unwrap()).unwrap();
        let text = |date: &str| format!("<metadata>\n  <lastUpdated>{date}</lastUpdated>\n</metadata>\n");
        std::fs::write(&list, text("20261128090000")).unwrap();
        date_metadata(folder.path(), "20260101000000").unwrap();
        assert_eq!(std::fs::read_to_string(&list).unwrap(), text("20260101000000"));
        let sum = std::fs::read_to_string(list.with_extension("xml.sha1")).unwrap();
        assert_eq!(capture(Command::new("sha1sum").arg(&list)).unwrap().split_once(' ').unwrap().0, sum);
        std::fs::write(&list, "<metadata/>").unwrap();
        assert!(date_metadata(folder.path(), "20260101000000").is_err());
    }
}
