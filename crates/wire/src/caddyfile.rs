//! The syntax of a Caddyfile as a tree of lines that know their places.
//!
//! ```text
//!   file = { line }
//!   line = word { word } newline | [ word { word } ] "{" newline { line } "}" newline
//! ```
//!
//! A word that begins with `"` or `` ` `` ends at the same sign and may have several lines. A backslash at the end of a line joins it to
//! the next one, as a comma does between the addresses of a site. What a line means, which blocks are sites, and what `{$NAME}` stands for
//! is decided by whoever takes the tree.
//!
//! | bound | value |
//! |---|---|
//! | bytes of a file | [`MAX_BYTES`](crate::yaml::MAX_BYTES) |
//! | nesting | [`MAX_DEPTH`] |
//! | lines with words | [`MAX_DIRECTIVES`] |
//! | bytes of a word | [`MAX_WORD_BYTES`] |
//!
//! Deliberately absent: heredocs, which are refused at their line, and going on after a mistake.

use std::iter::Peekable;
use std::str::Chars;

use crate::nginx_conf::{START, text, wrong};
use crate::yaml::{Finding, Position};

/// Deepest nesting of blocks.
pub const MAX_DEPTH: usize = 32;
/// Most lines of one file that have words.
pub const MAX_DIRECTIVES: usize = 10_000;
/// Most bytes of one word.
pub const MAX_WORD_BYTES: usize = 65_536;

/// A line, and the block that begins at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaddyDirective {
    /// Where it begins.
    pub place: Position,
    /// Its words without quotes; none for the block of global options.
    pub words: Vec<String>,
    /// What stands in its braces, if it has any.
    pub block: Option<Vec<Self>>,
}

impl CaddyDirective {
    /// Its first word.
    #[must_use]
    pub fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The words behind the first.
    #[must_use]
    pub fn arguments(&self) -> Vec<&str> {
        self.words.iter().skip(1).map(String::as_str).collect()
    }

