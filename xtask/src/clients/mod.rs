//! `cargo xtask clients [language] [--lint|--pack|--build]`: the client libraries of `clients/`, checked as their users get them.
//!
//! ```text
//!   --lint   formatter, linter and types of each language
//!   --pack   packages built, into target/dist/clients/, all of them as one file as well: a part of `make dist`
//!   --build  what is committed of what is built: clients/javascript/dist, for users that install that folder
//!   else     packages built -> installed from their files into target/clients/ -> tests against the real binary
//! ```
//!
//! Packages are what registries would take, since none of them is on one yet: wheel and source distribution, npm's tarball,
//! a folder that is a module proxy of Go, and one that is a Maven repository with sources and javadoc.
//!
//! Several languages run at once, each in a process of its own, since they mostly wait; one that does not end is killed with all
//! that it started, as a test is (`test_part.rs`). What one prints is shown when it has ended, with its seconds; all are run to
//! their end, whichever fails. Tests of one that failed run once more, alone, as `cargo xtask test` does. What passes then is said.
//!
//! The tests start `TIDEGATE_BIN`, or `target/debug/tidegate`, which `cargo test --workspace` has built.

mod java;
mod javascript;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::chore::{capture, run};
use crate::test_part::{LONGEST, bounded};
use crate::{dist, go};

/// The linter of the Go clients; Go takes it through its module proxy.
const STATICCHECK: &str = "honnef.co/go/tools/cmd/staticcheck@v0.8.2";

/// A client library.
struct Language {
    /// Its folder in `clients/`.
    name: &'static str,
    lint: PackageStep,
    /// Puts packages into [`packages`].
    pack: PackageStep,
    test: PackageStep,
}

/// What is done to a client of the repository in this folder.
type PackageStep = fn(&Path) -> anyhow::Result<()>;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Lint,
    Pack,
    Test,
}

impl Language {
    fn step(&self, task: Task) -> PackageStep {
        match task {
            Task::Lint => self.lint,
            Task::Pack => self.pack,
            Task::Test => self.test,
        }
    }
}

/// Where packages are put: a folder for each language.
fn packages(root: &Path, language: &str) -> PathBuf {
    root.join("target/dist/clients").join(language)
}

const LANGUAGES: &[Language] = &[
    Language { name: "python", lint: lint_python, pack: pack_python, test: test_python },
    Language { name: "javascript", lint: javascript::lint, pack: javascript::pack, test: javascript::test },
    Language { name: "go", lint: lint_go, pack: pack_go, test: test_go },
    Language { name: "java", lint: java::lint, pack: java::pack, test: java::test },
];

/// Checks the language named, or all.
///
/// # Errors
/// When a check or test fails, or there is no such language.
pub(crate) fn clients(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let named: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let task = match (has("--lint"), has("--pack"), has("--build")) {
        (true, false, false) => Task::Lint,
        (false, true, false) => Task::Pack,
        (false, false, true) if named.iter().all(|name| name.as_str() == "javascript") => {
            return javascript::build(root);
        }
        (false, false, true) => {
            bail!("--build is for the JavaScript client: nothing of the others is committed")
        }
        (false, false, false) => Task::Test,
        _ => bail!("--lint, --pack and --build are three things"),
    };
    let chosen: Vec<&Language> = LANGUAGES
        .iter()
        .filter(|language| named.is_empty() || named.iter().any(|name| *name == language.name))
        .collect();
    if chosen.len() < named.len().max(1) {
        let names: Vec<&str> = LANGUAGES.iter().map(|language| language.name).collect();
        bail!("no such client; there are {}", names.join(", "));
    }
    if task == Task::Test {
        let binary = binary(root);
        if !binary.is_file() {
            bail!(
                "there is no {}: `cargo test --workspace` builds it, TIDEGATE_BIN names another",
                binary.display()
            );
        }
    }
    match chosen.as_slice() {
        [language] => {
            (language.step(task))(root).with_context(|| format!("the client in clients/{}", language.name))
        }
        several => {
            at_once(root, several, task)?;
            if task == Task::Pack { dist::clients(root) } else { Ok(()) }
        }
    }
}

/// Packs all languages in this process, for a repository that may be another than this program's.
///
/// # Errors
/// When one cannot be packed.
pub(crate) fn pack(root: &Path) -> anyhow::Result<()> {
    for language in LANGUAGES {
        (language.pack)(root).with_context(|| format!("the client in clients/{}", language.name))?;
    }
    dist::clients(root)
}

/// Runs each language in a process of its own.
#[expect(clippy::disallowed_methods, reason = "xtask is not the service: what it measures is no simulation")]
fn at_once(root: &Path, languages: &[&Language], task: Task) -> anyhow::Result<()> {
    let began = Instant::now();
    // Also where a build has put another program in the place of this one since it began.
    let this = format!("/proc/{}/exe", std::process::id());
    let flag = match task {
        Task::Lint => Some("--lint"),
        Task::Pack => Some("--pack"),
        Task::Test => None,
    };
    let one = |language: &Language| {
        let arguments = ["clients", language.name].into_iter().chain(flag);
        let mut bounded = bounded(LONGEST);
        let ended = bounded.arg(&this).args(arguments).current_dir(root).stdin(Stdio::null()).output();
        let seconds = began.elapsed().as_secs();
        let good = ended.as_ref().is_ok_and(|output| output.status.success());
        match ended {
            Ok(output) => println!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => println!("{}: {error}", language.name),
        }
        println!("clients/{}: {seconds} s, {}", language.name, if good { "good" } else { "FAILED" });
        good
    };
    let failed: Vec<&Language> = std::thread::scope(|scope| {
        let running = languages.iter().map(|language| (*language, scope.spawn(|| one(language))));
        let running: Vec<_> = running.collect();
        let failed = running
            .into_iter()
            .filter_map(|(language, run)| (!run.join().unwrap_or(false)).then_some(language));
        failed.collect()
    });
    println!("clients: {} s", began.elapsed().as_secs());
    let failed = if task == Task::Test { failed_twice(&failed, one) } else { failed };
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = failed.iter().map(|language| language.name).collect();
    bail!("the clients in clients/ of {}", names.join(", "))
}

