//! The pages of `docs/decisions/`: a number names one page, the page's title begins with it, and another page links to it.
//!
//! A page that says in which order decisions are read, `docs/decisions/README.md`, links to each at most once. A decision that it does
//! not have is linked to by a page that is no decision itself, or its readers would never come by it.

use std::collections::{BTreeMap, BTreeSet};

use super::links::target_of;
use super::{Finding, TextFile};
use crate::markdown::Document;

const FOLDER: &str = "docs/decisions/";
/// In which order decisions are read.
const ORDER: &str = "docs/decisions/README.md";

/// Numbers that are given twice or are not four digits, and titles that begin with another number.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files.iter().filter(|file| is_decision(&file.path)) {
        let name = file.path.strip_prefix(FOLDER).unwrap_or(&file.path);
        let number = name.split('-').next().unwrap_or(name);
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            findings.push(Finding::at(&file.path, 0, "a decision's name begins with its number: `0042-...`"));
            continue;
        }
        if let Some(other) = taken.insert(number, &file.path) {
            let message = format!("{other} is number {number} too: take a number that is free");
            findings.push(Finding::at(&file.path, 0, message));
        }
        let titled = file.text.strip_prefix("# ").and_then(|title| title.split(':').next());
        if number != "0000" && titled != Some(number) {
            findings.push(Finding::at(&file.path, 0, format!("its title begins with `# {number}: `")));
        }
    }
    findings
}

/// Decisions that no page links to, and those that the page with their order has more than once.
pub(super) fn check_order(files: &[TextFile]) -> Vec<Finding> {
    let mut in_order: Vec<String> = Vec::new();
    let mut elsewhere: BTreeSet<String> = BTreeSet::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md") && !is_decision(&file.path)) {
        let links = Document::new(&page.text).links;
        let here = links.iter().filter(|(_, target)| !target.contains("://"));
        let targets = here.map(|(_, target)| target_of(&page.path, target));
        if page.path == ORDER {
            in_order.extend(targets);
        } else {
            elsewhere.extend(targets);
        }
    }
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_decision(&file.path)) {
        let times = in_order.iter().filter(|path| **path == file.path).count();
        if times == 0 && !elsewhere.contains(&file.path) {
            let message =
                format!("no page links to this decision: name it in {ORDER}, under what it is about");
            findings.push(Finding::at(&file.path, 0, message));
        }
        if times > 1 {
            findings.push(Finding::at(&file.path, 0, format!("{ORDER} has this decision {times} times")));
        }
    }
    findings
}

fn is_decision(path: &str) -> bool {
    path.starts_with(FOLDER) && path != ORDER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_page_which_says_it() {
        let page =
            |name: &str, text: &str| TextFile { path: format!("{FOLDER}{name}"), text: text.to_owned() };
        let files = [
            page("0000-template.md", "# NNNN: The decision\n"),
            page("0001-layers.md", "# 0001: Layers\n"),
            page("0002-a.md", "# 0002: A\n"),
            page("0002-b.md", "# 0002: B\n"),
            page("0003-c.md", "# 0002: C\n"),
            page("four.md", "# 0004: D\n"),
        ];
        let found: Vec<_> = check(&files).into_iter().map(|found| (found.path, found.message)).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].0.ends_with("0002-b.md") && found[0].1.contains("0002-a.md is number 0002 too"));
        assert!(found[1].0.ends_with("0003-c.md") && found[1].1.contains("`# 0003: `"));
        assert!(found[2].0.ends_with("four.md"));
    }

    #[test]
    fn a_decision_that_no_page_links_to_is_found() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(ORDER, "[1](0001-a.md) [2](0002-b.md) [2](0002-b.md) [w](https://a.example/x)\n"),
            file("docs/gateway.md", "[why](decisions/0003-c.md#what-follows)\n"),
            file("docs/decisions/0001-a.md", "[4](0004-d.md)\n"),
            file("docs/decisions/0002-b.md", ""),
            file("docs/decisions/0003-c.md", ""),
            file("docs/decisions/0004-d.md", ""),
        ];
        let found: Vec<_> =
            check_order(&files).into_iter().map(|found| (found.path, found.message)).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0.ends_with("0002-b.md") && found[0].1.contains("2 times"), "{found:?}");
        assert!(found[1].0.ends_with("0004-d.md") && found[1].1.contains(ORDER), "{found:?}");
    }
}
