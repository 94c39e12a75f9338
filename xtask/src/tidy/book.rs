//! The table of contents, `docs/SUMMARY.md`: every page of `docs/` is in it once, so that readers find it.
//!
//! Decisions are left out: they are read from where they are referred to. The page of the HTTP API is made of a document, and must
//! be the one that it makes.

use super::links::target_of;
use super::{Finding, TextFile};
use crate::api;
use crate::markdown::Document;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages that the table of contents lacks or has twice.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else { return Vec::new() };
    let document = Document::new(&summary.text);
    let listed: Vec<String> = document.links.iter().map(|(_, target)| target_of(SUMMARY, target)).collect();
    let pages = files.iter().filter(|file| is_page(&file.path));
    let findings = pages.filter_map(|page| {
        let times = listed.iter().filter(|path| **path == page.path).count();
        let message = format!("{SUMMARY} has this page {times} times: list it once, under what it is for");
        (times != 1).then(|| Finding::at(&page.path, 0, message))
    });
    findings.collect()
}

/// The page of the HTTP API, if it is not what the API's document makes.
pub(super) fn check_api(files: &[TextFile]) -> anyhow::Result<Vec<Finding>> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    let is_current = api::is_current(text(api::DOCUMENT), text(api::PAGE))?;
    let message = format!("this is not the page of {}: cargo xtask api makes it anew", api::DOCUMENT);
    Ok(if is_current { Vec::new() } else { vec![Finding::at(api::PAGE, 0, message)] })
}

fn is_page(path: &str) -> bool {
    let inside = path.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"));
    inside.is_some_and(|name| !name.starts_with("decisions/") && name != "SUMMARY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_api_that_is_out_of_date_is_found() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file = |path: &str| TextFile {
            path: path.to_owned(),
            text: std::fs::read_to_string(root.join(path)).unwrap(),
        };
        let mut files = [file(api::DOCUMENT), file(api::PAGE)];
        assert_eq!(check_api(&files).unwrap(), []);
        files[1].text.push_str("More.\n");
        assert_eq!(check_api(&files).unwrap()[0].path, api::PAGE);
    }

    #[test]
    fn pages_that_are_not_listed_once_are_found() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(SUMMARY, "- [A](a.md)\n- [B](tutorials/b.md)\n- [B](tutorials/b.md)\n- [R](../README.md)\n"),
            file("docs/a.md", ""),
            file("docs/tutorials/b.md", ""),
            file("docs/c.md", ""),
            file("docs/decisions/0001-d.md", ""),
            file("README.md", ""),
        ];
        let found: Vec<_> = check(&files).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["docs/tutorials/b.md", "docs/c.md"]);
    }
}
