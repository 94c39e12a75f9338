//! Any bytes give a rate-limit request or an error; a request that was read is written and read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire::rls::{Request, decode, encode};

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = decode::<Request>(data) {
        assert_eq!(decode(&encode(&request)), Ok(request));
    }
});
