//! Code as words and signs, for measurements that read items and paths but need no syntax tree.
//!
//! Comments and literals are blank already ([`crate::source::Source`]). No `syn`, for the reasons in the header of `source.rs`.

/// A word, a lifetime, `::`, `->`, `=>`, or one other character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeToken<'a> {
    /// As it is written.
    pub(super) text: &'a str,
    /// Its line, counted from 1.
    pub(super) line: usize,
}

/// The tokens of these lines of code.
pub(super) fn tokens(code: &[String]) -> Vec<CodeToken<'_>> {
    let mut found = Vec::new();
    for (number, line) in code.iter().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let (text, after) = rest.split_at(length(rest, first));
            found.push(CodeToken { text, line: number + 1 });
            rest = after.trim_start();
        }
    }
    found
}

fn length(rest: &str, first: char) -> usize {
    let word = |text: &str| text.find(|c| !is_word(c)).unwrap_or(text.len());
    if is_word(first) {
        return word(rest);
    }
    if first == '\'' {
        return 1 + word(&rest[1..]);
    }
    let is_pair = ["::", "->", "=>"].iter().any(|pair| rest.starts_with(pair));
    if is_pair { 2 } else { first.len_utf8() }
}

/// The words of one line.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether this token is a name or a keyword.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The text at `at`; empty after the end.
pub(super) fn text_at<'a>(tokens: &[CodeToken<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

/// Where the bracket that opens at `at` is closed, or the end. Counts all four kinds; `<` is one, so this is for signatures and types.
pub(super) fn closing(tokens: &[CodeToken<'_>], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return place;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_signs_are_told_apart() {
        let lines = ["fn f<'a>(x: &'a a::B_2)".to_owned(), "-> Vec<Vec<u8>> {".to_owned()];
        let found = tokens(&lines);
        let texts: Vec<&str> = found.iter().map(|token| token.text).collect();
        let expected = "fn f < 'a > ( x : & 'a a :: B_2 ) -> Vec < Vec < u8 > > {";
        assert_eq!(texts, expected.split(' ').collect::<Vec<_>>());
        assert_eq!((found[0].line, found[15].line), (1, 2));
        assert_eq!(closing(&found, 5), 13);
        assert_eq!(closing(&found, 16), 21);
    }
}
