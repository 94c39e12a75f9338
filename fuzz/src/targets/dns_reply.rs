//! Any bytes are a reply with a lifetime or none, and a reply to which bytes are added says the same or more.

use std::net::IpAddr;

use tidegate_wire::dns::lookup::lifetime;

pub(super) fn run(data: &[u8]) {
    let known = [IpAddr::from([192, 0, 2, 7]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])];
    let whole = lifetime(data, &known);
    assert!(whole.is_none_or(|seconds| seconds <= u32::MAX / 2));
    assert_eq!(lifetime(data, &[]), None);
    // Of a reply that was cut, what is left counts: no shorter lifetime can come of fewer records.
    if let (Some(half), Some(whole)) = (lifetime(&data[..data.len() / 2], &known), whole) {
        assert!(half >= whole);
    }
}
