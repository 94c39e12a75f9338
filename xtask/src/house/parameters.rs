//! Functions that take a tuple: at each call, a reader has to look up what `.0` and `.1` are, and which comes first.

use super::CountedItem;
use super::rooms::CrateRoom;
use super::tokens::{CodeToken, closing, is_name, text_at};

/// The functions of the crate of which a parameter is a tuple, or a reference to one.
pub(super) fn tuples(room: &CrateRoom<'_>) -> Vec<CountedItem> {
    let mut found = Vec::new();
    for file in &room.files {
        let tokens = file.tokens();
        for (at, token) in tokens.iter().enumerate() {
            let name = text_at(&tokens, at + 1);
            if token.text == "fn" && is_name(name) && takes_tuple(parameters(&tokens, at + 2)) {
                found.push(CountedItem {
                    room: room.name.clone(),
                    name: format!("`{name}` ({})", file.source.path),
                    detail: format!("line {}", token.line),
                });
            }
        }
    }
    found
}

/// What stands between the parentheses of the signature that goes on at `at`, behind the function's name.
fn parameters<'a, 'b>(tokens: &'b [CodeToken<'a>], mut at: usize) -> &'b [CodeToken<'a>] {
    if text_at(tokens, at) == "<" {
        at = closing(tokens, at) + 1;
    }
    let end = closing(tokens, at);
    tokens.get(at + 1..end).unwrap_or_default()
}

fn takes_tuple(parameters: &[CodeToken<'_>]) -> bool {
    let mut rest = parameters;
    while !rest.is_empty() {
        let end = end_of_part(rest, ",");
        let parameter = &rest[..end];
        if is_tuple(parameter.get(end_of_part(parameter, ":") + 1..).unwrap_or_default()) {
            return true;
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    false
}

fn is_tuple(tokens: &[CodeToken<'_>]) -> bool {
    let is_before = |text: &str| text == "&" || text == "mut" || text.starts_with('\'');
    let start = tokens.iter().take_while(|token| is_before(token.text)).count();
    let Some(inside) = tokens.get(start + 1..closing(tokens, start)) else { return false };
    // Parentheses without a comma are those of `&(dyn A + B)`.
    tokens[start].text == "(" && end_of_part(inside, ",") < inside.len()
}

/// Where the first such sign stands that is in no bracket; the end if there is none.
fn end_of_part(tokens: &[CodeToken<'_>], sign: &str) -> usize {
    let mut at = 0;
    while at < tokens.len() && tokens[at].text != sign {
        at = if ["(", "[", "{", "<"].contains(&tokens[at].text) { closing(tokens, at) + 1 } else { at + 1 };
    }
    at.min(tokens.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::rooms::rooms;
    use crate::source::Source;

    #[test]
    fn tuples_are_found_behind_references_and_patterns_and_nothing_else_is_one() {
        let text = "
            fn plain(&self, at: (u8, Vec<(u8, u8)>)) {}
            fn behind<'a, F: Fn(u8, u8) -> bool>(it: &'a mut (A, B), f: F) -> u8 { 1 }
            fn pattern((a, b): (u8, u8)) {}
            fn unit(it: (), f: impl Fn((u8, u8)) -> (u8, u8), g: fn(u8, (u8, u8))) -> (u8, u8) { it }
            fn bound(it: &(dyn Fn(u8, u8) + Send), map: Map<u8, (u8, u8)>, slice: &[(u8, u8)]) {}
            #[cfg(test)]
            fn test(it: (u8, u8)) {}
        ";
        let sources = [Source::new("crates/x/src/lib.rs", text)];
        let found: Vec<_> = tuples(&rooms(&sources)[0]).into_iter().map(|item| item.name).collect();
        let expected = ["plain", "behind", "pattern"].map(|name| format!("`{name}` (crates/x/src/lib.rs)"));
        assert_eq!(found, expected);
    }
}
