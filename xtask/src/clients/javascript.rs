//! The JavaScript client. What its sources are compiled to is committed (`clients/javascript/dist`), as the console's is: `npm
//! install` of that folder then needs no compiler. Linting compiles once more and compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::{binary, empty, files, one_file, packages};
use crate::chore::{capture, run};

/// What is committed of what is built.
const BUILT: &str = "clients/javascript/dist";

/// A program of `.npm`.
fn npm_program(root: &Path, program: &str) -> Command {
    Command::new(root.join(".npm/node_modules/.bin").join(program))
}

fn npm(folder: &Path) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(folder);
    command
}

/// Formatter and linter, the compiler, and whether what is committed is what it gives.
pub(super) fn lint(root: &Path) -> anyhow::Result<()> {
    run(npm_program(root, "biome").arg("check").current_dir(root.join("clients/javascript")))?;
    let package = compiled(root)?;
    let differing = differing(&package.join("dist"), &root.join(BUILT))?;
    if !differing.is_empty() {
        bail!(
            "{BUILT} is not of these sources ({}): `cargo xtask clients javascript --build`",
            differing.join(", ")
        );
    }
    Ok(())
}

/// Writes what is committed anew.
pub(super) fn build(root: &Path) -> anyhow::Result<()> {
    let package = compiled(root)?;
    let built = root.join(BUILT);
    if built.exists() {
        fs::remove_dir_all(&built).with_context(|| BUILT.to_owned())?;
    }
    run(Command::new("cp").arg("-r").arg(package.join("dist")).arg(&built))
}

/// A copy of the folder, compiled from its sources.
fn compiled(root: &Path) -> anyhow::Result<PathBuf> {
    let place = root.join("target/clients/javascript");
    empty(&place)?;
    // What neither the package nor the tests bring along is found here, as in a parent's node_modules.
    std::os::unix::fs::symlink(root.join(".npm/node_modules"), place.join("node_modules"))?;
    let package = place.join("package");
    run(Command::new("cp").arg("-r").arg(root.join("clients/javascript")).arg(&package))?;
    empty(&package.join("dist"))?;
    run(npm(&package).args(["run", "--silent", "build"]))?;
    Ok(package)
}

/// Files that are not the same in two folders.
fn differing(one: &Path, other: &Path) -> anyhow::Result<Vec<String>> {
    let sums = |folder: &Path| {
        let sums = "find . -type f | sort | xargs -r sha256sum";
        capture(Command::new("sh").args(["-c", sums]).current_dir(folder))
            .with_context(|| folder.display().to_string())
    };
    let (one, other) = (sums(one)?, sums(other)?);
    let lacks = |all: &str, line: &str| all.lines().all(|known| known != line);
    let of_one = one.lines().filter(|line| lacks(&other, line));
    let of_other = other.lines().filter(|line| lacks(&one, line));
    let names = of_one.chain(of_other).filter_map(|line| Some(line.split_once("./")?.1.to_owned()));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    Ok(names)
}

pub(super) fn pack(root: &Path) -> anyhow::Result<()> {
    let packed = packages(root, "javascript");
    empty(&packed)?;
    run(npm(&compiled(root)?).args(["pack", "--silent", "--pack-destination"]).arg(&packed))
}

pub(super) fn test(root: &Path) -> anyhow::Result<()> {
    pack(root)?;
    let (source, app) = (root.join("clients/javascript"), root.join("target/clients/javascript/app"));
    empty(&app)?;
    fs::write(app.join("package.json"), "{\"name\": \"app\", \"private\": true}\n")?;
    run(npm(&app)
        .args(["install", "--silent", "--offline", "--no-audit", "--no-fund", "--no-save"])
        .arg(one_file(&packages(root, "javascript"), ".tgz")?))?;
    run(Command::new("cp").arg("-r").arg(source.join("test")).arg(app.join("test")))?;
    run(npm_program(root, "openapi-typescript")
        .arg(root.join("docs/openapi.json"))
        .arg("--output")
        .arg(app.join("test/openapi.d.ts")))?;
    run(npm_program(root, "tsc").args(["--project", "test/tsconfig.json"]).current_dir(&app))?;
    let files = files(&app.join("test"), ".test.mjs")?;
    // Four minutes for each test: the longest builds an application with Next, in 20 s on a quiet machine.
    run(Command::new("node")
        .args(["--test", "--test-timeout=240000"])
        .args(files)
        .env("TIDEGATE_BIN", binary(root))
        .env("TIDEGATE_CLIENTS", root.join("clients"))
        .current_dir(&app))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_other_or_in_one_folder_alone_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        for (place, text) in
            [("one/a", "1"), ("one/b/c", "1"), ("one/d", "1"), ("other/a", "1"), ("other/b/c", "2")]
        {
            let path = folder.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(differing(&one, &other).unwrap(), ["b/c", "d"]);
        assert_eq!(differing(&other, &one).unwrap(), ["b/c", "d"]);
        assert!(differing(&one, &one).unwrap().is_empty());
    }
}
