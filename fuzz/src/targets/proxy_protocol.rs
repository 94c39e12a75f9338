//! Any bytes are a header of the PROXY protocol or none, and the address of a line that is one can be written and
//! read again.

use tidegate_wire::proxy_protocol::{FIXED, MAX_ADDRESSES, binary, line, rest_length};

pub(super) fn run(data: &[u8]) {
    if let Ok(Some(address)) = line(data) {
        let (family, ip, port) = (if address.is_ipv4() { 4 } else { 6 }, address.ip(), address.port());
        let again = format!("PROXY TCP{family} {ip} {ip} {port} {port}\r\n");
        assert_eq!(line(again.as_bytes()), Ok(Some(address)));
    }
    if let Some((fixed, rest)) = data.split_first_chunk::<FIXED>()
        && let Ok(read) = binary(*fixed, rest)
    {
        assert_eq!(rest_length(*fixed).map(|length| length.min(MAX_ADDRESSES)), Ok(rest.len()));
        assert!(read.is_none() || rest.len() >= 12, "an address takes its bytes");
    }
}
