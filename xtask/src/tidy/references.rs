//! References in documents and comments: files of this repository, `make` targets, chores, tests.
//!
//! A path is checked when it is written as `code` in Markdown, or in a Rust, TOML or Make comment,
//! and begins with a folder of ours; a name with a placeholder (`NNNN`, `<name>`, `*`) is not.
//! A test is a name of four words or more in the `code` of Markdown, as documents state what they
//! promise beside the test that checks it, in whatever language; metrics' names look the same and begin with our own, and a
//! setting's name of four words stands in quotes in the source.
//! `CHANGELOG.md` tells of the past and is left alone.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use super::{Finding, TextFile};
use crate::markdown::Document;

/// Folders whose paths are checked wherever they are mentioned.
const FOLDERS: &[&str] =
    &["clients/", "crates/", "deploy/", "docs/", "fuzz/", "regression/", "scenarios/", "web/", "xtask/"];
/// What a function begins with, by how its file ends.
const FUNCTIONS: [(&str, &str); 4] = [(".rs", "fn "), (".py", "def "), (".go", "func "), (".java", "void ")];
/// Folders below them that only exist after a run.
const MADE: &[&str] = &["fuzz/artifacts", "fuzz/corpus"];

/// The names that `make` and `cargo xtask` answer to, and those of all functions.
pub(super) struct KnownNames {
    targets: BTreeSet<String>,
    chores: BTreeSet<String>,
    functions: BTreeSet<String>,
    settings: BTreeSet<String>,
}

impl KnownNames {
    /// Reads the `Makefile`'s targets, and the functions of `files`.
    pub(super) fn read(root: &Path, files: &[TextFile]) -> anyhow::Result<Self> {
        let makefile = std::fs::read_to_string(root.join("Makefile")).context("Makefile")?;
        Ok(Self::new(&makefile, crate::CHORES, files))
    }

    pub(super) fn new(makefile: &str, chores: &[(&str, &str)], files: &[TextFile]) -> Self {
        let rules = makefile.lines().filter(|line| !line.starts_with(['\t', '#', '.', ' ']));
        let targets = rules.filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
        Self {
            targets: targets.collect(),
            chores: chores.iter().map(|(name, _)| (*name).to_owned()).collect(),
            functions: files.iter().flat_map(functions).collect(),
            settings: files.iter().filter(|file| file.path.ends_with(".rs")).flat_map(quoted).collect(),
        }
    }

    /// Whether a function is called so, in one of our languages.
    pub(super) fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }
}

/// Every mention of something that is not there.
pub(super) fn check(files: &[TextFile], known: &KnownNames, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path != "CHANGELOG.md") {
        let is_document = file.path.ends_with(".md");
        for (line, mention) in mentions(file) {
            let why = missing(&mention, known, is_document, &exists);
            findings.extend(why.map(|why| Finding::at(&file.path, line, why)));
        }
    }
    findings
}

