//! The test binaries of the workspace, as cargo builds them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::chore::{as_from_a_shell, cargo};

/// Tests that measure time or compute for minutes: a pause is what they would report.
pub(crate) const TIMED: &[&str] = &[
    "differential",
    "exactness",
    "judge",
    "laboratory",
    "load",
    "load_truth",
    "saturate",
    "sliding_counter_error",
    "stub_truth",
];

/// Crates with sockets, stores or processes: their tests wait for what other threads and programs do.
pub(crate) const WAITING: &[&str] = &[
    "admin", "control", "edge", "gateway", "intake", "limiter", "log", "net", "postgres", "store",
    "tidegate", "upstream",
];

/// A test binary, as cargo has built it.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// `net/fault_32_malformed`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// The crate's folder, in which cargo runs it.
    pub(crate) folder: PathBuf,
}

impl Binary {
    /// What runs it as cargo would.
    pub(crate) fn command(&self) -> Command {
        self.prepared(Command::new(&self.program))
    }

    /// The same for a program that is given it to run, and has its other arguments.
    pub(crate) fn command_under(&self, mut other: Command) -> Command {
        other.arg(&self.program);
        self.prepared(other)
    }

    fn prepared(&self, command: Command) -> Command {
        let mut command = as_from_a_shell(command);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// What builds tests and prints what [`built`] reads. Always of the whole workspace: one package alone has other
/// features, so that all it needs would be built anew.
pub(crate) fn build(root: &Path) -> Command {
    let mut build = cargo();
    build.args([
        "test",
        "--no-run",
        "--workspace",
        "--locked",
        "--message-format",
        "json-render-diagnostics",
    ]);
    build.current_dir(root);
    build
}

/// What cargo prints of each thing that it has built; other lines have no executable.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

/// A test, a library or a program of a crate.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Target {
    /// Whether it is a file of `tests/`.
    pub(crate) fn is_integration_test(&self) -> bool {
        self.kind.iter().any(|kind| kind == "test")
    }
}

/// The test binaries that are `wanted` of those that cargo printed; a crate goes by its folder's name.
///
/// # Errors
/// When there is none.
pub(crate) fn built(printed: &str, wanted: impl Fn((&str, &Target)) -> bool) -> anyhow::Result<Vec<Binary>> {
    let artifacts = printed.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut binaries = Vec::new();
    for artifact in artifacts.filter(|artifact| artifact.profile.test) {
        let folder = artifact.manifest_path.parent().context("a manifest stands in a folder")?;
        let krate = folder.file_name().context("a crate's folder has a name")?.display().to_string();
        let Some(program) = artifact.executable.filter(|_| wanted((&krate, &artifact.target))) else {
            continue;
        };
        let is_library = artifact.target.kind.iter().any(|kind| kind == "lib");
        let test = if is_library { "lib" } else { artifact.target.name.as_str() };
        binaries.push(Binary { name: format!("{krate}/{test}"), program, folder: folder.to_path_buf() });
    }
    if binaries.is_empty() {
        bail!("there is no such test");
    }
    binaries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(binaries)
}

/// A script that runs in the place of a test binary.
#[cfg(test)]
pub(crate) fn script(name: &str, script: &str, folder: &Path) -> Binary {
    let program = folder.join(name.replace('/', "-"));
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    Binary { name: name.to_owned(), program, folder: folder.to_path_buf() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_read_from_what_cargo_prints() {
        let line = |krate: &str, name: &str, kind: &str, test: bool, executable: &str| {
            format!(
                "{{\"manifest_path\":\"/r/crates/{krate}/Cargo.toml\",\"profile\":{{\"test\":{test}}},\
                 \"target\":{{\"name\":\"{name}\",\"kind\":[\"{kind}\"]}},\"executable\":{executable}}}\n"
            )
        };
        let printed = [
            line("store", "redis", "test", true, "\"/t/redis-1\""),
            line("store", "tidegate_store", "lib", true, "\"/t/store-2\""),
            line("store", "tidegate_store", "lib", false, "null"),
            line("tidegate", "tidegate", "bin", false, "\"/t/tidegate\""),
            "{\"reason\":\"build-finished\",\"success\":true}\n".to_owned(),
        ];
        let names = |wanted: fn((&str, &Target)) -> bool| -> Vec<String> {
            let found = built(&printed.concat(), wanted).unwrap();
            found.into_iter().map(|binary| binary.name).collect()
        };
        assert_eq!(names(|_| true), ["store/lib", "store/redis"]);
        assert_eq!(names(|(_, target)| target.is_integration_test()), ["store/redis"]);
        assert!(built(&printed.concat(), |_| false).is_err());
    }
}
