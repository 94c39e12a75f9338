//! The book beside its commands. The four kinds of pages of Diataxis are kept apart: a page is of the kind that its place in
//! `docs/SUMMARY.md` says ([decision 0295](../../../../docs/decisions/0295-a-page-is-of-one-kind.md)). Diagrams are drawn for light and
//! dark.

use std::collections::BTreeMap;
use std::fs;

use crate::operations::{repository, text_of};

/// Parts of the table of contents. What is moved from and what is operated are how-to with a place of their own.
const PARTS: [&str; 6] =
    ["Tutorials", "How-to", "Moving to Tidegate", "Operations", "Reference", "Explanation"];
/// What has a page of each kind but a tutorial: the guide, what is looked up, what explains.
const DIVIDED: [[&str; 3]; 4] = [
    ["gateway.md", "gateway-reference.md", "gateway-requests.md"],
    ["edge.md", "edge-reference.md", "edge-connections.md"],
    ["intake.md", "intake-reference.md", "intake-promises.md"],
    ["saturate.md", "saturate-causes.md", "saturate-verdicts.md"],
];
/// Rows of a table that a guide may have: what to watch, what to choose from.
const MOST_ROWS: usize = 8;

/// The part of the table of contents that each page is in.
fn places() -> BTreeMap<String, String> {
    let summary = text_of("docs/SUMMARY.md");
    let mut part = "";
    let mut places = BTreeMap::new();
    for line in summary.lines() {
        part = line.strip_prefix("# ").unwrap_or(part);
        if let Some((_, rest)) = line.split_once("](") {
            places.insert(rest.split_once(')').unwrap().0.to_owned(), part.to_owned());
        }
    }
    places
}

/// Rows of the longest table, without its head.
fn longest_table(page: &str) -> usize {
    let is_row = |line: &&str| line.starts_with('|');
    let tables = page.split("\n\n").map(|part| part.lines().filter(is_row).count().saturating_sub(2));
    tables.max().unwrap_or_default()
}

#[test]
fn the_table_of_contents_has_the_kinds_of_pages_and_tutorials_are_stories() {
    let summary = text_of("docs/SUMMARY.md");
    let parts: Vec<_> = summary.lines().filter_map(|line| line.strip_prefix("# ")).skip(1).collect();
    assert_eq!(parts, PARTS);
    for file in fs::read_dir(repository("docs/tutorials")).unwrap() {
        let page = format!("tutorials/{}", file.unwrap().file_name().display());
        assert_eq!(places().get(&page).map(String::as_str), Some("Tutorials"), "{page}");
    }
    for (page, part) in places() {
        assert_eq!(page.starts_with("tutorials/"), part == "Tutorials", "{page}");
        if part == "Tutorials" {
            let text = text_of(&format!("docs/{page}"));
            assert!(
                text.contains("\nYou will ") && text.contains("```sh\n"),
                "{page} begins with no aim, or has no step"
            );
            // Else it is asked what was meant for the process that the reader has started.
            let is_on_usual_ports = text.contains("\ntidegate serve ");
            assert!(
                !is_on_usual_ports || text.contains("`systemctl stop tidegate`"),
                "{page}: a package's service is in the way"
            );
            assert_eq!(longest_table(&text), 0, "{page}: a tutorial has nothing to look up");
        }
    }
}

#[test]
fn guides_references_and_explanations_of_a_service_are_pages_of_their_own() {
    let places = places();
    for pages in DIVIDED {
        for (page, part) in pages.iter().zip(["How-to", "Reference", "Explanation"]) {
            assert_eq!(places[*page], part, "{page}");
            let text = text_of(&format!("docs/{page}"));
            let others = pages.iter().filter(|other| *other != page);
            assert!(
                others.clone().any(|other| text.contains(&format!("]({other}"))),
                "{page} names none of {pages:?}"
            );
            if part == "How-to" {
                assert!(
                    others.clone().all(|other| text.contains(&format!("]({other}"))),
                    "{page} names not all of {pages:?}"
                );
                assert!(longest_table(&text) <= MOST_ROWS, "{page}: a long table belongs on {}", pages[1]);
            } else {
                assert!(!text.contains("```sh\n"), "{page}: commands belong on {}", pages[0]);
            }
        }
    }
}

#[test]
fn diagrams_are_drawn_for_light_and_dark() {
    let pictures = fs::read_dir(repository("docs/images")).unwrap().map(|file| file.unwrap().path());
    let drawn: Vec<_> = pictures.filter(|path| path.extension().is_some_and(|kind| kind == "svg")).collect();
    assert!(drawn.len() > 10, "{drawn:?}");
    for path in drawn {
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("@media (prefers-color-scheme: dark)"),
            "{} is for the day alone",
            path.display()
        );
        assert!(!text.contains("<image"), "{} is a picture of a picture", path.display());
    }
}