    /// The lines of its block.
    #[must_use]
    pub fn lines(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Reads a file.
///
/// # Errors
/// The first place at which it has no meaning.
pub fn read(bytes: &[u8]) -> Result<Vec<CaddyDirective>, Finding> {
    let text = text(bytes)?;
    let letters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    let mut words = CaddyWords { letters, place: START };
    let mut tree = CaddyTree::default();
    let mut follows_brace = false;
    loop {
        let (place, begins_line, token) = words.next_token()?;
        if follows_brace && !begins_line && !matches!(token, CaddyToken::End) {
            return Err(wrong(place, "follows a brace on its line", "a new line after { and }"));
        }
        follows_brace = matches!(token, CaddyToken::Open | CaddyToken::Close);
        match token {
            CaddyToken::Word(word) => tree.word(place, begins_line, word)?,
            CaddyToken::Open => tree.open(place, begins_line)?,
            CaddyToken::Close => tree.close(place, begins_line)?,
            CaddyToken::End => return tree.end(),
        }
    }
}

/// The lines that are read so far.
#[derive(Default)]
struct CaddyTree {
    /// The lines whose blocks are open, each with the lines before it.
    open: Vec<(CaddyDirective, Vec<CaddyDirective>)>,
    list: Vec<CaddyDirective>,
    /// The line that is being read.
    line: Option<CaddyDirective>,
    count: usize,
}

impl CaddyTree {
    fn word(&mut self, place: Position, begins_line: bool, word: String) -> Result<(), Finding> {
        let is_list_of_sites = |it: &CaddyDirective| it.words.last().is_some_and(|last| last.ends_with(','));
        let goes_on =
            !begins_line || self.open.is_empty() && self.line.as_ref().is_some_and(is_list_of_sites);
        if !goes_on {
            self.list.extend(self.line.take());
        }
        if self.line.is_none() {
            self.begin(place)?;
        }
        if let Some(line) = &mut self.line {
            line.words.push(word);
        }
        Ok(())
    }

    fn begin(&mut self, place: Position) -> Result<(), Finding> {
        self.count += 1;
        if self.count > MAX_DIRECTIVES {
            return Err(wrong(place, "is one line too many", format!("at most {MAX_DIRECTIVES}")));
        }
        self.line = Some(CaddyDirective { place, words: Vec::new(), block: None });
        Ok(())
    }

    fn open(&mut self, place: Position, begins_line: bool) -> Result<(), Finding> {
        if self.open.len() == MAX_DEPTH {
            return Err(wrong(place, "is nested too deep", format!("at most {MAX_DEPTH} blocks")));
        }
        if begins_line {
            let is_first = self.open.is_empty() && self.list.is_empty() && self.line.is_none();
            if !is_first {
                return Err(wrong(place, "begins a line", "{ at the end of a line, but for global options"));
            }
            self.begin(place)?;
        }
        if let Some(line) = self.line.take() {
            self.open.push((line, std::mem::take(&mut self.list)));
        }
        Ok(())
    }

    fn close(&mut self, place: Position, begins_line: bool) -> Result<(), Finding> {
        if !begins_line {
            return Err(wrong(place, "stands at the end of a line", "} on a line of its own"));
        }
        self.list.extend(self.line.take());
        let Some((mut block, outer)) = self.open.pop() else {
            return Err(wrong(place, "closes a block that was not opened", "no }"));
        };
        block.block = Some(std::mem::replace(&mut self.list, outer));
        self.list.push(block);
        Ok(())
    }

    fn end(mut self) -> Result<Vec<CaddyDirective>, Finding> {
        self.list.extend(self.line.take());
        let Some((block, _)) = self.open.pop() else { return Ok(self.list) };
        Err(wrong(block.place, format!("the block of {:?} has no end", block.name()), "}"))
    }
}

enum CaddyToken {
    Word(String),
    Open,
    Close,
    End,
}

struct CaddyWords<'t> {
    letters: Peekable<Chars<'t>>,
    /// Of the next letter.
    place: Position,
}

impl CaddyWords<'_> {
    fn letter(&mut self) -> Option<char> {
        let letter = self.letters.next()?;
        if letter == '\n' {
            self.place = Position { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(letter)
    }

    /// The next token, and whether a line begins with it.
    fn next_token(&mut self) -> Result<(Position, bool, CaddyToken), Finding> {
        let mut begins_line = self.place == START;
        while let Some(letter) = self.letters.peek().copied() {
            match letter {
                '#' => {
                    while self.letters.peek().is_some_and(|letter| *letter != '\n') {
                        self.letter();
                    }
                }
                '\\' if self.ends_line() => while self.letter().is_some_and(|letter| letter != '\n') {},
                letter if letter.is_whitespace() => {
                    begins_line |= letter == '\n';
                    self.letter();
                }
                _ => break,
            }
        }
        let place = self.place;
        let token = match self.letters.peek() {
            None => CaddyToken::End,
            Some('"' | '`') => CaddyToken::Word(self.quoted(place)?),
            Some(_) => match self.plain(place)?.as_str() {
                "{" => CaddyToken::Open,
                "}" => CaddyToken::Close,
                word if word.starts_with("<<") && word.len() > 2 => {
                    return Err(wrong(
                        place,
                        "is a heredoc, which is not read",
                        "a text in quotes or backticks",
                    ));
                }
                word => CaddyToken::Word(word.to_owned()),
            },
        };
        Ok((place, begins_line, token))
    }

    /// Whether the next letter is the last one of its line.
    fn ends_line(&self) -> bool {
        let mut ahead = self.letters.clone().skip(1).skip_while(|letter| *letter == '\r');
        ahead.next() == Some('\n')
    }

    fn quoted(&mut self, place: Position) -> Result<String, Finding> {
        let quote = self.letter();
        let mut word = String::new();
        loop {
            match self.letter() {
                None => return Err(wrong(place, "the quotes have no end", "quotes that are closed")),
                letter if letter == quote => return Ok(word),
                Some('\\') if quote == Some('"') => {
                    // Quotes alone are escaped; before other letters the backslash stays.
                    if self.letters.peek() != Some(&'"') {
                        word.push('\\');
                    }
                    word.extend(self.letter());
                }
                Some(letter) => word.push(letter),
            }
            bounded(&word, place)?;
        }
    }

    fn plain(&mut self, place: Position) -> Result<String, Finding> {
        let mut word = String::new();
        while let Some(letter) = self.letters.peek().copied() {
            if letter.is_whitespace() || letter == '\\' && self.ends_line() {
                break;
            }
            word.extend(self.letter());
            bounded(&word, place)?;
        }
        Ok(word)
    }
}

fn bounded(word: &str, place: Position) -> Result<(), Finding> {
    if word.len() <= MAX_WORD_BYTES {
        return Ok(());
    }
    Err(wrong(place, "is too long", format!("a word of at most {MAX_WORD_BYTES} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::MAX_BYTES;

    fn shown(lines: &[CaddyDirective]) -> String {
        let one = |it: &CaddyDirective| {
            let block = it.block.as_ref().map(|block| format!(" {{ {} }}", shown(block)));
            format!("{}:{}{}", it.place.line, it.words.join("|"), block.unwrap_or_default())
        };
        lines.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn words_quotes_backticks_comments_and_blocks_are_read_as_caddy_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("\u{feff}a b # c {\n\n#d\ne#f", "1:a|b; 4:e#f"),
            (
                "{\n\temail x\n}\n:80 {\r\n\trespond \"a \\\" \\n b\" 200\r\n}\n",
                "1: { 2:email|x }; 4::80 { 5:respond|a \" \\n b|200 }",
            ),
            ("a `b\n\"{\n` c\nd", "1:a|b\n\"{\n|c; 4:d"),
            ("a \\\n  b\\\nc\nd", "1:a|b|c; 4:d"),
            ("a.example,\nb.example c {\n\tx ,\n\ty\n}", "1:a.example,|b.example|c { 3:x|,; 4:y }"),
            ("a {\n\tb {\n\t\tc {host} {}\n\t}\n}", "1:a { 2:b { 3:c|{host}|{} } }"),
            ("a \"{\" \"\" `}`", "1:a|{||}"),
            ("a {\n}", "1:a {  }"),
        ] {
            assert_eq!(read(text.as_bytes()).map(|read| shown(&read)), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_has_no_one_reading_is_refused_where_it_stands() {
        for (text, line, problem) in [
            ("a {\n b {\n }\n", 1, "the block of \"a\" has no end"),
            ("a\n}", 2, "closes a block that was not opened"),
            ("a { b\n}", 1, "follows a brace on its line"),
            ("a {\n b }", 2, "stands at the end of a line"),
            ("a {\n} b", 2, "follows a brace on its line"),
            ("a\n{\n}", 2, "begins a line"),
            ("a\nb \"c\n", 2, "the quotes have no end"),
            ("a `c\n", 1, "the quotes have no end"),
            ("a {\n respond <<END\n x\n END\n}", 2, "is a heredoc, which is not read"),
        ] {
            let found = read(text.as_bytes()).expect_err(text);
            assert_eq!((found.place.line, &*found.problem), (line, problem), "{text}");
        }
    }

    #[test]
    fn what_a_stranger_could_do_is_bounded() {
        let refused = |text: String| read(text.as_bytes()).expect_err("too much").problem;
        assert_eq!(refused("x".repeat(1 << 20)), "is too long");
        assert_eq!(refused(format!("`{}", "x".repeat(1 << 20))), "is too long");
        assert_eq!(refused("a {\n".repeat(1 << 10)), "is nested too deep");
        assert_eq!(refused("a\n".repeat(1 << 20)), "is one line too many");
        assert_eq!(refused("#".repeat(MAX_BYTES + 1)), "the file is too large");
    }
}
