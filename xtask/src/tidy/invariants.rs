//! The numbered invariants of `ARCHITECTURE.md`: each names what checks it, and that is there.
//!
//! An invariant ends with its checks in brackets, as `code`: `tidy`, a file such as `clippy.toml`, a
//! test, or the tests of a fault (`fault_08_*`). Whether they check enough is for readers.

use std::collections::BTreeSet;

use super::{Finding, TextFile};
use crate::source::Source;

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Invariants";

/// Invariants that name no check, and checks that are not there.
pub(super) fn check(files: &[TextFile], sources: &[Source]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![Finding::at(PAGE, 0, "it is not there")];
    };
    let tests: BTreeSet<String> = sources.iter().flat_map(tests).collect();
    let is_there = |check: &str| {
        let prefix = check.strip_suffix('*');
        check == "tidy"
            || files.iter().any(|file| file.path == check)
            || prefix.map_or_else(
                || tests.contains(check),
                |prefix| tests.iter().any(|test| test.starts_with(prefix)),
            )
    };
    let mut findings = Vec::new();
    for (line, invariant) in invariants(&page.text) {
        let checks = checks(&invariant);
        if checks.is_empty() {
            let message =
                "nothing checks this invariant: name a test, a file or `tidy` in brackets at its end";
            findings.push(Finding::at(PAGE, line, message));
        }
        for check in checks.into_iter().filter(|check| !is_there(check)) {
            findings.push(Finding::at(
                PAGE,
                line,
                format!("there is no test or file `{check}`: mend the name"),
            ));
        }
    }
    findings
}

/// Functions that belong to tests; those of a test's own crate are in no test module.
fn tests(source: &Source) -> Vec<String> {
    let functions = source.functions().into_iter();
    functions.filter(|(_, lines)| source.is_test(lines.start)).map(|(name, _)| name).collect()
}

/// The items of the list: the line of each, counted from 0, and its text.
fn invariants(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    for (number, line) in lines.take_while(|(_, line)| !line.starts_with('#')) {
        let is_item = line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        match found.last_mut() {
            _ if is_item => found.push((number, line.to_owned())),
            Some((_, text)) if !line.is_empty() => text.push_str(line),
            _ => {}
        }
    }
    found
}

/// The `code` in the brackets at the end.
fn checks(invariant: &str) -> Vec<&str> {
    let Some((_, brackets)) = invariant.trim_end().strip_suffix(')').and_then(|text| text.rsplit_once('('))
    else {
        return Vec::new();
    };
    brackets.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invariant_without_a_check_that_is_there_is_found() {
        let page = "# A\n\n1. No item.\n\n## Invariants\n\nEach.\n\n\
                    1. Checked. (`tidy`, `clippy.toml`)\n\
                    2. Not checked.\n\
                    3. Checked (see 2) by tests,\n   over two lines. (`fault_08_*`, `it_holds`)\n\
                    4. By a test that is gone. (`it_held`)\n\n## Glossary\n\n1. No item.\n";
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [file(PAGE, page), file("clippy.toml", "")];
        let tests = "#[test]\nfn fault_08_x() {}\n#[test]\nfn it_holds() {}\n";
        let sources = [
            Source::new("crates/x/tests/a.rs", tests),
            Source::new("crates/x/src/lib.rs", "fn it_held() {}\n"),
        ];
        let found: Vec<_> =
            check(&files, &sources).into_iter().map(|found| (found.line, found.message)).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0 == 10 && found[0].1.contains("nothing checks"));
        assert!(found[1].0 == 13 && found[1].1.contains("`it_held`"));
    }
}
