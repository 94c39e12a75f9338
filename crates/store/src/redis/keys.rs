//! Names of counters in Redis.

use tidegate_algorithms::policy::first_value;

/// How many hash tags there are.
pub(super) const TAGS: u8 = 64;

/// The counter's name in Redis: `tg:{tt}:` and the contract's key.
pub(super) fn tagged(key: &[u8]) -> Box<[u8]> {
    let mut name = Vec::with_capacity(key.len() + 8);
    name.extend_from_slice(b"tg:{");
    name.extend_from_slice(&tag_text(tag_of(key)));
    name.extend_from_slice(b"}:");
    name.extend_from_slice(key);
    name.into_boxed_slice()
}

/// The tag of a counter, below [`TAGS`]: by the first value it is keyed on, or by the whole key if
/// it is keyed on none.
pub(super) fn tag_of(key: &[u8]) -> u8 {
    let hash = crc16(first_value(key).unwrap_or(key));
    u8::try_from(hash % u16::from(TAGS)).unwrap_or(0)
}

/// The two hexadecimal digits between the braces.
pub(super) fn tag_text(tag: u8) -> [u8; 2] {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    [DIGITS[usize::from(tag >> 4)], DIGITS[usize::from(tag & 15)]]
}

/// CRC-16/XMODEM, which Redis Cluster hashes keys with.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::policy::{Attributes, key_of};

    use super::*;

    #[test]
    fn crc16_is_the_one_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn a_clients_counters_under_two_policies_share_a_tag() {
        let pairs: [(&str, &[u8]); 2] = [("client_id", b"alice"), ("path", b"/v1")];
        let attributes = Attributes::new(&pairs);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        key_of("burst", &["client_id".to_owned()], &attributes, &mut one).unwrap();
        key_of("daily", &["client_id".to_owned(), "path".to_owned()], &attributes, &mut two).unwrap();
        assert_ne!(one, two);
        assert_eq!(tag_of(&one), tag_of(&two));
        assert!(tagged(&one).starts_with(b"tg:{"));
    }
}
