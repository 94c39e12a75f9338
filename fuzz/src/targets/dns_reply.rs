//! Any bytes are a reply with a lifetime or none, and a reply to which bytes are added says the same or more.

use std::net::IpAddr;

use tidegate_wire::dns::lookup::{NameReply, read_reply};

pub(super) fn run(data: &[u8]) {
    let known = [IpAddr::from([192, 0, 2, 7]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])];
    let NameReply::Addresses { seconds, is_known } = read_reply(data, &known) else { return };
    assert!(seconds <= u32::MAX / 2);
    assert_eq!(read_reply(data, &[]), NameReply::Addresses { seconds, is_known: false });
    // Of a reply that was cut, what is left counts: no shorter lifetime can come of fewer records.
    if let NameReply::Addresses { seconds: of_half, is_known: is_in_half } =
        read_reply(&data[..data.len() / 2], &known)
    {
        assert!(of_half >= seconds && is_known >= is_in_half);
    }
}
