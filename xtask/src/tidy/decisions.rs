//! The pages of `docs/decisions/`: a number names one page, and the page's title begins with it.

use std::collections::BTreeMap;

use super::{Finding, TextFile};

const FOLDER: &str = "docs/decisions/";

/// Numbers that are given twice or are not four digits, and titles that begin with another number.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(FOLDER) else { continue };
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
}
