//! Rust source as the tidy rules read it: code apart from comments, strings blanked.
//!
//! The rules look for words and braces. A word inside a string is not code and a brace inside a
//! character literal opens nothing, so [`Source::new`] splits a file into two views of the same
//! shape: `code` has every comment, string and character literal blanked, `comments` has everything
//! else blanked. Line numbers are the same in both.
//!
//! A lexer of 100 lines rather than `syn`: nothing here needs a syntax tree, a file that does not
//! parse is the compiler's business, and xtask is the first thing that a clean clone builds.
//! What is deliberately not here: macro expansion, `cfg` evaluation.

use std::ops::Range;

/// One Rust file, split into what is code and what is comment.
pub(crate) struct Source {
    /// Path from the repository's root, with `/`.
    pub(crate) path: String,
    /// Lines of code; comments and the insides of literals are spaces.
    pub(crate) code: Vec<String>,
    /// Lines of comments; code is spaces.
    pub(crate) comments: Vec<String>,
    /// The lines as they are written.
    pub(crate) raw: Vec<String>,
    tests: Vec<Range<usize>>,
}

impl Source {
    /// Splits `text`, the content of the file at `path`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let code: Vec<String> = code.lines().map(str::to_owned).collect();
        let tests = test_modules(&code);
        Self {
            path: path.to_owned(),
            comments: comments.lines().map(str::to_owned).collect(),
            raw: text.lines().map(str::to_owned).collect(),
            code,
            tests,
        }
    }

    /// Whether this line (counted from 0) belongs to tests: a file of `tests/`, a module's `tests.rs`, or an item marked `#[cfg(test)]`.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        let is_file_of_tests = self.path.contains("/tests/") || self.path.ends_with("/tests.rs");
        is_file_of_tests || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Every function that has a body: its name and the lines (counted from 0) it covers.
    pub(crate) fn functions(&self) -> Vec<(String, Range<usize>)> {
        let mut found = Vec::new();
        for (number, line) in self.code.iter().enumerate() {
            for (column, _) in line.match_indices("fn ") {
                if !starts_word(line, column) {
                    continue;
                }
                let name: String =
                    line[column + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if name.is_empty() {
                    continue;
                }
                if let Some(end) = body_end(&self.code, number, column) {
                    found.push((name, number..end + 1));
                }
            }
        }
        found
    }
}

/// Whether the word that begins at `column` is not the tail of a longer one.
pub(crate) fn starts_word(line: &str, column: usize) -> bool {
    line[..column].chars().next_back().is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
}

