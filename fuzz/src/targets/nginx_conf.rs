//! Any bytes give directives within the stated bounds, or one mistake with its place.

use tidegate_wire::nginx_conf::{Directive, MAX_DEPTH, MAX_DIRECTIVES, MAX_WORD_BYTES, read};

fn count(directives: &[Directive], depth: usize) -> usize {
    assert!(depth <= MAX_DEPTH);
    let one = |it: &Directive| {
        assert!(it.place.line > 0 && it.place.column > 0);
        assert!(it.arguments.iter().chain([&it.name]).all(|word| word.len() <= MAX_WORD_BYTES));
        1 + it.block.as_ref().map_or(0, |block| count(block, depth + 1))
    };
    directives.iter().map(one).sum()
}

pub(super) fn run(data: &[u8]) {
    match read(data) {
        Ok(directives) => assert!(count(&directives, 0) <= MAX_DIRECTIVES),
        Err(mistake) => assert!(mistake.place.line > 0 && !mistake.accepted.is_empty()),
    }
}
