//! The syntax of nginx's configuration as a tree whose directives know their places.
//!
//! ```text
//!   file      = { directive }
//!   directive = word { word } ( ";" | "{" { directive } "}" )
//! ```
//!
//! Words end at white space, `;` and `{`; quotes, escapes, comments and `${name}` are read as nginx reads
//! them. What a directive means, and that `include` names another file, is decided by whoever takes the tree.
//!
//! | bound | value |
//! |---|---|
//! | bytes of a file | [`MAX_BYTES`] |
//! | nesting | [`MAX_DEPTH`] |
//! | directives | [`MAX_DIRECTIVES`] |
//! | bytes of a word | [`MAX_WORD_BYTES`], nginx's own bound |
//!
//! Deliberately absent: blocks of Lua, which have a syntax of their own, and going on after a mistake:
//! what follows an unbalanced quote or brace is a guess. The crates that were looked at are named in
//! `docs/decisions/0171-nginx-configuration-by-a-small-reader.md`.

use std::iter::Peekable;
use std::str::Chars;

use crate::yaml::{Finding, MAX_BYTES, Position};

/// Deepest nesting of blocks.
pub const MAX_DEPTH: usize = 32;
/// Most directives of one file.
pub const MAX_DIRECTIVES: usize = 50_000;
/// Most bytes of one word.
pub const MAX_WORD_BYTES: usize = 4_096;

/// A directive: `name argument ...;`, or with a block in place of the semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Where it begins.
    pub place: Position,
    /// Its first word.
    pub name: String,
    /// The other words, without quotes and escapes.
    pub arguments: Vec<String>,
    /// What stands in its braces, if it has any.
    pub block: Option<Vec<Self>>,
}

/// Reads a file.
///
/// # Errors
/// The first place at which it has no meaning.
pub fn read(bytes: &[u8]) -> Result<Vec<Directive>, Finding> {
    let text = text(bytes)?;
    let mut words = WordReader { letters: text.chars().peekable(), place: START };
    let (mut open, mut list) = (Vec::new(), Vec::new());
    let mut statement: Option<Directive> = None;
    let mut count = 0;
    loop {
        let (place, token) = words.next_token()?;
        match (token, statement.take()) {
            (ConfToken::Word(word), Some(mut begun)) => {
                begun.arguments.push(word);
                statement = Some(begun);
            }
            (ConfToken::Word(name), None) => {
                count += 1;
                if count > MAX_DIRECTIVES {
                    let accepted = format!("at most {MAX_DIRECTIVES}");
                    return Err(wrong(place, "is one directive too many", accepted));
                }
                statement = Some(Directive { place, name, arguments: Vec::new(), block: None });
            }
            (ConfToken::Semicolon, Some(done)) => list.push(done),
            (ConfToken::Open, Some(begun)) => {
                if begun.name.ends_with("_by_lua_block") {
                    let accepted = "a file without blocks of Lua";
                    return Err(wrong(begun.place, "is a block of Lua, which is not read", accepted));
                }
                if open.len() == MAX_DEPTH {
                    return Err(wrong(place, "is nested too deep", format!("at most {MAX_DEPTH} blocks")));
                }
                open.push((begun, std::mem::take(&mut list)));
            }
            (ConfToken::Close, None) => {
                let Some((mut block, outer)) = open.pop() else {
                    return Err(wrong(place, "closes a block that was not opened", "no }"));
                };
                block.block = Some(std::mem::replace(&mut list, outer));
                list.push(block);
            }
            (ConfToken::Semicolon | ConfToken::Open, None) => {
                return Err(wrong(place, "stands where a directive begins", "a directive's name"));
            }
            (ConfToken::Close | ConfToken::End, Some(begun)) => {
                let problem = format!("{} has no end", begun.name);
                return Err(wrong(begun.place, problem, "; or { after it"));
            }
            (ConfToken::End, None) => {
                let Some((block, _)) = open.pop() else { return Ok(list) };
                return Err(wrong(block.place, format!("the block of {} has no end", block.name), "}"));
            }
        }
    }
}

pub(crate) const START: Position = Position { line: 1, column: 1 };

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Finding> {
    if bytes.len() > MAX_BYTES {
        return Err(wrong(START, "the file is too large", format!("at most {MAX_BYTES} bytes")));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        wrong(Position { line, column: 1 }, "the line is no UTF-8", "text in UTF-8")
    })
}

pub(crate) fn wrong(place: Position, problem: impl Into<String>, accepted: impl Into<String>) -> Finding {
    Finding { place, path: String::new(), problem: problem.into(), accepted: accepted.into() }
}

enum ConfToken {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

struct WordReader<'t> {
    letters: Peekable<Chars<'t>>,
    /// Of the next letter.
    place: Position,
}

