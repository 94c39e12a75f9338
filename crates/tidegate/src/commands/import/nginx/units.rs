//! Times and sizes as nginx writes them.

use serde_json::{Value, json};

/// Milliseconds of `90`, `1m30s`, `500ms`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = &rest[digits..];
        let (unit, length) = match rest.as_bytes() {
            [b'm', b's', ..] => (1, 2),
            [b's', ..] => (1_000, 1),
            [b'm', ..] => (60_000, 1),
            [b'h', ..] => (3_600_000, 1),
            [b'd', ..] => (86_400_000, 1),
            [] => (1_000, 0),
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[length..];
    }
    (!text.is_empty()).then_some(total)
}

/// The same as a number of seconds.
pub(in super::super) fn seconds(text: &str) -> Option<Value> {
    let milliseconds = milliseconds(text)?;
    if milliseconds.is_multiple_of(1_000) {
        return Some(json!(milliseconds / 1_000));
    }
    let exact = u32::try_from(milliseconds).ok()?;
    Some(json!(f64::from(exact) / 1_000.0))
}

/// Bytes of `8192`, `10m`, `1g`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    let unit = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read_as_nginx_reads_them() {
        for (text, expected) in [
            ("90", Some(90_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1d", Some(86_400_000)),
            ("", None),
            ("s", None),
            ("1y", None),
            ("99999999999999999999", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
        assert_eq!((seconds("1m"), seconds("1500ms")), (Some(json!(60)), Some(json!(1.5))));
        let sizes = ["10m", "8k", "1", "1t", "", "m", "18446744073709551615g"].map(bytes);
        assert_eq!(sizes, [Some(10 << 20), Some(8 << 10), Some(1), None, None, None, None]);
    }
}
