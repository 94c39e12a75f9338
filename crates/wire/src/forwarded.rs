//! The grammar of `Forwarded` (RFC 7239, 4): elements between commas, pairs between semicolons, values that are tokens or
//! texts in quotes.

use std::borrow::Cow;

use thiserror::Error;

/// What one proxy says of the request that it got. Pairs of other names are read and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element<'f> {
    /// `for`: who sent it.
    pub node: Option<Cow<'f, str>>,
    /// `proto`: by which scheme.
    pub proto: Option<Cow<'f, str>>,
    /// `host`: the host that was asked for.
    pub host: Option<Cow<'f, str>>,
}

/// A line of the field that breaks the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the field forwarded is malformed")]
pub struct MalformedForwarded;

/// The elements of a line of the field, from left to right.
///
/// # Errors
/// When it breaks the grammar.
pub fn read(line: &str) -> Result<Vec<Element<'_>>, MalformedForwarded> {
    elements(line).ok_or(MalformedForwarded)
}

fn elements(line: &str) -> Option<Vec<Element<'_>>> {
    let mut elements = Vec::new();
    let (mut rest, mut element, mut is_empty) = (line, Element::default(), true);
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with([',', ';']) {
            let (name, after) = token(rest)?;
            let (value, after) = value(after.strip_prefix('=')?)?;
            let place = match name.to_ascii_lowercase().as_str() {
                "for" => Some(&mut element.node),
                "proto" => Some(&mut element.proto),
                "host" => Some(&mut element.host),
                _ => None,
            };
            if place.is_some_and(|place| place.replace(value).is_some()) {
                return None;
            }
            (rest, is_empty) = (after.trim_start_matches([' ', '\t']), false);
        }
        match rest.as_bytes().first() {
            Some(b';') => {}
            // Lists may have elements with nothing in them (RFC 9110, 5.6.1.2).
            Some(b',') | None if is_empty => {}
            Some(b',') | None => elements.push(std::mem::take(&mut element)),
            Some(_) => return None,
        }
        is_empty = is_empty || !rest.starts_with(';');
        match rest.get(1..) {
            Some(after) => rest = after,
            None => return Some(elements),
        }
    }
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let length = text.bytes().take_while(|byte| is_part(*byte)).count();
    (length > 0).then(|| text.split_at(length))
}

/// A token or a text in quotes, and what follows.
fn value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        return token(text).map(|(value, rest)| (Cow::Borrowed(value), rest));
    };
    let end = quoted.find(['"', '\\'])?;
    if quoted[end..].starts_with('"') {
        return Some((Cow::Borrowed(&quoted[..end]), &quoted[end + 1..]));
    }
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((Cow::Owned(value), &quoted[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_in_any_order_and_in_both_forms() {
        let read = read("Proto=HTTPS;for=\"[2001:db8::1]:47\";by=x, , host=\"a\\\"b\"")
            .expect("it follows the grammar");
        let element = |node, proto, host| Element { node, proto, host };
        let first = element(Some("[2001:db8::1]:47".into()), Some("HTTPS".into()), None);
        assert_eq!(read, [first, element(None, None, Some("a\"b".into()))]);
    }

    #[test]
    fn what_breaks_the_grammar_is_refused() {
        for line in [
            "for",
            "for=",
            "=a",
            "for=\"a",
            "for=\"a\\",
            "for=a b",
            "for=a\"b\"",
            "for=[::1]",
            "for=a;for=b",
            "for=a/b",
            "for=\"a\"x, for=b",
            "for = a",
            "for=1.2.3.4:80",
        ] {
            assert_eq!(read(line), Err(MalformedForwarded), "{line}");
        }
    }
}
