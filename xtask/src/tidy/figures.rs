//! Figures that pages quote: those in the text of a link to a section of `docs/benchmarks.md` stand in that section.
//!
//! A section is written anew when it is measured again, and a page that quotes it keeps the old figure unless somebody looks. The
//! changelog and the decisions are of their day, and are left out.

use super::links::target_of;
use super::{Finding, TextFile};
use crate::markdown::Document;

const MEASURED: &str = "docs/benchmarks.md";

/// Quoted figures that are not where their link leads.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(measured) = files.iter().find(|file| file.path == MEASURED) else { return Vec::new() };
    let is_of_its_day = |path: &str| path.starts_with("docs/decisions/") || path == "CHANGELOG.md";
    let pages = files.iter().filter(|file| file.path.ends_with(".md") && !is_of_its_day(&file.path));
    pages.flat_map(|page| of_page(page, &measured.text)).collect()
}

fn of_page(page: &TextFile, measured: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, _) in page.text.match_indices("](") {
        let target = page.text[at + 2..].split(')').next().unwrap_or_default();
        let Some((_, anchor)) = target.split_once('#') else { continue };
        if target_of(&page.path, target) != MEASURED {
            continue;
        }
        let said = page.text[..at].rsplit('[').next().unwrap_or_default();
        let there: Vec<&str> = numbers(section(measured, anchor)).collect();
        for number in numbers(said).filter(|number| !there.contains(number)) {
            let line = page.text[..at].matches('\n').count();
            let message =
                format!("{number} is not in the section #{anchor} of {MEASURED}: quote what it has");
            findings.push(Finding::at(&page.path, line, message));
        }
    }
    findings
}

/// The section of a heading, to the next one of its level or above.
fn section<'t>(text: &'t str, anchor: &str) -> &'t str {
    let level = |line: &str| line.split(' ').next().map_or(0, str::len);
    let is_heading = |line: &str| line.starts_with('#');
    let mut found = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        match found {
            None if is_heading(line) && Document::new(line).anchors.iter().any(|it| it == anchor) => {
                found = Some((at, level(line)));
            }
            Some((begin, depth)) if is_heading(line) && level(line) <= depth => return &text[begin..at],
            _ => {}
        }
        at += line.len();
    }
    found.map_or("", |(begin, _)| &text[begin..])
}

/// Numbers as they are written: with their commas and points, without those that end a sentence.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split(|letter: char| !(letter.is_ascii_digit() || letter == ',' || letter == '.'));
    pieces.map(|piece| piece.trim_matches([',', '.'])).filter(|piece| !piece.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_not_where_they_are_quoted_from_are_found() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(MEASURED, "# B\n\n## speed\n\n12,345/s, 0.83 x.\n\n### more\n\n17%\n\n## other\n\n99\n"),
            file("docs/a.md", "[12,345/s and\n17 %](benchmarks.md#speed), [0.84 x](benchmarks.md#speed)\n"),
            file(
                "README.md",
                "[page](docs/benchmarks.md), [99](docs/benchmarks.md#speed), [99](x.md#speed)\n",
            ),
            file("docs/decisions/0001-a.md", "[7](../benchmarks.md#speed)\n"),
        ];
        let found: Vec<_> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/a.md:2: 0.84 is not in the section #speed of docs/benchmarks.md: quote what it has",
                "README.md:1: 99 is not in the section #speed of docs/benchmarks.md: quote what it has",
            ]
        );
    }
}
