//! `cargo xtask console [--lint | --pictures [SCENARIO ...]]`: builds `console/dist`, which the binary embeds, checks the sources of
//! it, or makes all pictures of the views anew.
//!
//! What is built is committed, so that nobody needs Node to build the binary; a test of the binary sees that it is of
//! the sources beside it.
//!
//! The pictures are made by the scenarios of `console/test` that keep some, against a binary that is built for it. The overview's,
//! of which the README has one, are of a server that has counted ten minutes of traffic, and all of them take some twenty. They are
//! kept once every scenario has come to its end, and every picture that `docs/console.md` shows is among them.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::chore::{cargo, run};

/// The page that shows the pictures, and where they are.
const PAGE: &str = "docs/console.md";
const IMAGES: &str = "docs/images";
/// The scenario of the overview, and how long there is traffic before its pictures are taken, in seconds.
const OVERVIEW: (&str, &str) = ("picture", "600");

/// Builds the console; with `--lint`, checks its formatting, its types and what the linter knows, and builds nothing; with
/// `--pictures`, makes the pictures of its views, or those of the scenarios named.
///
/// # Errors
/// When a check or a scenario fails, or what is needed is not installed.
pub(crate) fn console(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let folder = root.join("console");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => run(Command::new("node").arg(folder.join("build.mjs"))),
        ["--lint"] => lint(root, &folder),
        ["--pictures", names @ ..] => pictures(root, &folder, names),
        other => bail!("{} is none of --lint and --pictures [SCENARIO ...]", other.join(" ")),
    }
}

fn lint(root: &Path, folder: &Path) -> anyhow::Result<()> {
    let npm = |program: &str| Command::new(root.join(".npm/node_modules/.bin").join(program));
    run(npm("biome").arg("check").current_dir(folder))?;
    // The compiler looks for packages beside the sources.
    run(Command::new("node").arg(folder.join("build.mjs")).arg(root.join("target/console")))?;
    run(npm("tsc").args(["--project", "tsconfig.json"]).current_dir(folder))
}

/// Builds the binary, runs the scenarios that make pictures, and keeps these.
fn pictures(root: &Path, folder: &Path, names: &[&str]) -> anyhow::Result<()> {
    let all = scenarios(&folder.join("test"))?;
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|known| known == *name)) {
        bail!("{unknown} is no scenario that makes pictures: {}", all.join(", "));
    }
    run(cargo()
        .args(["build", "--release", "--package", "tidegate", "--bin", "tidegate"])
        .current_dir(root))?;
    let packages = folder.join("node_modules");
    match symlink("../.npm/node_modules", &packages) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{} cannot be made", packages.display()));
        }
        _ => {}
    }
    let made = root.join("target/pictures");
    match fs::remove_dir_all(&made) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} cannot be emptied", made.display()));
        }
        _ => {}
    }
    fs::create_dir_all(&made).with_context(|| format!("{} cannot be made", made.display()))?;
    for name in all.iter().filter(|name| names.is_empty() || names.contains(&name.as_str())) {
        let mut taking = Command::new("node");
        taking.arg(folder.join(format!("test/{name}.mjs")));
        if name == OVERVIEW.0 {
            taking.arg(OVERVIEW.1);
        }
        taking.env("TIDEGATE_BIN", root.join("target/release/tidegate"));
        run(taking.env("TIDEGATE_SCREENSHOTS", &made))?;
    }
    keep(root, &made, names.is_empty())
}

/// Keeps those of the pictures that are made which the page shows, or which there was one of before.
fn keep(root: &Path, made: &Path, is_all: bool) -> anyhow::Result<()> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("{PAGE} cannot be read"))?;
    let shown = shown(&page);
    let missing: Vec<_> = shown.iter().copied().filter(|name| !made.join(name).is_file()).collect();
    ensure!(!is_all || missing.is_empty(), "{PAGE} shows what no scenario makes: {}", missing.join(", "));
    let mut kept = 0;
    for entry in fs::read_dir(made).with_context(|| format!("{} cannot be read", made.display()))? {
        let name = entry?.file_name();
        let place = root.join(IMAGES).join(&name);
        if place.is_file() || name.to_str().is_some_and(|name| shown.contains(name)) {
            fs::copy(made.join(&name), &place)
                .with_context(|| format!("{} cannot be written", place.display()))?;
            kept += 1;
        }
    }
    println!("{kept} pictures are in {IMAGES}: look at them before you commit them");
    Ok(())
}

/// The scenarios of this folder that make pictures, by their names.
fn scenarios(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".mjs")) else {
            continue;
        };
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        // What all scenarios share is none itself.
        if text.contains("await scenario(") && (text.contains(".picture(") || text.contains(".pictures(")) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The pictures that a page links to.
fn shown(page: &str) -> BTreeSet<&str> {
    let links = page.split("](images/").skip(1).filter_map(|after| Some(after.split_once(')')?.0));
    links.filter(|name| name.ends_with(".png")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn every_picture_of_the_page_is_there_and_is_made_by_a_scenario() {
        let folder = root().join("console/test");
        let texts: Vec<String> = scenarios(&folder)
            .unwrap()
            .iter()
            .map(|name| fs::read_to_string(folder.join(format!("{name}.mjs"))).unwrap())
            .collect();
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let shown = shown(&page);
        assert!(shown.len() >= 39 && shown.contains("overview-light.png"), "{shown:?}");
        for picture in shown {
            assert!(root().join(IMAGES).join(picture).is_file(), "{picture}");
            let view = picture.rsplit_once('-').unwrap().0;
            let names = [format!("\"{view}\""), format!("\"{view}-"), format!("`{view}-")];
            let is_made = |text: &String| names.iter().any(|name| text.contains(name));
            assert!(texts.iter().any(is_made), "no scenario makes {picture}");
        }
    }

    #[test]
    fn what_makes_no_pictures_is_no_scenario_of_theirs() {
        let names = scenarios(&root().join("console/test")).unwrap();
        assert!(names.iter().any(|name| name == OVERVIEW.0), "{names:?}");
        assert!(!names.iter().any(|name| name == "support" || name == "hidden"), "{names:?}");
        let wrong = ["--picture", "--lint --pictures", "--pictures hidden"];
        for line in wrong {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = console(root(), &words).unwrap_err().to_string();
            assert!(error.contains(" is no"), "{line}: {error}");
        }
    }

    #[test]
    fn only_what_is_shown_or_was_there_is_kept_and_nothing_where_one_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (root, made) = (folder.path(), folder.path().join("made"));
        for place in [IMAGES, "made"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        fs::write(root.join(PAGE), "[day](images/new-light.png) [drawn](images/x.svg)").unwrap();
        fs::write(root.join(IMAGES).join("old-phone.png"), "before").unwrap();
        fs::write(made.join("old-phone.png"), "after").unwrap();
        fs::write(made.join("nobodys.png"), "a").unwrap();
        let error = keep(root, &made, true).unwrap_err().to_string();
        assert!(error.ends_with("no scenario makes: new-light.png"), "{error}");
        let old = || fs::read_to_string(root.join(IMAGES).join("old-phone.png")).unwrap();
        assert_eq!(old(), "before");
        fs::write(made.join("new-light.png"), "new").unwrap();
        keep(root, &made, true).unwrap();
        assert_eq!(old(), "after");
        assert!(root.join(IMAGES).join("new-light.png").is_file());
        assert!(!root.join(IMAGES).join("nobodys.png").exists());
    }
}
