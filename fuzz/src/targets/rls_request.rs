//! Any bytes give a rate-limit request or an error; a request that was read is written and read the same.

use tidegate_wire::rls::{Request, decode, encode};

pub(super) fn run(data: &[u8]) {
    if let Ok(request) = decode::<Request>(data) {
        assert_eq!(decode(&encode(&request)), Ok(request));
    }
}
