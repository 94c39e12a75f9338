//! Any bytes give lines within the stated bounds, or one mistake with its place.

use tidegate_wire::caddyfile::{CaddyDirective, MAX_DEPTH, MAX_DIRECTIVES, MAX_WORD_BYTES, read};

fn count(lines: &[CaddyDirective], depth: usize) -> usize {
    assert!(depth <= MAX_DEPTH);
    let one = |it: &CaddyDirective| {
        assert!(it.place.line > 0 && it.place.column > 0);
        assert!(it.words.iter().all(|word| word.len() <= MAX_WORD_BYTES));
        1 + count(it.lines(), depth + 1)
    };
    lines.iter().map(one).sum()
}

pub(super) fn run(data: &[u8]) {
    match read(data) {
        Ok(lines) => assert!(count(&lines, 0) <= MAX_DIRECTIVES),
        Err(mistake) => assert!(mistake.place.line > 0 && !mistake.accepted.is_empty()),
    }
}
