//! Style of a Rust file: its size, its functions' size, its header, no loose ends.
//! SQL and Lua are measured too, with headers of `--` lines.

use super::{Finding, TextFile};
use crate::source::{Source, starts_word};

/// Longer files need a reason in their header.
const FILE_LINES: usize = 400;
/// No reason admits more.
const FILE_LINES_MAX: usize = 800;
/// A function has fewer lines than this.
const FUNCTION_LINES: usize = 70;
/// Longer files need a header.
const HEADER_LINES: usize = 80;
/// The reason for a long file, in its header.
const REASON: &str = "Over 400 lines because ";
/// The reason for a sleep in test code (a stub that answers late, say), on its line or the one above.
const SLEEP_REASON: &str = "// Sleeps because ";

/// Applies the rules of this file to one source.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = size(source);
    findings.extend(functions(source));
    findings.extend(loose_ends(source));
    findings.extend(sleeps(source));
    findings.extend(folders(source));
    findings.extend(examples(source));
    findings
}

/// `cargo xtask test` runs no examples in doc comments: their blocks are no code, or say that they are something else.
fn examples(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut inside = false;
    for (number, line) in source.raw.iter().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        let Some(language) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else { continue };
        inside = !inside;
        if inside && ["", "rust", "no_run", "should_panic"].contains(&language.trim()) {
            let message = "an example that nothing runs: make it a test, or name its language (`text`)";
            findings.push(Finding::at(&source.path, number, message));
        }
    }
    findings
}

fn size(source: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = source.raw.iter().map(String::as_str).collect();
    measure(&source.path, &lines, "//!")
}

/// The size of an SQL or Lua file; nothing for others.
pub(super) fn check_script(file: &TextFile) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().filter(|line| !line.starts_with("#!")).collect();
    let is_script = [".sql", ".lua"].iter().any(|ending| file.path.ends_with(ending));
    if is_script { measure(&file.path, &lines, "--") } else { Vec::new() }
}

/// Size and header of a file whose header's lines begin with `mark`.
fn measure(path: &str, lines: &[&str], mark: &str) -> Vec<Finding> {
    let count = lines.len();
    let first = lines.iter().find(|line| !line.trim().is_empty());
    let mut findings = Vec::new();
    if count > HEADER_LINES && !first.is_some_and(|line| line.starts_with(mark)) {
        findings.push(Finding::at(
            path,
            0,
            format!(
                "{count} lines and no header: say in `{mark}` what the file owns or decides, why this way, its \
                 invariants, and what is deliberately not here"
            ),
        ));
    }
    let mut header = lines.iter().filter_map(|line| line.trim_start().strip_prefix(mark));
    let reasoned = header.any(|line| line.trim_start().starts_with(REASON));
    if count > FILE_LINES_MAX {
        findings.push(Finding::at(path, 0, format!("{count} lines, never over {FILE_LINES_MAX}: split it")));
    } else if count > FILE_LINES && !reasoned {
        let message =
            format!("{count} lines: split it, or give the reason in its header: `{mark} {REASON}...`");
        findings.push(Finding::at(path, 0, message));
    }
    findings
}

fn functions(source: &Source) -> Vec<Finding> {
    let long = source.functions().into_iter().filter(|(_, lines)| lines.len() >= FUNCTION_LINES);
    long.map(|(name, lines)| {
        let message = format!(
            "`{name}` has {} lines, fewer than {FUNCTION_LINES} are wanted: give its parts names",
            lines.len()
        );
        Finding::at(&source.path, lines.start, message)
    })
    .collect()
}

fn loose_ends(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in source.comments.iter().enumerate() {
        for word in ["TODO", "FIXME", "XXX"] {
            if text.match_indices(word).any(|(column, _)| starts_word(text, column)) {
                let message = format!("{word}: do it, or write an issue and drop the note");
                findings.push(Finding::at(&source.path, line, message));
            }
        }
    }
    for (line, text) in source.code.iter().enumerate() {
        for (code, mend) in [
            ("todo!", "write it or leave it out"),
            ("unimplemented!", "write it or leave it out"),
            ("#[ignore", "a test that does not run proves nothing: mend it or remove it"),
        ] {
            if text.contains(code) {
                findings.push(Finding::at(&source.path, line, format!("`{code}`: {mend}")));
            }
        }
    }
    findings
}

fn sleeps(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in source.code.iter().enumerate() {
        let sleeps = text.match_indices("sleep(").any(|(column, _)| starts_word(text, column));
        let reasoned =
            (line.saturating_sub(1)..=line).any(|near| source.comments[near].contains(SLEEP_REASON));
        if sleeps && source.is_test(line) && !reasoned {
            let message = format!(
                "a test that sleeps is too short or a waste: wait for the event, or pause the clock; where the \
                 delay is the thing tested, say so: `{SLEEP_REASON}...`"
            );
            findings.push(Finding::at(&source.path, line, message));
        }
    }
    findings
}