/// Those of the languages that failed which fail alone, too.
fn failed_twice<'a>(failed: &[&'a Language], one: impl Fn(&Language) -> bool) -> Vec<&'a Language> {
    let fails_again = |language: &&&Language| {
        let passes = one(language);
        if passes {
            println!("passed at the second try: clients/{}", language.name);
        }
        !passes
    };
    failed.iter().filter(fails_again).copied().collect()
}

fn binary(root: &Path) -> PathBuf {
    std::env::var_os("TIDEGATE_BIN").map_or_else(|| root.join("target/debug/tidegate"), PathBuf::from)
}

/// A program of `.venv`, to be run in the Python client's folder.
fn python(root: &Path, program: &str) -> Command {
    let mut command = Command::new(root.join(".venv/bin").join(program));
    command.current_dir(root.join("clients/python"));
    command
}

fn lint_python(root: &Path) -> anyhow::Result<()> {
    run(python(root, "ruff").args(["format", "--check", ".", "../faulty.py"]))?;
    run(python(root, "ruff").args(["check", "."]))?;
    run(&mut python(root, "mypy"))
}

/// The source distribution, and from it the wheel: both are known to be whole.
fn pack_python(root: &Path) -> anyhow::Result<()> {
    let packed = packages(root, "python");
    empty(&packed)?;
    run(python(root, "python").args(["-m", "build", "--no-isolation", "--outdir"]).arg(&packed))
}

fn test_python(root: &Path) -> anyhow::Result<()> {
    pack_python(root)?;
    let installed = root.join("target/clients/python/installed");
    empty(&installed)?;
    run(python(root, "pip")
        .args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target"])
        .arg(&installed)
        .arg(one_file(&packages(root, "python"), ".whl")?))?;
    run(python(root, "pytest").env("PYTHONPATH", &installed).env("TIDEGATE_BIN", binary(root)))
}

/// Calls `step` with a command of Go for each module below `clients/go`.
fn for_each_go_module(root: &Path, step: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut folders = vec![root.join("clients/go")];
    while let Some(folder) = folders.pop() {
        if folder.join("go.mod").is_file() {
            step(&folder)?;
        }
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

fn lint_go(root: &Path) -> anyhow::Result<()> {
    let unformatted = capture(go::program(root, "gofmt").arg("-l").arg(root.join("clients/go")))?;
    if !unformatted.trim().is_empty() {
        bail!("not formatted: gofmt -w {}", unformatted.trim().replace('\n', " "));
    }
    for_each_go_module(root, |folder| {
        run(go::program(root, "go").args(["vet", "./..."]).current_dir(folder))?;
        run(go::program(root, "go").args(["run", STATICCHECK, "./..."]).current_dir(folder))
    })
}

/// Each module as `go get` downloads it, in a folder that is a module proxy.
fn pack_go(root: &Path) -> anyhow::Result<()> {
    let packed = packages(root, "go");
    empty(&packed)?;
    let pack = ["run", "./internal/modules/pack"];
    run(go::program(root, "go").args(pack).arg(&packed).current_dir(root.join("clients/go")))
}

fn test_go(root: &Path) -> anyhow::Result<()> {
    pack_go(root)?;
    for_each_go_module(root, |folder| {
        let mut go = go::program(root, "go");
        // What was tested before is tested again: Go does not see that the binary or the document has changed.
        go.args(["test", "-count=1", "./..."]);
        if folder == root.join("clients/go") {
            // What runs at the same time is in this module. The detector of races is in C.
            go.arg("-race").env("CGO_ENABLED", "1");
        }
        run(go
            .env("TIDEGATE_BIN", binary(root))
            .env("TIDEGATE_MODULES", packages(root, "go"))
            .current_dir(folder))
    })
}

/// An empty folder, made anew.
fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// The files of a folder whose names end so.
fn files(folder: &Path, ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    Ok(found)
}

/// The one file of a folder whose name ends so.
fn one_file(folder: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    match <[PathBuf; 1]>::try_from(files(folder, ending)?) {
        Ok([file]) => Ok(file),
        Err(others) => bail!("{} has {} files {ending}, not one", folder.display(), others.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_alone_too_has_failed() {
        let failed: Vec<&Language> = LANGUAGES.iter().collect();
        let again = failed_twice(&failed, |language| language.name != "go");
        assert_eq!(again.iter().map(|language| language.name).collect::<Vec<_>>(), ["go"]);
    }

    #[test]
    fn an_unknown_client_lists_the_known_ones() {
        let failure = clients(Path::new("."), &["cobol".to_owned()]).unwrap_err().to_string();
        assert!(failure.starts_with("no such client; there are python, "), "{failure}");
    }

    #[test]
    fn every_client_of_the_repository_is_checked() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for entry in std::fs::read_dir(root.join("clients")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let known = LANGUAGES.iter().any(|language| language.name == name);
            assert!(known || !path.is_dir(), "`cargo xtask clients` does not know clients/{name}");
        }
    }
}