/// The line on which the block that opens after (`line`, `column`) closes; `None` if a `;` comes first.
fn body_end(code: &[String], line: usize, column: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (number, text) in code.iter().enumerate().skip(line) {
        let from = if number == line { column } else { 0 };
        for c in text[from..].chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if braces == 0 && brackets == 0 => return None,
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 && brackets == 0 {
                        return Some(number);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

fn test_modules(code: &[String]) -> Vec<Range<usize>> {
    let starts = code.iter().enumerate().filter(|(_, line)| line.contains("#[cfg(test)]"));
    // An item without a body (`mod tests;`) ends with its `;`.
    let end = |line: usize| {
        body_end(code, line + 1, 0).or_else(|| (line + 1..code.len()).find(|at| code[*at].contains(';')))
    };
    starts.filter_map(|(line, _)| end(line).map(|end| line..end + 1)).collect()
}

/// What the lexer is inside of.
enum Inside {
    Code,
    LineComment,
    BlockComment(u32),
    Text,
    RawText(usize),
}

fn split(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let before = inside_comment(&inside);
        let taken = step(&mut inside, rest, at.checked_sub(1).map(|i| chars[i]));
        let comment = before || inside_comment(&inside);
        // A literal keeps its quotes' place but not its content.
        let plain = matches!(inside, Inside::Code) && !comment && taken == 1 && rest[0] != '"';
        for &c in &rest[..taken] {
            code.push(if c == '\n' || plain { c } else { ' ' });
            comments.push(if c == '\n' || comment { c } else { ' ' });
        }
        at += taken;
    }
    (code, comments)
}

fn inside_comment(inside: &Inside) -> bool {
    matches!(inside, Inside::LineComment | Inside::BlockComment(_))
}

/// Moves over the next piece of text; returns how many characters it has (at least 1).
fn step(inside: &mut Inside, rest: &[char], previous: Option<char>) -> usize {
    let next = rest.get(1).copied();
    match (&mut *inside, rest[0]) {
        (Inside::Code, '/') if next == Some('/') => (*inside = Inside::LineComment, 2).1,
        (Inside::Code, '/') if next == Some('*') => (*inside = Inside::BlockComment(1), 2).1,
        (Inside::Code, '"') => (*inside = Inside::Text, 1).1,
        (Inside::Code, 'r') if previous.is_none_or(|c| !c.is_alphanumeric() && c != '_' || c == 'b') => {
            let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
            if rest.get(1 + hashes) != Some(&'"') {
                return 1;
            }
            *inside = Inside::RawText(hashes);
            2 + hashes
        }
        (Inside::Code, '\'') => char_literal(rest),
        (Inside::LineComment, '\n') => (*inside = Inside::Code, 1).1,
        (Inside::BlockComment(depth), '/') if next == Some('*') => (*depth += 1, 2).1,
        (Inside::BlockComment(depth), '*') if next == Some('/') => {
            *depth -= 1;
            if *depth == 0 {
                *inside = Inside::Code;
            }
            2
        }
        (Inside::Text, '\\') => rest.len().min(2),
        (Inside::Text, '"') => (*inside = Inside::Code, 1).1,
        (Inside::RawText(hashes), '"') if rest[1..].iter().take_while(|c| **c == '#').count() >= *hashes => {
            let taken = 1 + *hashes;
            *inside = Inside::Code;
            taken
        }
        _ => 1,
    }
}

/// Length of the literal `'x'`, `'\n'`, `'\u{1F600}'`; 1 if this quote begins a lifetime.
fn char_literal(rest: &[char]) -> usize {
    let escaped = rest.get(1) == Some(&'\\');
    if !escaped {
        return if rest.get(2) == Some(&'\'') { 3 } else { 1 };
    }
    let end = rest.iter().skip(3).take(10).position(|c| *c == '\'');
    end.map_or(1, |end| end + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_not_code() {
        let text = "let a = \"fn x() {\"; // fn y() {\nlet b = r#\"}\"#; /* { /* { */ } */ let c = '{';\nlet d: &'a str;\n";
        let source = Source::new("crates/x/src/lib.rs", text);
        assert!(!source.code.join("\n").contains(['{', '}']), "{:?}", source.code);
        assert!(source.code[0].contains("let a"));
        assert!(source.comments[0].contains("fn y()") && !source.comments[0].contains("let a"));
        assert!(source.code[1].contains("let c"));
        assert!(source.code[2].contains("let d: &'a str;"));
    }

    #[test]
    fn an_escaped_quote_does_not_end_a_literal() {
        let source = Source::new("x.rs", r#"let q = '\''; let s = "a\"b {"; let u = '\u{7B}'; fn real() {}"#);
        assert_eq!(source.functions(), vec![("real".to_owned(), 0..1)]);
    }

    #[test]
    fn functions_end_where_their_own_braces_close() {
        let text = "trait T {\n    fn declared(&self);\n    fn given(a: [u8; 4]) -> u8\n    where\n        u8: Copy,\n    {\n        if a[0] == 1 { 2 } else { 3 }\n    }\n}\n";
        assert_eq!(Source::new("x.rs", text).functions(), vec![("given".to_owned(), 2..8)]);
    }

    #[test]
    fn test_modules_are_known() {
        let source =
            Source::new("crates/x/src/lib.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n");
        assert!(!source.is_test(0) && source.is_test(3));
        let source = Source::new("crates/x/src/lib.rs", "#[cfg(test)]\nuse a::B;\nfn c() {}\n");
        assert!(source.is_test(1) && !source.is_test(2));
        for path in ["crates/x/tests/all.rs", "crates/x/src/y/tests.rs"] {
            assert!(Source::new(path, "fn a() {}").is_test(0), "{path}");
        }
    }
}