impl WordReader<'_> {
    fn letter(&mut self) -> Option<char> {
        let letter = self.letters.next()?;
        if letter == '\n' {
            self.place = Position { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(letter)
    }

    fn next_token(&mut self) -> Result<(Position, ConfToken), Finding> {
        loop {
            let place = self.place;
            let token = match self.letters.peek() {
                None => ConfToken::End,
                Some(letter) if is_space(*letter) => {
                    self.letter();
                    continue;
                }
                Some('#') => {
                    while self.letter().is_some_and(|letter| letter != '\n') {}
                    continue;
                }
                Some(';') => ConfToken::Semicolon,
                Some('{') => ConfToken::Open,
                Some('}') => ConfToken::Close,
                Some('"' | '\'') => return Ok((place, ConfToken::Word(self.quoted(place)?))),
                Some(_) => return Ok((place, ConfToken::Word(self.plain(place)?))),
            };
            self.letter();
            return Ok((place, token));
        }
    }

    /// A word in quotes. What follows it must end it, or nginx refuses the file.
    fn quoted(&mut self, place: Position) -> Result<String, Finding> {
        let quote = self.letter();
        let mut word = String::new();
        loop {
            match self.letter() {
                None => return Err(wrong(place, "the quotes have no end", "quotes that are closed")),
                letter if letter == quote => break,
                Some('\\') => self.escape(&mut word),
                Some(letter) => word.push(letter),
            }
            bounded(&word, place)?;
        }
        match self.letters.peek() {
            None | Some(';' | '{' | ')') => Ok(word),
            Some(letter) if is_space(*letter) => Ok(word),
            Some(letter) => {
                let problem = format!("{letter:?} follows the quotes at once");
                Err(wrong(self.place, problem, "white space, ; or { after them"))
            }
        }
    }

    fn plain(&mut self, place: Position) -> Result<String, Finding> {
        let mut word = String::new();
        let mut after_dollar = false;
        while let Some(letter) = self.letters.peek().copied() {
            if is_space(letter) || letter == ';' || letter == '{' && !after_dollar {
                break;
            }
            self.letter();
            match letter {
                '\\' => self.escape(&mut word),
                letter => word.push(letter),
            }
            after_dollar = letter == '$';
            bounded(&word, place)?;
        }
        Ok(word)
    }

    /// What follows a backslash. Before other letters than these the backslash stays, for regular expressions.
    fn escape(&mut self, word: &mut String) {
        match self.letter() {
            Some(letter @ ('"' | '\'' | '\\')) => word.push(letter),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(letter) => word.extend(['\\', letter]),
            None => word.push('\\'),
        }
    }
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
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

    fn shown(directives: &[Directive]) -> String {
        let one = |it: &Directive| {
            let words: Vec<String> = it.arguments.iter().map(|word| format!(" {word:?}")).collect();
            let block = it.block.as_ref().map(|block| format!(" {{ {} }}", shown(block)));
            format!("{}:{}{}{}", it.place.line, it.name, words.concat(), block.unwrap_or_default())
        };
        directives.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn words_quotes_escapes_comments_and_blocks_are_read_as_nginx_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("a;", "1:a"),
            ("a b\n  c;# d;\ne{}", "1:a \"b\" \"c\"; 3:e {  }"),
            ("a 'b c' \"d;{}\" e#f;", "1:a \"b c\" \"d;{}\" \"e#f\""),
            ("return 200 'it\\'s\\n';", "1:return \"200\" \"it's\\n\""),
            (r"location ~ \.php$ { x \d+; }", r#"1:location "~" "\\.php$" { 1:x "\\d+" }"#),
            ("set $a ${b}c;", "1:set \"$a\" \"${b}c\""),
            ("a{b{c;}}d e};", "1:a { 1:b { 1:c } }; 1:d \"e}\""),
            ("a\\ b;", "1:a\\ b"),
            ("'';", "1:"),
        ] {
            assert_eq!(read(text.as_bytes()).map(|read| shown(&read)), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_has_no_one_reading_is_refused_where_it_stands() {
        for (text, line, problem) in [
            ("a", 1, "a has no end"),
            ("a {\n b;\n", 1, "the block of a has no end"),
            ("a;\n}", 2, "closes a block that was not opened"),
            ("a { b }", 1, "b has no end"),
            ("\n;", 2, "stands where a directive begins"),
            ("{}", 1, "stands where a directive begins"),
            ("a \"b", 1, "the quotes have no end"),
            ("a \"b\"c;", 1, "'c' follows the quotes at once"),
            ("x { content_by_lua_block { a = \"}\" } }", 1, "is a block of Lua, which is not read"),
        ] {
            let found = read(text.as_bytes()).expect_err(text);
            assert_eq!((found.place.line, &*found.problem), (line, problem), "{text}");
        }
        assert_eq!(read(b"a;\n\xff;").expect_err("no text").place.line, 2);
    }

    #[test]
    fn what_a_stranger_could_do_is_bounded() {
        let refused = |text: String| read(text.as_bytes()).expect_err("too much").problem;
        assert_eq!(refused("x".repeat(1 << 20)), "is too long");
        assert_eq!(refused(format!("a '{}';", "\\\"".repeat(1 << 20))), "is too long");
        assert_eq!(refused("a{".repeat(1 << 20)), "is nested too deep");
        assert_eq!(refused("a;".repeat(1 << 20)), "is one directive too many");
        assert_eq!(refused("#".repeat(MAX_BYTES + 1)), "the file is too large");
        let longest = format!("{} {};", "n".repeat(MAX_WORD_BYTES), "a".repeat(MAX_WORD_BYTES));
        assert_eq!(read(longest.as_bytes()).map(|read| read.len()), Ok(1));
        let deep = format!("{}{}", "a{".repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
        assert_eq!(read(deep.as_bytes()).map(|read| read.len()), Ok(1));
    }
}
