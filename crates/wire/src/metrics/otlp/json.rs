//! A request in JSON as one in protobuf.
//!
//! The messages are declared once, for serde and for prost, as far as [`super`] reads them. A choice of fields
//! (`oneof`) is several optional ones here, of which senders set one; on the wire that is the same.
//!
//! What JSON may say in several ways is read in all of them, as protobuf's mapping has it: `null` is a field that is not
//! there, a number may be a text (`"1.5"`, `"Infinity"`), an integer may have a point or an exponent (`1.0`, `1e3`). Fields
//! that are not known are passed over, names with underscores among them: OpenTelemetry allows no others than camelCase.
//!
//! The number of objects is bounded before anything is made of them: an empty one has three bytes in the text, and a
//! hundred in memory.

use std::borrow::Cow;
use std::fmt;

use prost::Message;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::attributes::from_base64;

/// Most objects of a request.
const MAX_OBJECTS: usize = 200_000;

/// Why a request in JSON is not taken.
#[derive(Debug, Error)]
pub enum JsonError {
    /// It is not JSON, or not of the expected type.
    #[error("the body is no metrics in JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// It has too many objects.
    #[error("the body has more than {MAX_OBJECTS} objects")]
    TooMany,
}

/// The same request in protobuf.
///
/// # Errors
/// When it is malformed or too large.
pub fn from_json(body: &[u8]) -> Result<Vec<u8>, JsonError> {
    if memchr::memchr_iter(b'{', body).count() > MAX_OBJECTS {
        return Err(JsonError::TooMany);
    }
    Ok(serde_json::from_slice::<Request>(body)?.encode_to_vec())
}

