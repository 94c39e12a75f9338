//! `cargo xtask book`: the pages of `docs/SUMMARY.md` as a book, by mdBook, in `target/book/`.
//!
//! ```text
//!   docs/SUMMARY.md, pages --> target/book/source/ (as in the repository) --mdbook--> target/book/html/ --> every link is tried
//! ```
//!
//! mdBook takes pages of one folder only, and some of ours are elsewhere (README.md, deploy/, clients/). So the pages are put
//! beside each other as they are in the repository, where links between them stay good. Links to what is no page (a source,
//! a folder) lead to the repository on the web. Decisions, which the table of contents does not list, are at its end, and before them
//! the page that says in which order to read them.
//!
//! mdBook is built from crates.io at the first call, which takes a minute of a core. The book needs no network: its search works
//! from the disk. `--look`, which `make test` calls, tries that in Chromium, and looks at each page in a window and on a telephone
//! (`xtask/book/look.mjs`). The page of the faults has the tests that prove them in the book, as they are when it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::run;
use crate::markdown::Document;
use crate::source::Source;
use crate::tidy::target_of;
use crate::{setup, tidy};

const SUMMARY: &str = "docs/SUMMARY.md";
const FAULTS: &str = "docs/faults.md";
const TEMPLATE: &str = "docs/decisions/0000-template.md";
/// In which order decisions are read.
const ORDER: &str = "docs/decisions/README.md";
/// Where the repository is on the web.
const REPOSITORY: &str = "https://github.com/tidegate/tidegate";
/// The book's own settings. A reader's system says whether it is light or dark.
const SETTINGS: &str = r#"[book]
title = "Tidegate"
language = "en"
src = "source"

[build]
build-dir = "html"
create-missing = false
# Else README.md is made index.html, and links to it lead nowhere.
use-default-preprocessors = false

[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
git-repository-url = "https://github.com/tidegate/tidegate"
additional-css = ["book.css"]

[output.html.search]
limit-results = 30
use-boolean-and = true

[output.html.fold]
enable = true
level = 1
"#;
/// Kinds of files that a page shows or offers, beside pages.
const SHOWN: [&str; 4] = [".png", ".svg", ".json", ".html"];

/// Makes the book.
///
/// # Errors
/// When mdBook cannot be built or refuses, or a link of the book leads nowhere.
pub(crate) fn book(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let is_looked_at = match arguments {
        [] => false,
        [word] if word == "--look" => true,
        _ => bail!("`cargo xtask book` takes --look"),
    };
    setup::mdbook(root)?;
    let place = root.join("target/book");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    let summary = read(root, SUMMARY)?;
    let decisions = decisions(root)?;
    let (contents, mut pages) = contents(&summary, &decisions);
    put(&place, "book.toml", SETTINGS)?;
    put(&place, "book.css", &read(root, "xtask/book/book.css")?)?;
    put(&place, "source/SUMMARY.md", &contents)?;
    pages.extend(decisions.into_keys());
    let mut shown = BTreeSet::new();
    for page in &pages {
        let mut text = read(root, page)?;
        if page == FAULTS {
            text.push_str(&proofs(root)?);
        }
        let moved = with_links(page, &text, &pages, &mut shown);
        put(&place, &format!("source/{page}"), &moved)?;
    }
    for file in shown {
        let to = place.join("source").join(&file);
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::copy(root.join(&file), &to).with_context(|| file.clone())?;
    }
    run(Command::new(root.join(".tools/bin/mdbook")).arg("build").arg(&place))?;
    let html = place.join("html");
    let dead = dead_links(&html)?;
    if !dead.is_empty() {
        bail!("links of the book that lead nowhere: {}", dead.join(", "));
    }
    println!("{} pages: {}", pages.len(), html.join("index.html").display());
    if is_looked_at {
        let packages = root.join(".npm/node_modules");
        run(Command::new("node").arg(root.join("xtask/book/look.mjs")).args([&html, &packages, &place]))?;
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

fn put(place: &Path, path: &str, text: &str) -> anyhow::Result<()> {
    let path = place.join(path);
    fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// The tests that prove each fault, as they are when the book is made.
fn proofs(root: &Path) -> anyhow::Result<String> {
    let files = tidy::files(root)?;
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let sources: Vec<Source> = rust.map(|file| Source::new(&file.path, &file.text)).collect();
    let mut made = "\n## Which tests prove them\n\n| # | tests |\n|---|---|\n".to_owned();
    for (number, tests) in tidy::faults::proofs(&sources, &files) {
        let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
        made.push_str(&format!("| {number} | {} |\n", tests.join("<br>")));
    }
    Ok(made)
}

/// Paths and titles of the decisions and of the page with their order, without the template.
fn decisions(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root.join("docs/decisions")).context("docs/decisions")? {
        let path = format!("docs/decisions/{}", entry?.file_name().to_string_lossy());
        if path == TEMPLATE {
            continue;
        }
        let text = read(root, &path)?;
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or(&path);
        found.insert(path.clone(), title.to_owned());
    }
    Ok(found)
}

/// The table of contents from the repository's root, and the pages in it.
fn contents(summary: &str, decisions: &BTreeMap<String, String>) -> (String, BTreeSet<String>) {
    let mut pages = BTreeSet::new();
    let mut made = String::new();
    for line in summary.lines() {
        if let Some((before, (target, after))) =
            line.split_once("](").and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
        {
            let page = target_of(SUMMARY, target);
            made.push_str(&format!("{before}]({page}){after}\n"));
            pages.insert(page);
        } else {
            made.push_str(&format!("{line}\n"));
        }
    }
    made.push_str("\n# Decisions\n\n");
    let (order, decisions): (Vec<_>, Vec<_>) = decisions.iter().partition(|(path, _)| path.as_str() == ORDER);
    for (path, title) in order.into_iter().chain(decisions) {
        made.push_str(&format!("- [{}]({path})\n", title.replace(['[', ']'], "")));
    }
    (made, pages)
}

/// A page whose links are good in the book; files that it shows are added to `shown`.
fn with_links(page: &str, text: &str, pages: &BTreeSet<String>, shown: &mut BTreeSet<String>) -> String {
    let links: BTreeMap<usize, Vec<String>> =
        Document::new(text).links.into_iter().fold(BTreeMap::new(), |mut all, (line, link)| {
            all.entry(line).or_insert_with(Vec::new).push(link);
            all
        });
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut line = line.to_owned();
        for link in links.get(&number).into_iter().flatten() {
            if link.contains("://") || link.starts_with('#') || link.starts_with("mailto:") {
                continue;
            }
            let target = target_of(page, link);
            let is_shown = SHOWN.iter().any(|ending| target.ends_with(ending));
            if pages.contains(&target) {
                continue;
            }
            if is_shown {
                shown.insert(target);
                continue;
            }
            let kind = if target.rsplit('/').next().is_some_and(|name| name.contains('.')) {
                "blob"
            } else {
                "tree"
            };
            // A link ends so, or goes on with a title; a longer one that begins the same is another.
            for end in [')', ' '] {
                let there = format!("]({REPOSITORY}/{kind}/main/{target}{end}");
                line = line.replace(&format!("]({link}{end}"), &there);
            }
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

/// Links between files of the book that lead nowhere: to no file, or to no place of a page.
fn dead_links(html: &Path) -> anyhow::Result<Vec<String>> {
    // One has every page in it again, with links that are right on none of them; the others are parts of all pages.
    let is_page = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".html") && !["print.html", "404.html", "toc.html"].contains(&name)
    };
    let mut texts = BTreeMap::new();
    for path in files(html)?.into_iter().filter(is_page) {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        texts.insert(path, text);
    }
    let places: BTreeMap<PathBuf, BTreeSet<&str>> =
        texts.iter().map(|(path, text)| (path.clone(), values(text, " id=\"").collect())).collect();
    let mut dead = BTreeSet::new();
    for (page, text) in &texts {
        let folder = page.parent().context("a page is in a folder")?;
        for target in values(text, " href=\"").chain(values(text, " src=\"")) {
            let (path, place) = target.split_once('#').unwrap_or((target, ""));
            let path = path.split('?').next().unwrap_or_default();
            if path.contains(':') || target.is_empty() {
                continue;
            }
            let there = if path.is_empty() { page.clone() } else { plain(&folder.join(path)) };
            let is_known = places.get(&there).is_none_or(|ids| place.is_empty() || ids.contains(place));
            if !there.exists() || !is_known {
                dead.insert(format!("{} to {target}", page.strip_prefix(html)?.display()));
            }
        }
    }
    Ok(dead.into_iter().collect())
}

/// The values of an attribute, all through a page.
fn values<'t>(text: &'t str, attribute: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(attribute).skip(1).map(|rest| rest.split('"').next().unwrap_or_default())
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut made = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                made.pop();
            }
            Component::CurDir => {}
            other => made.push(other),
        }
    }
    made
}

