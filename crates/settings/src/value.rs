//! The types a setting may have: how each is written, what range it accepts, how it is shown.
//!
//! Environment variables and flags are text, so every type is read from text; the file's own types
//! are only checked for being the right one ([`Value::TYPES`]). Types that may hold a secret are in
//! `secret.rs`.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

/// Longest text that a setting may have, in bytes.
pub(crate) const MAX_TEXT: usize = 4_096;

/// How many characters of a wrong value a message repeats.
const MAX_SHOWN: usize = 80;

/// The types of TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TomlType {
    /// `"text"`
    String,
    /// `1`
    Integer,
    /// `1.0`
    Float,
    /// `true`
    Boolean,
    /// `1979-05-27`
    Date,
    /// `[1]`
    List,
    /// `[table]`
    Table,
}

impl TomlType {
    /// The type of a parsed value.
    pub(crate) fn of(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(_) => Self::String,
            DeValue::Integer(_) => Self::Integer,
            DeValue::Float(_) => Self::Float,
            DeValue::Boolean(_) => Self::Boolean,
            DeValue::Datetime(_) => Self::Date,
            DeValue::Array(_) => Self::List,
            DeValue::Table(_) => Self::Table,
        }
    }

    /// The type in a message.
    #[must_use]
    pub fn described(self) -> &'static str {
        match self {
            Self::String => "is a string",
            Self::Integer | Self::Float => "is a number",
            Self::Boolean => "is a boolean",
            Self::Date => "is a date",
            Self::List => "is a list",
            Self::Table => "is a table",
        }
    }
}

/// A type that a setting may have.
pub trait Value: Sized {
    /// What bounds it.
    type Range;
    /// How it is written in TOML.
    const TYPES: &'static [TomlType];
    /// Whether messages must not repeat it.
    const SECRET: bool = false;
    /// Whether it may be given as a flag, where every user can see it in `ps`.
    const FLAG: bool = true;
    /// The word that says of a setting which may be left out that it is, where an empty text is not enough: an empty
    /// variable of the environment counts as unset.
    const LEFT_OUT: Option<&'static str> = None;

    /// Whether messages must not repeat this text, which was refused.
    fn is_secret(_text: &str) -> bool {
        Self::SECRET
    }

    /// Reads `text`; `None` if it is malformed or out of range.
    fn parse(text: &str, range: &Self::Range) -> Option<Self>;
    /// Says in words what is accepted.
    fn accepted(range: &Self::Range) -> String;
    /// The JSON schema of what is accepted.
    fn schema(range: &Self::Range) -> Json;
    /// The value as `config explain` shows it: readable by `parse` unless it holds a secret.
    fn show(&self) -> String;
}

/// A wrong value in a message: quoted, escaped, cut.
#[must_use]
pub fn shown(text: &str) -> String {
    let cut: String = text.chars().take(MAX_SHOWN).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("is {cut:?}{more}")
}

/// A value that may be left out, which an empty text says.
impl<T: Value> Value for Option<T> {
    type Range = T::Range;
    const TYPES: &'static [TomlType] = T::TYPES;
    const SECRET: bool = T::SECRET;
    const FLAG: bool = T::FLAG;

    fn is_secret(text: &str) -> bool {
        T::is_secret(text)
    }

    fn parse(text: &str, range: &Self::Range) -> Option<Self> {
        if text.is_empty() || T::LEFT_OUT == Some(text) {
            Some(None)
        } else {
            T::parse(text, range).map(Some)
        }
    }

    fn accepted(range: &Self::Range) -> String {
        let accepted = T::accepted(range);
        match T::LEFT_OUT {
            Some(word) => format!("{accepted}, or \"{word}\""),
            None => accepted,
        }
    }

    fn schema(range: &Self::Range) -> Json {
        T::schema(range)
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| T::LEFT_OUT.unwrap_or("(none)").to_owned(), Value::show)
    }
}

