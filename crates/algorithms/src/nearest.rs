/// Longest word, in bytes, that a suggestion is looked for: no known one is longer.
const LONGEST: usize = 64;

/// The one of `known` that `word` may be a slip of: a third of its letters, at least one, added, lost,
/// exchanged or swapped with its neighbour.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > LONGEST {
        return None;
    }
    let most = (word.chars().count() / 3).max(1);
    let near = known.into_iter().map(|candidate| (strsim::osa_distance(word, candidate), candidate));
    near.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// `is not a known key`, with the key that was probably meant.
pub fn unknown_key<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    match nearest(key, known) {
        Some(meant) => format!("is not a known key; did you mean {meant:?}?"),
        None => "is not a known key".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["listen", "limit", "window_seconds"];
        for (word, meant) in [
            ("lisen", Some("listen")),
            ("limti", Some("limit")),
            ("window_secs", Some("window_seconds")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"listen".repeat(100_000), known), None);
        assert_eq!(unknown_key("lisen", known), r#"is not a known key; did you mean "listen"?"#);
        assert_eq!(unknown_key("rate", known), "is not a known key");
    }
}
