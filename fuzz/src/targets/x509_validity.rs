//! Any bytes are a certificate with a validity or none, and what follows it changes nothing.

use tidegate_wire::x509::Validity;

pub(super) fn run(data: &[u8]) {
    if let Some(validity) = Validity::of(data) {
        assert_eq!(Validity::of(&[data, b"more"].concat()), Some(validity));
    }
}