/// The address of a listener.
impl Value for SocketAddr {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];
    const LEFT_OUT: Option<&'static str> = Some("off");

    fn parse(text: &str, (): &()) -> Option<Self> {
        text.parse().ok()
    }

    fn accepted((): &()) -> String {
        "an IP address and a port, as in \"127.0.0.1:4000\" or \"[::1]:4000\"".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        (!text.is_empty() && text.len() <= MAX_TEXT && !text.contains('\0')).then(|| Self::from(text))
    }

    fn accepted((): &()) -> String {
        format!("a path of 1 to {MAX_TEXT} bytes")
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for bool {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::Boolean];

    fn parse(text: &str, (): &()) -> Option<Self> {
        text.parse().ok()
    }

    fn accepted((): &()) -> String {
        "true, false".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "boolean" })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    type Range = RangeInclusive<Self>;
    const TYPES: &'static [TomlType] = &[TomlType::Integer];

    fn parse(text: &str, range: &Self::Range) -> Option<Self> {
        text.parse().ok().filter(|number| range.contains(number))
    }

    fn accepted(range: &Self::Range) -> String {
        format!("a whole number from {} to {}", range.start(), range.end())
    }

    fn schema(range: &Self::Range) -> Json {
        json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A number of bytes, written `1048576` or `"1 MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const BYTE_UNITS: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)];

impl Value for Bytes {
    type Range = RangeInclusive<Self>;
    const TYPES: &'static [TomlType] = &[TomlType::String, TomlType::Integer];

    fn parse(text: &str, range: &Self::Range) -> Option<Self> {
        quantity(text, BYTE_UNITS).map(Self).filter(|bytes| range.contains(bytes))
    }

    fn accepted(range: &Self::Range) -> String {
        format!("bytes from \"{}\" to \"{}\" in B, KiB, MiB, GiB or TiB", range.start(), range.end())
    }

    fn schema(range: &Self::Range) -> Json {
        json!({ "oneOf": [
            { "type": "integer", "minimum": range.start().0, "maximum": range.end().0 },
            { "type": "string", "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB|TiB)?$" },
        ] })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = in_largest_unit(self.0, BYTE_UNITS);
        write!(out, "{number} {unit}")
    }
}

const TIME_UNITS: &[(&str, u64)] =
    &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Value for Duration {
    type Range = RangeInclusive<Self>;
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, range: &Self::Range) -> Option<Self> {
        quantity(text, TIME_UNITS).map(Self::from_millis).filter(|time| range.contains(time))
    }

    fn accepted(range: &Self::Range) -> String {
        format!("a time from \"{}\" to \"{}\" in ms, s, m, h or d", range.start().show(), range.end().show())
    }

    fn schema(_: &Self::Range) -> Json {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(ms|s|m|h|d)$" })
    }

    fn show(&self) -> String {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        let (number, unit) = in_largest_unit(millis, TIME_UNITS);
        format!("{number}{unit}")
    }
}

/// `"10 MiB"`: digits, at most one space, a unit. `None` on overflow.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn in_largest_unit(amount: u64, units: &[(&'static str, u64)]) -> (u64, &'static str) {
    let whole = |(_, scale): &&(&str, u64)| amount >= *scale && amount.is_multiple_of(*scale);
    let smallest = units.iter().rfind(|(name, _)| !name.is_empty());
    let (unit, scale) = units.iter().find(whole).or(smallest).copied().unwrap_or(("", 1));
    (amount / scale, unit)
}

/// Declares an enum whose variants are words. Whoever uses it depends on `serde_json`.
#[macro_export]
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $Name:ident { $($(#[doc = $variant_doc:literal])+ $Variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name { $($(#[doc = $variant_doc])+ $Variant,)+ }

        impl $crate::value::Value for $Name {
            type Range = ();
            const TYPES: &'static [$crate::value::TomlType] = &[$crate::value::TomlType::String];

            fn parse(text: &str, (): &()) -> Option<Self> {
                match text { $($word => Some(Self::$Variant),)+ _ => None }
            }

            fn accepted((): &()) -> String {
                [$(concat!("\"", $word, "\"")),+].join(", ")
            }

            fn schema((): &()) -> ::serde_json::Value {
                ::serde_json::json!({ "enum": [$($word),+] })
            }

            fn show(&self) -> String {
                match self { $(Self::$Variant => $word,)+ }.to_owned()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_and_shown_in_their_largest_unit() {
        let all = Bytes(0)..=Bytes(u64::MAX);
        for (text, bytes, shown) in [
            ("0", Some(0), "0 B"),
            ("1048576", Some(1 << 20), "1 MiB"),
            ("1536 KiB", Some(3 << 19), "1536 KiB"),
            ("1GiB", Some(1 << 30), "1 GiB"),
            ("16777216 TiB", None, ""),
            ("1 mib", None, ""),
            ("1  MiB", None, ""),
            ("-1", None, ""),
            ("", None, ""),
            ("KiB", None, ""),
        ] {
            let parsed = Bytes::parse(text, &all);
            assert_eq!(parsed, bytes.map(Bytes), "{text}");
            assert_eq!(parsed.map_or(String::new(), |bytes| bytes.show()), shown, "{text}");
        }
        let day = Duration::ZERO..=Duration::from_secs(86_400);
        for (text, millis, shown) in [
            ("90s", Some(90_000), "90s"),
            ("120 s", Some(120_000), "2m"),
            ("0s", Some(0), "0ms"),
            ("1d", Some(86_400_000), "1d"),
            ("25h", None, ""),
            ("10", None, ""),
            ("99999999999999999999d", None, ""),
        ] {
            let parsed = Duration::parse(text, &day);
            assert_eq!(parsed, millis.map(Duration::from_millis), "{text}");
            assert_eq!(parsed.map_or(String::new(), |time| time.show()), shown, "{text}");
        }
    }

    #[test]
    fn a_value_can_be_left_out() {
        for (text, expected) in [
            ("127.0.0.1:4002", Some(Some("127.0.0.1:4002"))),
            ("off", Some(None)),
            ("", Some(None)),
            ("4002", None),
            ("none", None),
        ] {
            let expected = expected.map(|address| address.map(|it| it.parse().unwrap()));
            assert_eq!(<Option<SocketAddr> as Value>::parse(text, &()), expected, "{text}");
        }
        assert_eq!(Option::<SocketAddr>::None.show(), "off");
        assert_eq!(Option::<PathBuf>::None.show(), "(none)");
        assert_eq!(<Option<PathBuf> as Value>::parse("off", &()), Some(Some(PathBuf::from("off"))));
    }
}