/// All files below a folder.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_those_of_the_repository_with_the_decisions_behind() {
        let decisions = [("docs/decisions/0001-a.md", "0001: A"), (ORDER, "Decisions, in order")];
        let decisions = decisions.map(|(path, title)| (path.to_owned(), title.to_owned())).into();
        let (made, pages) =
            contents("# Summary\n\n[T](../README.md)\n- [A](a.md)\n    - [B](x/b.md)\n", &decisions);
        assert_eq!(
            made,
            "# Summary\n\n[T](README.md)\n- [A](docs/a.md)\n    - [B](docs/x/b.md)\n\n# Decisions\n\n\
             - [Decisions, in order](docs/decisions/README.md)\n- [0001: A](docs/decisions/0001-a.md)\n"
        );
        assert_eq!(pages, ["README.md", "docs/a.md", "docs/x/b.md"].map(str::to_owned).into());
    }

    #[test]
    fn links_to_what_is_no_page_lead_to_the_repository() {
        let pages = ["docs/a.md", "docs/b.md"].map(str::to_owned).into();
        let mut shown = BTreeSet::new();
        let text = "[b](b.md#x) ![p](images/p.svg) [s](../crates/x/src/lib.rs) [d](../deploy) [e](../deploy/e.toml \"e\") \
                    [w](https://a.example/b)\n";
        let made = with_links("docs/a.md", text, &pages, &mut shown);
        assert_eq!(
            made,
            format!(
                "[b](b.md#x) ![p](images/p.svg) [s]({REPOSITORY}/blob/main/crates/x/src/lib.rs) \
                 [d]({REPOSITORY}/tree/main/deploy) [e]({REPOSITORY}/blob/main/deploy/e.toml \"e\") \
                 [w](https://a.example/b)\n"
            )
        );
        assert_eq!(shown, ["docs/images/p.svg".to_owned()].into());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| put(folder.path(), path, text).unwrap();
        put(
            "a/x.html",
            r##"<a href="../y.html#z"><img src="no.png"><a href="https://b.example"><a href="#own">"##,
        );
        put("y.html", r##"<a href="gone.html"><h2 id="z"><a href="a/../a/x.html#w"><a href="style.css?1">"##);
        put("style.css", "");
        put("print.html", r#"<a href="never.html">"#);
        assert_eq!(
            dead_links(folder.path()).unwrap(),
            ["a/x.html to #own", "a/x.html to no.png", "y.html to a/../a/x.html#w", "y.html to gone.html"]
        );
    }
}
