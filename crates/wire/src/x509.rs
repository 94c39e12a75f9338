//! The validity of an X.509 certificate: its first and its last moment.
//!
//! A TLS server has to know these of its own certificate, to refuse an expired one and to warn before the end. TLS
//! libraries check their peer's certificate only and keep the dates to themselves, so this reads them: as much of DER
//! (X.690) as lies on the way to the field `validity` of RFC 5280, 4.1.
//!
//! Deliberately absent: everything else of a certificate, signatures above all. What is read here is
//! the operator's own file; whether it can be used is the TLS library's to say.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// The version, `[0] EXPLICIT`, which certificates of version 1 leave out.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The first and the last moment at which a certificate is good, in seconds since 1970. What lies
/// before 1970 reads as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl Validity {
    /// Reads it from a certificate in DER; `None` if `certificate` is not a certificate.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let mut outer = Der(Der(certificate).take(SEQUENCE)?);
        let mut body = Der(outer.take(SEQUENCE)?);
        if body.any()?.0 == VERSION {
            body.take(INTEGER)?;
        }
        let [_signature, _issuer] = [body.take(SEQUENCE)?, body.take(SEQUENCE)?];
        let mut validity = Der(body.take(SEQUENCE)?);
        Some(Self { not_before: seconds(&mut validity)?, not_after: seconds(&mut validity)? })
    }
}

/// What is left of a sequence of elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag and its contents.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, contents))
    }

    /// The contents of the next element, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }
}

/// The next element, a time: `YYMMDDHHMMSSZ` (years 1950 to 2049) or `YYYYMMDDHHMMSSZ`, in seconds since 1970.
fn seconds(elements: &mut Der<'_>) -> Option<u64> {
    let (tag, text) = elements.any()?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = number(text)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (century, rest) = number(text)?;
            let (year, rest) = number(rest)?;
            (century * 100 + year, rest)
        }
        _ => return None,
    };
    let (month, rest) = number(rest)?;
    let (day, rest) = number(rest)?;
    let (hour, rest) = number(rest)?;
    let (minute, rest) = number(rest)?;
    let (second, rest) = number(rest)?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    if rest != b"Z" || !in_range || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// The two digits at the beginning, and what follows.
fn number(text: &[u8]) -> Option<(i64, &[u8])> {
    let [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] = text else { return None };
    Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), rest))
}

/// Days from 1 January 1970 to a date of the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last of its year: months then begin at (153 m + 2) / 5.
fn days(year: i64, month: i64, day: i64) -> i64 {
    /// Days from 1 March of the year 0 to 1 January 1970.
    const EPOCH: i64 = 719_468;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A certificate as far as it is read, of version 3 or 1.
    fn certificate(version: &[u8], not_before: &[u8], not_after: &[u8]) -> Vec<u8> {
        let element = |tag: u8, contents: &[u8]| {
            let length = u16::try_from(contents.len()).unwrap().to_be_bytes();
            [&[tag, 0x82], &length[..], contents].concat()
        };
        let time = |text: &[u8]| element(if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME }, text);
        let validity = element(SEQUENCE, &[time(not_before), time(not_after)].concat());
        let fields = [version, &[INTEGER, 1, 7], &[SEQUENCE, 0], &[SEQUENCE, 0], &validity].concat();
        element(SEQUENCE, &element(SEQUENCE, &fields))
    }

    #[test]
    fn both_forms_of_time_are_read() {
        for (text, seconds) in [
            (&b"700101000000Z"[..], 0),
            (b"500101000000Z", 0),
            (b"000229235959Z", 951_868_799),
            (b"261120174342Z", 1_795_196_622),
            (b"491231235959Z", 2_524_607_999),
            (b"20500101000000Z", 2_524_608_000),
            (b"21000301000000Z", 4_107_542_400),
            (b"99991231235959Z", 253_402_300_799),
        ] {
            let read = Validity::of(&certificate(&[VERSION, 3, INTEGER, 1, 2], text, text));
            assert_eq!(read, Some(Validity { not_before: seconds, not_after: seconds }), "{text:?}");
        }
        let version_1 = certificate(&[], b"700101000001Z", b"700101000002Z");
        assert_eq!(Validity::of(&version_1), Some(Validity { not_before: 1, not_after: 2 }));
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let good = certificate(&[], b"700101000001Z", b"700101000002Z");
        for cut in 0..good.len() {
            assert_eq!(Validity::of(&good[..cut]), None);
        }
        for text in [b"701301000000Z", b"700100000000Z", b"700101240000Z", b"700101000000z", b"7001010000+0Z"]
        {
            assert_eq!(Validity::of(&certificate(&[], text, text)), None);
        }
        assert_eq!(Validity::of(&[SEQUENCE, 0x80, 0, 0]), None, "DER has no open lengths");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let good = certificate(&[], b"700101000001Z", b"700101000002Z");
            prop_assert!(Validity::of(&bytes).is_none_or(|read| read.not_after < u64::MAX));
            let mut changed = good.clone();
            for (at, byte) in bytes.iter().enumerate().step_by(2) {
                let place = usize::from(*byte) % changed.len();
                changed[place] = bytes.get(at + 1).copied().unwrap_or_default();
            }
            prop_assert!(Validity::of(&changed).is_none_or(|read| read.not_before < u64::MAX));
        }
    }
}
