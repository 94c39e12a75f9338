//! The client's side of DNS: its question, and for how long an answer holds.
//!
//! Of a reply (RFC 1035, 4.1) nothing is read but its code, and the lifetimes and addresses of its answers; the shortest
//! lifetime counts, those of aliases on the way included. A cut reply counts as far as it goes, so that TCP is not needed.

use std::net::IpAddr;

use super::{A, AAAA, MAX_LABEL};

/// Codes of replies (RFC 1035, 4.1.1).
const NO_ERROR: u8 = 0;
const NO_SUCH_NAME: u8 = 3;

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

/// What a reply says of the name that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameReply {
    /// It has addresses.
    Addresses {
        /// The shortest lifetime among the answers.
        seconds: u32,
        /// One of the addresses is among those that the caller knows.
        is_known: bool,
    },
    /// It has none.
    NoAddress,
    /// The server could not tell, or this is no reply.
    Unusable,
}

/// What `reply` says; `known` are the addresses that the caller has.
#[must_use]
pub fn read_reply(reply: &[u8], known: &[IpAddr]) -> NameReply {
    let Some((code, mut rest, answers)) = answers(reply) else { return NameReply::Unusable };
    match code {
        NO_ERROR => {}
        NO_SUCH_NAME => return NameReply::NoAddress,
        _ => return NameReply::Unusable,
    }
    let (mut least, mut has_address, mut is_known) = (u32::MAX, false, false);
    for _ in 0..answers {
        // Where it was cut, what came before counts.
        let Some((seconds, address, after)) = record(rest) else { break };
        rest = after;
        has_address |= address.is_some();
        is_known |= address.is_some_and(|address| known.contains(&address));
        least = least.min(seconds);
    }
    if has_address { NameReply::Addresses { seconds: least, is_known } } else { NameReply::NoAddress }
}

/// The code of a reply, its answers and how many it says they are.
fn answers(reply: &[u8]) -> Option<(u8, &[u8], u16)> {
    let header: &[u8; 12] = reply.first_chunk()?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let code = header[3] & 0x0f;
    if number(4) != 1 {
        return None;
    }
    Some((code, without_name(&reply[12..])?.get(4..)?, number(6)))
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

    /// The bytes of a header and the question for `a.test`.
    const QUESTION: usize = 12 + 8 + 4;

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

    fn is_sane(reply: NameReply) -> bool {
        !matches!(reply, NameReply::Addresses { seconds, .. } if seconds > u32::MAX / 2)
    }

    #[test]
    fn the_shortest_lifetime_on_the_way_to_a_known_address_counts() {
        let known = addresses(&["192.0.2.7", "192.0.2.8"]);
        let holds = |seconds, is_known| NameReply::Addresses { seconds, is_known };
        assert_eq!(read_reply(&reply(300, 60), &known), holds(60, true));
        assert_eq!(read_reply(&reply(30, 60), &known), holds(30, true));
        assert_eq!(read_reply(&reply(30, u32::MAX), &known), holds(0, true));
        assert_eq!(
            read_reply(&reply(30, 60), &known[1..]),
            holds(30, false),
            "the system has found something else"
        );
        for (code, expected) in
            [(2, NameReply::Unusable), (3, NameReply::NoAddress), (5, NameReply::Unusable)]
        {
            let mut refused = reply(30, 60);
            refused[3] |= code;
            assert_eq!(read_reply(&refused, &known), expected, "{code}");
        }
        let whole = reply(30, 60);
        for length in 0..whole.len() {
            let expected = if length < QUESTION { NameReply::Unusable } else { NameReply::NoAddress };
            assert_eq!(read_reply(&whole[..length], &known), expected, "cut at {length}");
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
            prop_assert!(is_sane(read_reply(&bytes, &addresses(&["192.0.2.7"]))));
        }

        #[test]
        fn a_reply_with_some_bytes_changed_is_read_without_harm(at in 0_usize..60, byte: u8) {
            let mut reply = reply(30, 60);
            let at = at % reply.len();
            reply[at] = byte;
            prop_assert!(is_sane(read_reply(&reply, &addresses(&["192.0.2.7"]))));
        }
    }
}
