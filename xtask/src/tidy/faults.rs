//! Faults: a fault that code or a document claims to meet has a test that names it.
//!
//! `docs/faults.md` numbers the faults. A claim is `fault 8` or `faults 8, 9 and 10` in a comment of
//! `crates/`; its proof is a test function `fault_08_...`, or a client library's in the way its language
//! names tests. `cargo xtask faults` prints the list.

use std::collections::BTreeMap;

use super::{Finding, TextFile};
use crate::source::{Source, starts_word};

/// Where the faults are listed.
const PAGE: &str = "docs/faults.md";
/// The end of a row that no test proves.
const UNTESTED: &str = "(no test yet) |";
/// How the tests of faults begin in Python, JavaScript, Go and Java; the number follows.
const CLIENT_TESTS: &[&str] = &["def test_fault_", "test(\"fault_", "func TestFault", "void fault"];
/// The numbers that `docs/faults.md` uses.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=77;

/// Claims without a test, and tests whose number is not in the list.
pub(super) fn check(sources: &[Source], files: &[TextFile]) -> Vec<Finding> {
    let proofs = proofs(sources, files);
    let mut findings = Vec::new();
    for (path, line, number) in claims(sources) {
        if !NUMBERS.contains(&number) {
            findings.push(Finding::at(path, line, format!("docs/faults.md has no fault {number}")));
        } else if !proofs.contains_key(&number) {
            let message = format!(
                "fault {number} is claimed and no test is named `fault_{number:02}_...`: produce the fault in a \
                 test, or drop the claim"
            );
            findings.push(Finding::at(path, line, message));
        }
    }
    findings
}

/// Rows of the page whose mark does not say what the tests say.
pub(super) fn check_marks(page: &str, sources: &[Source], files: &[TextFile]) -> Vec<Finding> {
    let proofs = proofs(sources, files);
    let rows = page.lines().enumerate().filter_map(|(line, text)| {
        let (number, _) = text.strip_prefix("| ")?.split_once(" | ")?;
        Some((line, number.parse::<u32>().ok()?, text.ends_with(UNTESTED)))
    });
    rows.filter_map(|(line, number, untested)| {
        let message = match (proofs.contains_key(&number), untested) {
            (true, true) => format!("fault {number} has a test: take \"(no test yet)\" away"),
            (false, false) => {
                format!("no test is named `fault_{number:02}_...`: end the row with \"(no test yet)\"")
            }
            _ => return None,
        };
        Some(Finding::at(PAGE, line, message))
    })
    .collect()
}

/// The tests that prove each fault, as `path: name`.
pub(crate) fn proofs(sources: &[Source], files: &[TextFile]) -> BTreeMap<u32, Vec<String>> {
    let mut proofs: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for source in sources {
        for (name, lines) in source.functions() {
            let number =
                name.strip_prefix("fault_").and_then(|rest| rest.get(..2)).and_then(|n| n.parse().ok());
            if let Some(number) = number.filter(|_| source.is_test(lines.start)) {
                proofs.entry(number).or_default().push(format!("{}: {name}", source.path));
            }
        }
    }
    for file in files.iter().filter(|file| file.path.starts_with("clients/")) {
        for (number, name) in file.text.lines().filter_map(client_proof) {
            proofs.entry(number).or_default().push(format!("{}: {name}", file.path));
        }
    }
    proofs
}

/// The fault that a test of a client library proves, by the line that its name is on.
fn client_proof(line: &str) -> Option<(u32, &str)> {
    let line = line.trim_start();
    let after = CLIENT_TESTS.iter().find_map(|begin| line.strip_prefix(begin))?;
    let number = after.get(..2)?.parse().ok()?;
    let name = line.split(['(', '"']).find(|part| part.to_ascii_lowercase().contains("fault"))?;
    Some((number, name.rsplit(' ').next().unwrap_or(name)))
}

/// The rows of `docs/faults.md`: number and fault.
pub(crate) fn rows(list: &str) -> Vec<(u32, &str)> {
    let cells = list.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    cells
        .filter_map(|(number, rest)| Some((number.parse().ok()?, rest.split(" | ").next().unwrap_or(rest))))
        .collect()
}