/// What is shipped takes no folder of the machine that builds it: the same sources give the same bytes anywhere (decision 0191).
fn folders(source: &Source) -> Vec<Finding> {
    let path = &source.path;
    let is_code_of_a_crate =
        path.starts_with("crates/") && path.contains("/src/") && !path.ends_with("/tests.rs");
    let is_shipped = is_code_of_a_crate && !path.starts_with("crates/testkit/");
    let mut findings = Vec::new();
    for (line, text) in source.raw.iter().enumerate() {
        let names =
            ["CARGO_MANIFEST_DIR", "OUT_DIR"].iter().any(|name| text.contains(&format!("env!(\"{name}\")")));
        if is_shipped && names && !source.is_test(line) {
            let message =
                "the bytes that are shipped would differ by the folder: name the file as seen from this one";
            findings.push(Finding::at(path, line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Source::new(path, text)).into_iter().map(|f| (f.line, f.message)).collect()
    }

    fn only(path: &str, text: &str) -> (usize, String) {
        let mut findings = found(path, text);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn a_long_file_needs_a_header_then_a_reason_then_a_split() {
        let line = "const A: u8 = 0;\n";
        assert_eq!(found("x.rs", &line.repeat(80)), Vec::new());
        assert!(only("x.rs", &line.repeat(81)).1.contains("no header"));
        let headed = format!("//! Owns A.\n{}", line.repeat(400));
        assert!(only("x.rs", &headed).1.contains("split it, or give the reason"));
        let reasoned = format!("//! Owns A.\n//! Over 400 lines because of A.\n{}", line.repeat(400));
        assert_eq!(found("x.rs", &reasoned), Vec::new());
        assert!(only("x.rs", &format!("{reasoned}{}", line.repeat(400))).1.contains("never over 800"));
    }

    #[test]
    fn scripts_are_measured_too() {
        let script = |path: &str, text: String| {
            let file = TextFile { path: path.to_owned(), text };
            check_script(&file).into_iter().map(|found| found.message).collect::<Vec<_>>()
        };
        let line = "SELECT 1;\n";
        assert!(script("x.sql", line.repeat(81))[0].contains("no header: say in `--`"));
        let headed = format!("-- Counts.\n{}", line.repeat(400));
        assert!(script("x.sql", headed.clone())[0].contains("split it, or give the reason"));
        assert_eq!(script("x.py", headed), Vec::<String>::new());
        let reasoned = format!("#!lua\n-- Over 400 lines because of it.\n{}", line.repeat(400));
        assert_eq!(script("x.lua", reasoned), Vec::<String>::new());
        assert!(script("x.lua", line.repeat(801)).iter().any(|found| found.contains("never over 800")));
    }

    #[test]
    fn an_example_that_nothing_runs_is_found() {
        assert_eq!(only("x.rs", "/// ```\n/// a();\n/// ```\nfn a() {}\n").0, 1);
        assert_eq!(found("x.rs", "//! ```text\n//! a -> b\n//! ```\nfn a() {}\n"), []);
    }

    #[test]
    fn a_function_of_seventy_lines_is_found() {
        let body = |lines| format!("\nfn long() {{\n{}}}\n", "    a();\n".repeat(lines));
        assert_eq!(found("x.rs", &body(67)), Vec::new());
        assert_eq!(only("x.rs", &body(68)).0, 2);
    }

    #[test]
    fn loose_ends_are_found_in_their_place_only() {
        assert_eq!(only("x.rs", "fn a() {\n    // TODO: more\n}\n").0, 2);
        assert_eq!(only("x.rs", "fn a() { todo!() }").0, 1);
        assert_eq!(only("x.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}").0, 2);
        assert_eq!(found("x.rs", "const A: &str = \"TODO todo!() #[ignore]\";"), Vec::new());
    }

    #[test]
    fn a_test_that_sleeps_says_why() {
        let sleeping = "async fn a() {\n    tokio::time::sleep(ms).await;\n}\n";
        assert_eq!(found("crates/x/src/lib.rs", sleeping), Vec::new());
        assert_eq!(only("crates/x/tests/a.rs", sleeping).0, 2);
        assert_eq!(only("crates/x/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{\n{sleeping}}}\n")).0, 4);
        let reasoned = sleeping.replace("    tokio", "    // Sleeps because the stub is slow.\n    tokio");
        assert_eq!(found("crates/x/tests/a.rs", &reasoned), Vec::new());
    }

    #[test]
    fn what_is_shipped_names_no_folder_of_the_machine_that_builds_it() {
        let folder = "const A: &str = env!(\"CARGO_MANIFEST_DIR\");\n";
        assert_eq!(only("crates/x/src/lib.rs", folder).0, 1);
        assert_eq!(
            found("crates/x/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{\n{folder}}}\n")),
            Vec::new()
        );
        for elsewhere in ["crates/x/tests/a.rs", "crates/testkit/src/lib.rs", "xtask/src/main.rs"] {
            assert_eq!(found(elsewhere, folder), Vec::new());
        }
    }
}
