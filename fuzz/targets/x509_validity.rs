//! Any bytes are a certificate with a validity or none, and what follows it changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire::x509::Validity;

fuzz_target!(|data: &[u8]| {
    if let Some(validity) = Validity::of(data) {
        assert_eq!(Validity::of(&[data, b"more"].concat()), Some(validity));
    }
});