/// Declares a message for serde and for prost.
macro_rules! message {
    ($Name:ident { $($(#[$attribute:meta])* $field:ident: $Type:ty,)* }) => {
        #[derive(Clone, PartialEq, Deserialize, Message)]
        #[serde(rename_all = "camelCase", default)]
        struct $Name { $($(#[$attribute])* $field: $Type,)* }
    };
}

message! { Request {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] resource_metrics: Vec<ResourceMetrics>,
}}
message! { ResourceMetrics {
    #[prost(message, optional, tag = "1")] resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")] #[serde(deserialize_with = "nullable")] scope_metrics: Vec<ScopeMetrics>,
}}
message! { Resource {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] attributes: Vec<KeyValue>,
}}
message! { ScopeMetrics {
    #[prost(message, optional, tag = "1")] scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")] #[serde(deserialize_with = "nullable")] metrics: Vec<MetricMessage>,
}}
message! { Scope {
    #[prost(string, tag = "1")] #[serde(deserialize_with = "nullable")] name: String,
    #[prost(string, tag = "2")] #[serde(deserialize_with = "nullable")] version: String,
    #[prost(message, repeated, tag = "3")] #[serde(deserialize_with = "nullable")] attributes: Vec<KeyValue>,
}}
message! { MetricMessage {
    #[prost(string, tag = "1")] #[serde(deserialize_with = "nullable")] name: String,
    #[prost(message, optional, tag = "5")] gauge: Option<Numbers>,
    #[prost(message, optional, tag = "7")] sum: Option<Numbers>,
    #[prost(message, optional, tag = "9")] histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")] exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")] summary: Option<Summary>,
}}
message! { Numbers {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")] #[serde(deserialize_with = "integer")] aggregation_temporality: i32,
    #[prost(bool, tag = "3")] #[serde(deserialize_with = "nullable")] is_monotonic: bool,
}}
message! { NumberPoint {
    #[prost(message, repeated, tag = "7")] #[serde(deserialize_with = "nullable")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(double, optional, tag = "4")] #[serde(deserialize_with = "double")] as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")] #[serde(deserialize_with = "optional")] as_int: Option<i64>,
    #[prost(message, repeated, tag = "5")] #[serde(deserialize_with = "nullable")] exemplars: Vec<Nothing>,
    #[prost(uint32, tag = "8")] #[serde(deserialize_with = "integer")] flags: u32,
}}
message! { Histogram {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")] #[serde(deserialize_with = "integer")] aggregation_temporality: i32,
}}
message! { HistogramPoint {
    #[prost(message, repeated, tag = "9")] #[serde(deserialize_with = "nullable")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(fixed64, tag = "4")] #[serde(deserialize_with = "integer")] count: u64,
    #[prost(double, optional, tag = "5")] #[serde(deserialize_with = "double")] sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")] #[serde(deserialize_with = "integers")] bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")] #[serde(deserialize_with = "doubles")] explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")] #[serde(deserialize_with = "nullable")] exemplars: Vec<Nothing>,
    #[prost(uint32, tag = "10")] #[serde(deserialize_with = "integer")] flags: u32,
    #[prost(double, optional, tag = "11")] #[serde(deserialize_with = "double")] min: Option<f64>,
    #[prost(double, optional, tag = "12")] #[serde(deserialize_with = "double")] max: Option<f64>,
}}
message! { ExponentialHistogram {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] data_points: Vec<ExponentialPoint>,
    #[prost(int32, tag = "2")] #[serde(deserialize_with = "integer")] aggregation_temporality: i32,
}}
message! { ExponentialPoint {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(fixed64, tag = "4")] #[serde(deserialize_with = "integer")] count: u64,
    #[prost(double, optional, tag = "5")] #[serde(deserialize_with = "double")] sum: Option<f64>,
    #[prost(uint32, tag = "10")] #[serde(deserialize_with = "integer")] flags: u32,
    #[prost(message, repeated, tag = "11")] #[serde(deserialize_with = "nullable")] exemplars: Vec<Nothing>,
    #[prost(double, optional, tag = "12")] #[serde(deserialize_with = "double")] min: Option<f64>,
    #[prost(double, optional, tag = "13")] #[serde(deserialize_with = "double")] max: Option<f64>,
}}
message! { Summary {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] data_points: Vec<SummaryPoint>,
}}
message! { SummaryPoint {
    #[prost(message, repeated, tag = "7")] #[serde(deserialize_with = "nullable")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(fixed64, tag = "4")] #[serde(deserialize_with = "integer")] count: u64,
    #[prost(double, optional, tag = "5")] #[serde(deserialize_with = "double")] sum: Option<f64>,
    #[prost(message, repeated, tag = "6")] #[serde(deserialize_with = "nullable")] quantile_values: Vec<Quantile>,
    #[prost(uint32, tag = "8")] #[serde(deserialize_with = "integer")] flags: u32,
}}
message! { Quantile {
    #[prost(double, optional, tag = "1")] #[serde(deserialize_with = "double")] quantile: Option<f64>,
    #[prost(double, optional, tag = "2")] #[serde(deserialize_with = "double")] value: Option<f64>,
}}
message! { KeyValue {
    #[prost(string, tag = "1")] #[serde(deserialize_with = "nullable")] key: String,
    #[prost(message, optional, tag = "2")] value: Option<AnyValue>,
}}
message! { AnyValue {
    #[prost(string, optional, tag = "1")] string_value: Option<String>,
    #[prost(bool, optional, tag = "2")] bool_value: Option<bool>,
    #[prost(int64, optional, tag = "3")] #[serde(deserialize_with = "optional")] int_value: Option<i64>,
    #[prost(double, optional, tag = "4")] #[serde(deserialize_with = "double")] double_value: Option<f64>,
    #[prost(message, optional, tag = "5")] array_value: Option<ArrayValue>,
    #[prost(message, optional, tag = "6")] kvlist_value: Option<KeyValueList>,
    #[prost(bytes = "vec", optional, tag = "7")] #[serde(deserialize_with = "bytes")] bytes_value: Option<Vec<u8>>,
}}
message! { ArrayValue {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] values: Vec<AnyValue>,
}}
message! { KeyValueList {
    #[prost(message, repeated, tag = "1")] #[serde(deserialize_with = "nullable")] values: Vec<KeyValue>,
}}
message! { Nothing {} }

