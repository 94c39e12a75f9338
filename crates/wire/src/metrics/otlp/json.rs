//! A request in JSON as one in protobuf.
//!
//! The messages are declared once, for serde and for prost, as far as [`super`] reads them. A choice of fields
//! (`oneof`) is several optional ones here, of which senders set one; on the wire that is the same.
//!
//! The number of objects is bounded before anything is made of them: an empty one has three bytes in the text, and a
//! hundred in memory. Floats are read by serde_json, which may be off in the last digit.

use prost::Message;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

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
    #[prost(message, repeated, tag = "1")] resource_metrics: Vec<ResourceMetrics>,
}}
message! { ResourceMetrics {
    #[prost(message, optional, tag = "1")] resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")] scope_metrics: Vec<ScopeMetrics>,
}}
message! { Resource {
    #[prost(message, repeated, tag = "1")] attributes: Vec<KeyValue>,
}}
message! { ScopeMetrics {
    #[prost(message, repeated, tag = "2")] metrics: Vec<MetricMessage>,
}}
message! { MetricMessage {
    #[prost(string, tag = "1")] name: String,
    #[prost(message, optional, tag = "5")] gauge: Option<Numbers>,
    #[prost(message, optional, tag = "7")] sum: Option<Numbers>,
    #[prost(message, optional, tag = "9")] histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")] exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")] summary: Option<Summary>,
}}
message! { Numbers {
    #[prost(message, repeated, tag = "1")] data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")] aggregation_temporality: i32,
    #[prost(bool, tag = "3")] is_monotonic: bool,
}}
message! { NumberPoint {
    #[prost(message, repeated, tag = "7")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(double, optional, tag = "4")] #[serde(deserialize_with = "double")] as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")] #[serde(deserialize_with = "optional")] as_int: Option<i64>,
    #[prost(message, repeated, tag = "5")] exemplars: Vec<Nothing>,
    #[prost(uint32, tag = "8")] flags: u32,
}}
message! { Histogram {
    #[prost(message, repeated, tag = "1")] data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")] aggregation_temporality: i32,
}}
message! { HistogramPoint {
    #[prost(message, repeated, tag = "9")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(fixed64, tag = "4")] #[serde(deserialize_with = "integer")] count: u64,
    #[prost(double, optional, tag = "5")] #[serde(deserialize_with = "double")] sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")] #[serde(deserialize_with = "integers")] bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")] explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")] exemplars: Vec<Nothing>,
    #[prost(uint32, tag = "10")] flags: u32,
    #[prost(double, optional, tag = "11")] #[serde(deserialize_with = "double")] min: Option<f64>,
    #[prost(double, optional, tag = "12")] #[serde(deserialize_with = "double")] max: Option<f64>,
}}
message! { ExponentialHistogram {
    #[prost(message, repeated, tag = "1")] data_points: Vec<Nothing>,
}}
message! { Summary {
    #[prost(message, repeated, tag = "1")] data_points: Vec<SummaryPoint>,
}}
message! { SummaryPoint {
    #[prost(message, repeated, tag = "7")] attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")] #[serde(deserialize_with = "integer")] time_unix_nano: u64,
    #[prost(fixed64, tag = "4")] #[serde(deserialize_with = "integer")] count: u64,
    #[prost(double, optional, tag = "5")] #[serde(deserialize_with = "double")] sum: Option<f64>,
    #[prost(message, repeated, tag = "6")] quantile_values: Vec<Quantile>,
    #[prost(uint32, tag = "8")] flags: u32,
}}
message! { Quantile {
    #[prost(double, optional, tag = "1")] #[serde(deserialize_with = "double")] quantile: Option<f64>,
    #[prost(double, optional, tag = "2")] #[serde(deserialize_with = "double")] value: Option<f64>,
}}
message! { KeyValue {
    #[prost(string, tag = "1")] key: String,
    #[prost(message, optional, tag = "2")] value: Option<AnyValue>,
}}
message! { AnyValue {
    #[prost(string, optional, tag = "1")] string_value: Option<String>,
    #[prost(bool, optional, tag = "2")] bool_value: Option<bool>,
    #[prost(int64, optional, tag = "3")] #[serde(deserialize_with = "optional")] int_value: Option<i64>,
    #[prost(double, optional, tag = "4")] #[serde(deserialize_with = "double")] double_value: Option<f64>,
    #[prost(message, optional, tag = "5")] array_value: Option<ArrayValue>,
    #[prost(message, optional, tag = "6")] kvlist_value: Option<KeyValueList>,
}}
message! { ArrayValue {
    #[prost(message, repeated, tag = "1")] values: Vec<AnyValue>,
}}
message! { KeyValueList {
    #[prost(message, repeated, tag = "1")] values: Vec<KeyValue>,
}}
message! { Nothing {} }

/// A number of 64 bits, which JSON may have as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Digits<'a, N> {
    Number(N),
    Text(#[serde(borrow)] std::borrow::Cow<'a, str>),
}

impl<N: std::str::FromStr> Digits<'_, N> {
    fn read<E: serde::de::Error>(self) -> Result<N, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => {
                text.parse().map_err(|_| E::custom(format_args!("{text:?} is no such number")))
            }
        }
    }
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Digits::deserialize(deserializer)?.read()
}

fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Option::<Digits<'de, i64>>::deserialize(deserializer)?.map(Digits::read).transpose()
}

fn integers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    Vec::<Digits<'de, u64>>::deserialize(deserializer)?.into_iter().map(Digits::read).collect()
}

/// `NaN`, `Infinity` and `-Infinity` are texts in JSON.
fn double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::<Digits<'de, f64>>::deserialize(deserializer)?.map(Digits::read).transpose()
}
