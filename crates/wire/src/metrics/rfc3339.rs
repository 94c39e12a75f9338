//! Times as RFC 3339 writes them, and as Unix milliseconds.
//!
//! The calendar is the proleptic Gregorian one, by Howard Hinnant's `days_from_civil`. Finer fractions than
//! milliseconds are cut off. A leap second counts as the first second of the next minute, as Unix time has it.

const DAY: i64 = 86_400_000;

/// The first millisecond that has a four-digit year: 0000-01-01T00:00:00Z.
pub const FIRST: i64 = -62_167_219_200_000;
/// The last one: 9999-12-31T23:59:59.999Z.
pub const LAST: i64 = 253_402_300_799_999;

/// Bytes of a time in UTC with milliseconds: `2026-11-23T08:00:00.000Z`.
pub const LENGTH: usize = 24;

/// Writes a time in UTC. `None` if its year does not have four digits.
#[must_use]
pub fn format(millis: i64) -> Option<[u8; LENGTH]> {
    if !(FIRST..=LAST).contains(&millis) {
        return None;
    }
    let (days, rest) = (millis.div_euclid(DAY), millis.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    digits(&mut text[..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], rest / 3_600_000);
    digits(&mut text[14..16], rest / 60_000 % 60);
    digits(&mut text[17..19], rest / 1_000 % 60);
    digits(&mut text[20..23], rest % 1_000);
    Some(text)
}

/// Reads a time with any offset. `None` if it is no time, or if its year does not have four digits in UTC.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let head = bytes.get(..19)?;
    let separated = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separated.iter().any(|(at, separator)| head[*at] != *separator) || !b"Tt ".contains(&head[10]) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| number(&head[range]);
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
    let is_a_time = hour < 24 && minute < 60 && second <= 60;
    if !is_a_time || !(1..=12).contains(&month) || !(1..=month_length(year, month)).contains(&day) {
        return None;
    }
    let (millis, zone) = fraction(&bytes[19..])?;
    let seconds = hour * 3_600 + minute * 60 + second - offset(zone)? * 60;
    let millis = days(year, month, day) * DAY + seconds * 1_000 + millis;
    (FIRST..=LAST).contains(&millis).then_some(millis)
}

/// The milliseconds after the decimal point, if there is one, and what follows them.
fn fraction(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = bytes.strip_prefix(b".") else { return Some((0, bytes)) };
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut thousandths = [b'0'; 3];
    for (thousandth, digit) in thousandths.iter_mut().zip(&rest[..count]) {
        *thousandth = *digit;
    }
    (count > 0).then_some((number(&thousandths)?, &rest[count..]))
}

/// Minutes that a zone is ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), hours @ .., b':', tens, ones] if hours.len() == 2 => {
            let (hours, minutes) = (number(hours)?, number(&[*tens, *ones])?);
            let sign = if *sign == b'-' { -1 } else { 1 };
            (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
        }
        _ => None,
    }
}

/// Digits and nothing else as a number; few enough not to overflow.
fn number(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

fn digits(place: &mut [u8], mut number: i64) {
    for digit in place.iter_mut().rev() {
        // Invariant: what is left of it is a digit.
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01. Years begin in March, so that the leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a number of days from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(millis: i64) -> String {
        String::from_utf8(format(millis).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn known_times_are_written_as_they_are_known() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_392_000_123, "2026-11-23T00:00:00.123Z"),
            (FIRST, "0000-01-01T00:00:00.000Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text(millis), expected);
            assert_eq!(parse(expected), Some(millis));
        }
        assert_eq!(format(FIRST - 1), None);
        assert_eq!(format(LAST + 1), None);
    }

    #[test]
    fn times_are_read_with_their_offset_and_to_the_millisecond() {
        for (text, expected) in [
            ("1970-01-01t00:00:01z", Some(1_000)),
            ("1970-01-01 00:00:01Z", Some(1_000)),
            ("1970-01-01T01:00:00.5+01:00", Some(500)),
            ("1969-12-31T23:30:00.123456789-00:30", Some(123)),
            ("1970-01-01T00:00:60Z", Some(60_000)),
            ("1970-01-01T00:00:00", None),
            ("1970-01-01T00:00:00.Z", None),
            ("1970-01-01T00:00:00+0100", None),
            ("1970-01-01T00:00:00+24:00", None),
            ("1970-13-01T00:00:00Z", None),
            ("1970-02-29T00:00:00Z", None),
            ("1900-02-29T00:00:00Z", None),
            ("1970-01-01T24:00:00Z", None),
            ("0000-01-01T00:00:00+01:00", None),
            ("1970-01-0\u{e9}T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(millis in FIRST..=LAST) {
            prop_assert_eq!(parse(&text(millis)), Some(millis));
        }

        #[test]
        fn times_sort_as_their_texts(one in FIRST..=LAST, other in FIRST..=LAST) {
            prop_assert_eq!(one.cmp(&other), text(one).cmp(&text(other)));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _read = parse(&text);
        }
    }
}
