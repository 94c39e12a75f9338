//! The client's side of DNS: its question, and for how long an answer holds.
//!
//! Of a reply (RFC 1035, 4.1) nothing is read but the lifetimes and addresses of its answers; the shortest counts, those of
//! aliases on the way included. A cut reply counts as far as it goes, so that TCP is not needed.

use std::net::IpAddr;

use super::{A, AAAA, MAX_LABEL};

/// A question with this number; `None`: no name of DNS is like this.
#[must_use]
pub fn question(number: [u8; 2], name: &str, kind: u16) -> Option<Vec<u8>> {
    // Recursion is wanted, one question follows.
    let mut message = vec![number[0], number[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=MAX_LABEL).contains(&usize::from(*length)))?;
        message.push(length);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    Some(message)
}

/// The shortest lifetime in seconds among the answers of a reply that has one of `addresses`; `None`: it has none of them, or is
/// no reply.
#[must_use]
pub fn lifetime(reply: &[u8], addresses: &[IpAddr]) -> Option<u32> {
    let header: &[u8; 12] = reply.first_chunk()?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if header[3] & 0x0f != 0 || number(4) != 1 {
        return None;
    }
    let mut rest = without_name(&reply[12..])?.get(4..)?;
    let (mut least, mut is_it) = (None, false);
    for _ in 0..number(6) {
        // Where it was cut, what came before counts.
        let Some((seconds, address, after)) = record(rest) else { break };
        rest = after;
        is_it |= address.is_some_and(|address| addresses.contains(&address));
        least = Some(least.map_or(seconds, |least: u32| least.min(seconds)));
    }
    least.filter(|_| is_it)
}

/// A record's lifetime, its address if it has one, and what follows it.
fn record(bytes: &[u8]) -> Option<(u32, Option<IpAddr>, &[u8])> {
    let (fixed, rest) = without_name(bytes)?.split_first_chunk::<10>()?;
    let [k0, k1, _, _, t0, t1, t2, t3, l0, l1] = *fixed;
    let (data, rest) = rest.split_at_checked(u16::from_be_bytes([l0, l1]).into())?;
    let address = match u16::from_be_bytes([k0, k1]) {
        A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        AAAA => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        _ => None,
    };
    // With the first bit it is to be taken for 0 (RFC 2181, 8).
    let seconds = u32::from_be_bytes([t0, t1, t2, t3]);
    Some((if seconds > u32::MAX / 2 { 0 } else { seconds }, address, rest))
}

/// What follows a name: labels that end with an empty one, or with a pointer.
fn without_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first()?;
        match length {
            0 => return Some(rest),
            1..=63 => bytes = rest.get(usize::from(*length)..)?,
            192.. => return rest.get(1..),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    /// A reply to a question for `a.test`: an alias, and an address of what that stands for.
    fn reply(alias: u32, address: u32) -> Vec<u8> {
        let mut reply = question([7, 7], "a.test", A).expect("a name");
        (reply[2], reply[3], reply[7]) = (0x81, 0x80, 2);
        reply.extend([0xc0, 12, 0, 5, 0, 1]);
        reply.extend(alias.to_be_bytes());
        reply.extend([0, 4, 1, b'b', 0xc0, 14]);
        reply.extend([0xc0, 36, 0, 1, 0, 1]);
        reply.extend(address.to_be_bytes());
        reply.extend([0, 4, 192, 0, 2, 7]);
        reply
    }

    #[test]
    fn the_shortest_lifetime_on_the_way_to_a_known_address_counts() {
        let known = addresses(&["192.0.2.7", "192.0.2.8"]);
        assert_eq!(lifetime(&reply(300, 60), &known), Some(60));
        assert_eq!(lifetime(&reply(30, 60), &known), Some(30));
        assert_eq!(lifetime(&reply(30, u32::MAX), &known), Some(0));
        assert_eq!(lifetime(&reply(30, 60), &known[1..]), None, "the system has found something else");
        let mut refused = reply(30, 60);
        refused[3] |= 5;
        assert_eq!(lifetime(&refused, &known), None);
        let whole = reply(30, 60);
        for length in 0..whole.len() {
            assert_eq!(lifetime(&whole[..length], &known), None, "cut at {length}");
        }
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        assert_eq!(question([0, 0], "a..b", A), None);
        assert_eq!(question([0, 0], &"x".repeat(64), A), None);
    }

    proptest! {
        #[test]
        fn whatever_a_server_sends_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let read = lifetime(&bytes, &addresses(&["192.0.2.7"]));
            prop_assert!(read.is_none_or(|seconds| seconds <= u32::MAX / 2));
        }

        #[test]
        fn a_reply_with_some_bytes_changed_is_read_without_harm(at in 0_usize..60, byte: u8) {
            let mut reply = reply(30, 60);
            let at = at % reply.len();
            reply[at] = byte;
            let read = lifetime(&reply, &addresses(&["192.0.2.7"]));
            prop_assert!(read.is_none_or(|seconds| seconds <= u32::MAX / 2));
        }
    }
}
