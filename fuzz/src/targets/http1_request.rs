//! Any bytes give a request head or an error; a head that is complete stays the same when more follows.

use tidegate_wire::http1::scan_request;

pub(super) fn run(data: &[u8]) {
    if let Ok(Some(head)) = scan_request(data, 4096) {
        assert!(head.length <= data.len().min(4096));
        assert_eq!(scan_request(&data[..head.length], 4096), Ok(Some(head)));
    }
}