/// A number in any of the forms that JSON may have.
enum Digits<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'a, str>),
}

impl Digits<'_> {
    /// The integer that it is, if it is one of these.
    fn integer<N: TryFrom<u64> + TryFrom<i64>>(&self) -> Option<N> {
        match self {
            Self::Unsigned(number) => N::try_from(*number).ok(),
            Self::Signed(number) => N::try_from(*number).ok(),
            Self::Float(number) => whole(*number).and_then(|number| N::try_from(number).ok()),
            Self::Text(text) => {
                let signed = || text.parse().ok().and_then(|number: i64| N::try_from(number).ok());
                let unsigned = || text.parse().ok().and_then(|number: u64| N::try_from(number).ok());
                let float = || text.parse().ok().and_then(whole).and_then(|number| N::try_from(number).ok());
                signed().or_else(unsigned).or_else(float)
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the field is a float")]
    fn double(&self) -> Option<f64> {
        match self {
            Self::Unsigned(number) => Some(*number as f64),
            Self::Signed(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            // So `NaN`, `Infinity` and `-Infinity` are written.
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// The integer that a float is.
#[expect(clippy::cast_possible_truncation, reason = "it is an integer within 2^63")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9_223_372_036_854_775_808.0).then_some(number as i64)
}

impl<'de> Deserialize<'de> for Digits<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyDigits;

        impl<'de> Visitor<'de> for AnyDigits {
            type Value = Digits<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Digits<'de>, E> {
                Ok(Digits::Unsigned(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Digits<'de>, E> {
                Ok(Digits::Signed(number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Digits<'de>, E> {
                Ok(Digits::Float(number))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Digits<'de>, E> {
                Ok(Digits::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Digits<'de>, E> {
                Ok(Digits::Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_any(AnyDigits)
    }
}

/// A field that may be `null`, which is its default.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A field of a number that may be `null`.
fn read<'de, D: Deserializer<'de>, N>(
    deserializer: D,
    read: fn(&Digits<'_>) -> Option<N>,
) -> Result<Option<N>, D::Error> {
    let digits = Option::<Digits<'de>>::deserialize(deserializer)?;
    digits.map(|digits| read(&digits).ok_or_else(|| no_number(&digits))).transpose()
}

/// A list of numbers that may be `null`.
fn read_list<'de, D: Deserializer<'de>, N>(
    deserializer: D,
    read: fn(&Digits<'_>) -> Option<N>,
) -> Result<Vec<N>, D::Error> {
    let list: Vec<Digits<'de>> = nullable(deserializer)?;
    list.iter().map(|digits| read(digits).ok_or_else(|| no_number(digits))).collect()
}

fn no_number<E: serde::de::Error>(digits: &Digits<'_>) -> E {
    match digits {
        Digits::Text(text) => E::custom(format_args!("{text:?} is no number of this field")),
        Digits::Float(number) => E::custom(format_args!("{number} is no number of this field")),
        Digits::Unsigned(number) => E::custom(format_args!("{number} is no number of this field")),
        Digits::Signed(number) => E::custom(format_args!("{number} is no number of this field")),
    }
}

fn integer<'de, D, N>(deserializer: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64> + TryFrom<i64> + Default,
{
    Ok(read(deserializer, |digits| digits.integer())?.unwrap_or_default())
}

fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    read(deserializer, |digits| digits.integer())
}

fn integers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    read_list(deserializer, |digits| digits.integer())
}

fn double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    read(deserializer, |digits| digits.double())
}

fn doubles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    read_list(deserializer, |digits| digits.double())
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| from_base64(&text).ok_or_else(|| D::Error::custom("bytesValue is no base64"))).transpose()
}
