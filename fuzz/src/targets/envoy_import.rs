//! Any bytes give rules or mistakes with places, whatever they do to the YAML below.

use tidegate_wire::envoy_limits::read;

pub(super) fn run(data: &[u8]) {
    match read(data) {
        Ok(read) => assert!(!read.domain.name.is_empty()),
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            assert!(
                mistakes.iter().all(|it| it.place.line > 0 && it.place.column > 0 && !it.accepted.is_empty())
            );
        }
    }
}