fn mentions(file: &TextFile) -> Vec<(usize, String)> {
    if file.path.ends_with(".md") {
        return Document::new(&file.text).spans;
    }
    let mark = match file.path.rsplit_once('.') {
        Some((_, "rs")) => "//",
        Some((_, "toml")) => "#",
        _ => return Vec::new(),
    };
    let comments =
        file.text.lines().enumerate().filter_map(|(n, line)| Some((n, line.trim().strip_prefix(mark)?)));
    let words = comments.flat_map(|(n, comment)| comment.split_whitespace().map(move |word| (n, word)));
    words
        .map(|(n, word)| (n, word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/').to_owned()))
        .collect()
}

fn functions(file: &TextFile) -> impl Iterator<Item = String> + '_ {
    let begin = FUNCTIONS.iter().find(|(ending, _)| file.path.ends_with(ending)).map(|(_, begin)| *begin);
    let names = begin.into_iter().flat_map(|begin| file.text.split(begin).skip(1));
    names.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

/// Words of four parts in quotes: settings' names.
fn quoted(file: &TextFile) -> impl Iterator<Item = String> + '_ {
    file.text.split('"').filter(|text| is_test(text)).map(str::to_owned)
}

/// Whether a word is what only a test is called: four words or more, and no metric.
fn is_test(word: &str) -> bool {
    let parts: Vec<_> = word.split('_').collect();
    let plain =
        |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    parts.len() >= 4 && parts[0] != "tidegate" && parts.iter().all(plain)
}

fn missing(
    mention: &str,
    known: &KnownNames,
    is_document: bool,
    exists: &impl Fn(&str) -> bool,
) -> Option<String> {
    let mut words = mention.split_whitespace();
    match (words.next()?, words.next()) {
        ("make", Some(target)) if is_name(target) && !known.targets.contains(target) => {
            return Some(format!("`make {target}` is no target of the Makefile: mend the name or add it"));
        }
        ("cargo", Some("xtask")) => {
            let chore = words.next().filter(|chore| is_name(chore))?;
            let unknown = !known.chores.contains(chore);
            return unknown
                .then(|| format!("`cargo xtask {chore}` is no chore of xtask: mend the name or add it"));
        }
        (_, Some(_)) => return None,
        _ => {}
    }
    let is_known = known.functions.contains(mention) || known.settings.contains(mention);
    if is_document && is_test(mention) && !is_known {
        return Some(format!("there is no test `{mention}`: mend the name or write it"));
    }
    let ours = FOLDERS.iter().any(|folder| mention.starts_with(folder) && mention.len() > folder.len());
    let made = MADE.iter().any(|made| mention.starts_with(made));
    let placeholder =
        mention.contains(['*', '<', '{', '$', '…']) || mention.contains("NN") || mention.contains("...");
    let path = mention.split(':').next().unwrap_or(mention).trim_end_matches('/');
    (ours && !made && !placeholder && !exists(path)).then(|| format!("there is no `{path}`: mend the path"))
}

fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let test = TextFile { path: "t.rs".to_owned(), text: "fn a_test_that_is_there() {}".to_owned() };
        let known = KnownNames::new("run: setup ## x\n\tcargo build\n.PHONY: a\n", &[("tidy", "")], &[test]);
        let files = [TextFile { path: path.to_owned(), text: text.to_owned() }];
        check(&files, &known, |path| path == "docs/a.md").into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_path_that_is_not_there_is_found() {
        let text = "`docs/a.md` `docs/a.md:3`\n`docs/b.md`\n`docs/decisions/NNNN-*.md` docs/c.md\n`a/b`\n";
        assert_eq!(lines("README.md", text), [2]);
        assert_eq!(lines("x.rs", "// See docs/a.md.\n// See `docs/b.md`.\nlet a = \"docs/c.md\";\n"), [2]);
        assert_eq!(lines("CHANGELOG.md", "`docs/b.md`\n"), Vec::<usize>::new());
    }

    #[test]
    fn a_command_that_is_not_there_is_found() {
        let text = "`make run`\n`make cake`\n`cargo xtask tidy`\n`cargo xtask cake`\n`make sure it is`\n";
        assert_eq!(lines("README.md", text), [2, 4, 5]);
    }

    #[test]
    fn functions_of_each_language_are_known() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("a.rs", "fn one() {}"),
            file("a.py", "def two() -> None:"),
            file("a.go", "func TestThree(t *testing.T) {"),
            file("A.java", "  void four() throws Exception {"),
            file("a.md", "fn five() {}"),
        ];
        let known = KnownNames::new("", &[], &files);
        let found = ["one", "two", "TestThree", "four", "five"].map(|name| known.has_function(name));
        assert_eq!(found, [true, true, true, true, false]);
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let text =
            "`a_test_that_is_there`\n`a_test_that_is_not`\n`too_few_words`\n`tidegate_a_long_metric`\n";
        assert_eq!(lines("docs/a.md", text), [2]);
        assert_eq!(lines("x.rs", "// As in a_test_that_is_not.\n"), Vec::<usize>::new());
    }
}
