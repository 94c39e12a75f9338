//! The test programs of the workspace, as cargo builds them, and the parts in which they are run.
//!
//! A crate has one program of integration tests (`tests/it/main.rs`), since each further one links most of the workspace
//! again. It is run in parts, a module of its root in a process of its own: a part has its own descriptors and memory, a
//! name of its own in what is printed, and runs beside others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::chore::{as_from_a_shell, capture, cargo};

/// Parts that measure time or compute for minutes: a pause is what they would report.
pub(crate) const TIMED: &[&str] = &[
    "differential",
    "exactness",
    "judge",
    "laboratory",
    "load",
    "load_truth",
    "saturate",
    "server_closes",
    "services",
    "sliding_counter_error",
    "stub_truth",
];

/// Crates with sockets, stores or processes: their tests wait for what other threads and programs do.
pub(crate) const WAITING: &[&str] = &[
    "admin", "control", "edge", "gateway", "intake", "kafka", "limiter", "log", "net", "postgres", "store",
    "tidegate", "upstream",
];

/// A test program, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// `net/fault_32_malformed`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// The crate's folder, in which cargo runs it.
    pub(crate) folder: PathBuf,
    /// The names of its tests; all of the program if there is none.
    pub(crate) tests: Vec<String>,
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
        if !self.tests.is_empty() {
            command.arg("--exact").args(&self.tests);
        }
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// `net` and `fault_32_malformed`.
    pub(crate) fn crate_and_test(&self) -> (&str, &str) {
        self.name.split_once('/').unwrap_or((&self.name, ""))
    }

    /// Its modules, each a part; itself if it has none. What stands in its root keeps its name.
    ///
    /// # Errors
    /// When it does not list its tests.
    fn parts(self) -> anyhow::Result<Vec<Self>> {
        let listed = capture(self.command().args(["--list", "--format", "terse"]))?;
        let (krate, _) = self.crate_and_test();
        let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
            let name =
                test.split_once("::").map_or(self.name.clone(), |(module, _)| format!("{krate}/{module}"));
            parts.entry(name).or_default().push(test.to_owned());
        }
        Ok(parts.into_iter().map(|(name, tests)| Self { name, tests, ..self.clone() }).collect())
    }
}

/// What builds tests and prints what [`built`] reads: of the crate in this folder, or of the whole workspace.
///
/// One crate alone can have dependencies with fewer features, which are built once more; after that, a change of the
/// crate builds none of those that use it.
pub(crate) fn build(root: &Path, krate: Option<&str>) -> Command {
    let mut build = cargo();
    build.args(["test", "--no-run", "--locked", "--message-format", "json-render-diagnostics"]);
    match krate {
        None => build.arg("--workspace"),
        Some(program @ ("tidegate" | "xtask")) => build.args(["--package", program]),
        Some(library) => build.args(["--package", &format!("tidegate-{library}")]),
    };
    build.current_dir(root);
    build
}

/// What cargo prints of each thing that it has built; other lines have no executable.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: TestTarget,
    profile: BuildProfile,
    executable: Option<PathBuf>,
}

/// A test, a library or a program of a crate.
#[derive(Deserialize)]
struct TestTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct BuildProfile {
    test: bool,
}

/// The parts of the test programs that cargo printed; a crate goes by its folder's name.
///
/// # Errors
/// When there is none, or a program does not list its tests.
pub(crate) fn built(printed: &str) -> anyhow::Result<Vec<Binary>> {
    let mut parts = Vec::new();
    for (binary, is_library) in programs(printed)? {
        if is_library { parts.push(binary) } else { parts.extend(binary.parts()?) }
    }
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(parts)
}

/// The parts of `crate`, or the one of `crate/module`, built for that.
///
/// # Errors
/// When it cannot be built, or there is no such part.
pub(crate) fn named(root: &Path, name: &str) -> anyhow::Result<Vec<Binary>> {
    let (krate, test) = name.split_once('/').unwrap_or((name, ""));
    let mut build = build(root, Some(krate));
    let mut parts = built(&capture(if test == "lib" { build.arg("--lib") } else { build.arg("--tests") })?)?;
    parts.retain(|part| test.is_empty() || part.name == name);
    if parts.is_empty() {
        bail!("there is no test {name}");
    }
    Ok(parts)
}

/// The test programs that cargo printed, and whether each is a crate's unit tests.
fn programs(printed: &str) -> anyhow::Result<Vec<(Binary, bool)>> {
    let artifacts = printed.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut binaries = Vec::new();
    for artifact in artifacts.filter(|artifact| artifact.profile.test) {
        let folder = artifact.manifest_path.parent().context("a manifest stands in a folder")?;
        let krate = folder.file_name().context("a crate's folder has a name")?.display().to_string();
        let Some(program) = artifact.executable else { continue };
        let is_integration_test = artifact.target.kind.iter().any(|kind| kind == "test");
        let is_library = artifact.target.kind.iter().any(|kind| kind == "lib");
        let test = if is_library { "lib" } else { artifact.target.name.as_str() };
        let name = format!("{krate}/{test}");
        let binary = Binary { name, program, folder: folder.to_path_buf(), tests: Vec::new() };
        binaries.push((binary, !is_integration_test));
    }
    if binaries.is_empty() {
        bail!("there is no such test");
    }
    Ok(binaries)
}

/// A script that runs in the place of a test binary.
#[cfg(test)]
pub(crate) fn script(name: &str, script: &str, folder: &Path) -> Binary {
    let program = folder.join(name.replace('/', "-"));
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    Binary { name: name.to_owned(), program, folder: folder.to_path_buf(), tests: Vec::new() }
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
        let found = programs(&printed.concat()).unwrap();
        let found: Vec<_> = found.iter().map(|(binary, is_unit)| (binary.name.as_str(), *is_unit)).collect();
        assert_eq!(found, [("store/redis", false), ("store/lib", true)]);
        assert!(programs(&printed[2]).is_err());
    }

    #[test]
    fn a_module_of_the_root_is_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let list = "echo 'redis::faults::a: test'; echo 'redis::b: test'; echo 'alone: test'; echo 'memory::c: test'";
        let parts = script("store/it", list, folder.path()).parts().unwrap();
        let parts: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.tests.join(" "))).collect();
        let expected = [
            ("store/it", "alone".to_owned()),
            ("store/memory", "memory::c".to_owned()),
            ("store/redis", "redis::faults::a redis::b".to_owned()),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_part_runs_its_own_tests_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut part = script("store/redis", "echo \"$@\"", folder.path());
        part.tests = vec!["redis::a".to_owned(), "redis::b".to_owned()];
        assert_eq!(capture(&mut part.command()).unwrap(), "--exact redis::a redis::b\n");
    }
}