fn claims(sources: &[Source]) -> Vec<(&str, usize, u32)> {
    let mut claims = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates/")) {
        for (line, text) in source.comments.iter().enumerate() {
            for word in ["fault ", "faults "] {
                for (column, _) in text.match_indices(word).filter(|(column, _)| starts_word(text, *column)) {
                    let numbers = leading_numbers(&text[column + word.len()..]);
                    claims.extend(numbers.into_iter().map(|number| (source.path.as_str(), line, number)));
                }
            }
        }
    }
    claims
}

/// The numbers of `8, 9 and 10-12 are ...`; none if the text goes on otherwise.
fn leading_numbers(text: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([',', '.', ')', ';', ':']);
        match bare.split_once('-') {
            Some((from, to)) => match (from.parse::<u32>(), to.parse()) {
                (Ok(from), Ok(to)) => numbers.extend(from..=to),
                _ => break,
            },
            None if bare == "and" && !numbers.is_empty() => continue,
            None => match bare.parse() {
                Ok(number) => numbers.push(number),
                Err(_) => break,
            },
        }
        if word.ends_with(['.', ')', ';', ':']) {
            break;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_a_test_of_its_number() {
        let sources = [
            Source::new(
                "crates/x/src/lib.rs",
                "//! Nobody is locked out (fault 8).\n// Faults to come; faults 9, 10\n",
            ),
            Source::new(
                "crates/x/tests/a.rs",
                "#[test]\nfn fault_08_clock_jumps() {}\n#[test]\nfn fault_09_x() {}\n",
            ),
        ];
        let found: Vec<_> = check(&sources, &[]).into_iter().map(|f| (f.line, f.message)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == 2 && found[0].1.starts_with("fault 10 is claimed"));
        assert_eq!(proofs(&sources, &[])[&8], ["crates/x/tests/a.rs: fault_08_clock_jumps"]);
    }

    #[test]
    fn a_number_outside_the_list_is_found() {
        let sources = [Source::new("crates/x/src/lib.rs", "// fault 99\n")];
        assert!(check(&sources, &[])[0].message.contains("has no fault 99"));
    }

    #[test]
    fn a_row_without_a_test_is_marked_and_no_other() {
        let tests = [Source::new(
            "crates/x/tests/a.rs",
            "#[test]\nfn fault_08_a() {}\n#[test]\nfn fault_09_b() {}\n",
        )];
        let page = "| # | Fault |\n| 8 | a | b |\n| 9 | a | b (no test yet) |\n| 10 | a | b |\n| 11 | a | b (no test yet) |\n";
        let found: Vec<_> =
            check_marks(page, &tests, &[]).into_iter().map(|it| (it.line, it.message)).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0 == 3 && found[0].1.starts_with("fault 9 has a test"));
        assert!(found[1].0 == 4 && found[1].1.contains("`fault_10_...`"));
    }

    #[test]
    fn tests_of_client_libraries_are_proofs() {
        let lines = [
            "def test_fault_75_frozen(own: Server) -> None:",
            "test(\"fault_75_frozen\", async () => {",
            "func TestFault75Frozen(t *testing.T) {",
            "    void fault75Frozen() throws Exception {",
            "# fault 75",
        ];
        let names: Vec<_> = lines.iter().filter_map(|line| client_proof(line)).collect();
        assert_eq!(
            names,
            [
                (75, "test_fault_75_frozen"),
                (75, "fault_75_frozen"),
                (75, "TestFault75Frozen"),
                (75, "fault75Frozen")
            ]
        );
    }

    #[test]
    fn rows_are_read_from_the_table() {
        let table = "| # | Fault | Expected |\n|---|---|---|\n| 8 | node clock | lives on |\n";
        assert_eq!(rows(table), [(8, "node clock")]);
    }

    #[test]
    fn claims_are_read_as_people_write_them() {
        assert_eq!(leading_numbers("8, 10-12 and 14."), [8, 10, 11, 12, 14]);
        assert_eq!(leading_numbers("8) and 3 others"), [8]);
        assert_eq!(leading_numbers("injected by the test"), Vec::<u32>::new());
    }
}
