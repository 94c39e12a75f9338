//! A metric's value: a float, or an integer that no float is.
//!
//! Integers of 64 bits come in the line protocol, in OpenTelemetry, in JSON and in StatsD, and a float has 53 bits for
//! them: `9007199254740993` would be kept as `9007199254740992`, and a counter of bytes would grow in leaps. So an
//! integer that a float would change is kept and written by its digits. All others are floats, whatever they came as,
//! so that equal values are equal lines.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest integer up to which all of them are floats.
const EXACT: u64 = 1 << 53;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A float.
    Float(f64),
    /// An integer beyond 2^53 on either side.
    Signed(i64),
    /// One that is beyond 63 bits, too.
    Unsigned(u64),
}

impl Number {
    /// Reads a decimal number; digits without a point or an exponent are an integer. `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<i64>() {
            // A zero has a sign as a float only.
            return Some(if number == 0 { Self::Float(text.parse().ok()?) } else { number.into() });
        }
        text.parse::<u64>().map(Self::from).ok().or_else(|| text.parse().ok().map(Self::Float))
    }

    /// The float next to it.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "that is what is asked for")]
    pub fn float(self) -> f64 {
        match self {
            Self::Float(number) => number,
            Self::Signed(number) => number as f64,
            Self::Unsigned(number) => number as f64,
        }
    }

    /// Whether it is neither infinite nor no number.
    #[must_use]
    pub fn is_finite(self) -> bool {
        self.float().is_finite()
    }

    /// By how much it is more than `before`: exact between integers.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a difference that is beyond 2^53 itself may be rounded")]
    pub fn since(self, before: Self) -> f64 {
        match (self.integer(), before.integer()) {
            (Some(now), Some(before)) => (now - before) as f64,
            _ => self.float() - before.float(),
        }
    }

    /// The integer that it is, if it is one of 64 bits.
    #[expect(clippy::cast_possible_truncation, reason = "the float is an integer within 2^53")]
    fn integer(self) -> Option<i128> {
        match self {
            Self::Signed(number) => Some(number.into()),
            Self::Unsigned(number) => Some(number.into()),
            Self::Float(number) if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 => {
                Some(number as i128)
            }
            Self::Float(_) => None,
        }
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<i64> for Number {
    #[expect(clippy::cast_precision_loss, reason = "there is none within 2^53")]
    fn from(number: i64) -> Self {
        if number.unsigned_abs() <= EXACT { Self::Float(number as f64) } else { Self::Signed(number) }
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        match i64::try_from(number) {
            Ok(number) => number.into(),
            Err(_) => Self::Unsigned(number),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Float(number) => serializer.serialize_f64(number),
            Self::Signed(number) => serializer.serialize_i64(number),
            Self::Unsigned(number) => serializer.serialize_u64(number),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;

        impl Visitor<'_> for AnyNumber {
            type Value = Number;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number")
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Number, E> {
                if number.is_finite() {
                    Ok(number.into())
                } else {
                    Err(E::custom("the number is not finite"))
                }
            }

            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(number.into())
            }

            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(number.into())
            }
        }

        deserializer.deserialize_any(AnyNumber)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_that_a_float_would_change_are_kept() {
        for (text, written) in [
            ("9007199254740993", "9007199254740993"),
            ("-9007199254740993", "-9007199254740993"),
            ("18446744073709551615", "18446744073709551615"),
            ("9007199254740992", "9007199254740992.0"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("7", "7.0"),
            ("+7", "7.0"),
            ("-0", "-0.0"),
            ("1e3", "1000.0"),
            (".5", "0.5"),
        ] {
            let number = Number::parse(text).unwrap();
            assert_eq!(serde_json::to_string(&number).unwrap(), written, "{text}");
        }
        for wrong in ["", "x", "1 ", "0x1", "--1"] {
            assert_eq!(Number::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_difference_between_large_integers_is_exact() {
        let of = |text| Number::parse(text).unwrap();
        assert_eq!(of("9007199254740995").since(of("9007199254740993")).to_bits(), 2_f64.to_bits());
        assert_eq!(of("9007199254740993").since(of("9007199254740992")).to_bits(), 1_f64.to_bits());
        assert_eq!(of("1.5").since(of("1")).to_bits(), 0.5_f64.to_bits());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(signed: i64, unsigned: u64, float in any::<f64>()) {
            prop_assume!(float.is_finite());
            for number in [Number::from(signed), unsigned.into(), float.into()] {
                let text = serde_json::to_string(&number).unwrap();
                let read: Number = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(read, number);
                prop_assert_eq!(Number::parse(&signed.to_string()), Some(Number::from(signed)));
            }
        }
    }
}
