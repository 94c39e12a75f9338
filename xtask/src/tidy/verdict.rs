//! The committed capacity report, `docs/capacity.md`: its verdict stands first, its zones never get better
//! with more load, and no interval begins at nothing.
//!
//! It is what the tester says of Tidegate itself, and it is made by hand (`make capacity`): a page of an
//! older tester would stay here unseen.

use super::{Finding, TextFile};

const PATH: &str = "docs/capacity.md";
/// From good to bad.
const ZONES: [&str; 3] = ["optimal", "degraded", "stressed"];

/// What the page lacks.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PATH) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut find =
        |line, message: &str| findings.push(Finding::at(PATH, line, format!("{message}: `make capacity`")));

    let mut paragraphs = page.text.split("\n\n").skip(2);
    if !paragraphs.next().is_some_and(|verdict| verdict.starts_with("**")) {
        find(0, "the verdict does not stand first");
    }
    let mut worst = 0;
    for (number, line) in page.text.lines().enumerate() {
        let zone = line.strip_prefix("- Zone ").and_then(|rest| rest.split(':').next());
        if let Some(rank) = zone.and_then(|zone| ZONES.iter().position(|it| *it == zone)) {
            if rank < worst {
                find(number, "a zone gets better with more load");
            }
            worst = worst.max(rank);
        }
        if line.split('|').any(|cell| cell.trim().starts_with("0 to ")) {
            find(number, "an interval begins at 0, which says nothing");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&[TextFile { path: PATH.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn a_page_whose_verdict_is_not_first_or_whose_zones_get_better_is_found() {
        let good = "# Saturation\n\nScenario.\n\n**The server does 9.** Look at x.\n\n- Zone optimal: 1 to 4 connections.\n\
                    - Zone stressed: 8 to 9 connections.\n\n| 1 | 10 | 9 to 11 |\n| 2 | 10 | too wide: repeats differ |\n";
        assert_eq!(found(good), 0);
        assert_eq!(found(&good.replace("**The", "- The")), 1);
        assert_eq!(
            found(&good.replace("Zone optimal", "Zone degraded").replace("Zone stressed", "Zone optimal")),
            1
        );
        assert_eq!(found(&good.replace("9 to 11", "0 to 476,153")), 1);
    }
}
