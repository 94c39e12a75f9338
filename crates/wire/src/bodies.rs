//! The request bodies of the decision API: JSON bytes in, borrowed values out.
//!
//! Reading is done once, into borrowed strings. Only when that fails is the body read again with
//! the path tracked, so that the error can name the field; a good request never pays for it.
//!
//! Unknown fields are ignored here, because a decision must not fail over a hint that a newer
//! client sends. Configuration refuses them (`algorithms::policy`). Duplicate keys are refused in
//! both: two readers could take different ones (fault 29). Depth is bounded by serde_json at 128.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::object::Object;
pub use crate::object::UniqueJson;
use crate::problem::FieldError;

/// Most requests in one batch.
pub const MAX_BATCH: usize = 1_000;

/// Most attributes of one request.
pub const MAX_REQUEST_ATTRIBUTES: usize = 32;

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// It is not JSON, or it is JSON that no two readers agree on.
    #[error("{0}")]
    Syntax(String),
    /// It is JSON, and a field is wrong.
    #[error("{}: {}", .0.pointer, .0.detail)]
    Field(FieldError),
}

/// The body of `POST /api/v1/ratelimit`.
#[derive(Debug, Deserialize, ToSchema)]
pub struct RateLimitBody<'a> {
    /// Who asks; not empty.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, example = "user123")]
    pub client_id: Cow<'a, str>,
    /// What is asked for; not empty.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, example = "api")]
    pub resource: Cow<'a, str>,
}

/// The body of `POST /api/v1/configure`.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigureBody {
    /// Length of the window in seconds.
    #[schema(minimum = 1, maximum = 7_776_000, example = 60)]
    pub window_seconds: u64,
    /// Requests per window.
    #[schema(minimum = 0, maximum = 1_000_000_000, example = 100)]
    pub request_per_window: u64,
}

/// The body of `POST /api/v1/configure-client`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigureClientBody<'a> {
    /// Whose limit. 1 to 512 bytes.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 512, example = "vip_user")]
    pub client_id: Cow<'a, str>,
    /// Length of the window in seconds.
    #[schema(minimum = 1, maximum = 7_776_000, example = 60)]
    pub window_seconds: u64,
    /// Requests per window.
    #[schema(minimum = 0, maximum = 1_000_000_000, example = 500)]
    pub request_per_window: u64,
}

/// One request for a decision: the body of `POST /v1/decisions`, `/v1/refunds` and `/v1/permits`.
#[derive(Debug, Deserialize, ToSchema)]
pub struct DecisionBody<'a> {
    /// What is known of the request. At most 32 names. A value over 512 bytes is counted by its beginning and its SHA-256.
    #[serde(borrow)]
    #[schema(value_type = std::collections::BTreeMap<String, String>, example = json!({"client_id": "user123", "resource": "api"}))]
    pub attributes: AttributesBody<'a>,
    /// Units that the request takes; 0 reads what remains.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 0, maximum = 1_000_000_000)]
    pub cost: u64,
    /// Answer as if it were spent, and spend nothing.
    #[serde(default)]
    #[schema(default = false)]
    pub peek: bool,
    /// A limit that decides if no policy applies but the built-in one, and `on_no_match` allows. Permits have none.
    #[serde(default)]
    pub limits: Option<LimitsBody>,
}

/// A limit that comes with a request: numbers of a policy, within the same bounds. It counts by all attributes, and numbers
/// that change keep what is used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsBody {
    /// Units per window.
    #[schema(minimum = 0, maximum = 1_000_000_000, example = 100)]
    pub limit: u64,
    /// Length of the window in seconds.
    #[schema(minimum = 1, maximum = 7_776_000, example = 60)]
    pub window_seconds: u64,
    /// `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log` or `sliding_counter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(default = "sliding_log")]
    pub algorithm: Option<String>,
    /// Units at once, of a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub burst: Option<u64>,
}

/// Attributes in the order sent, each name once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AttributesBody<'a>(pub Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// One request, or a batch.
#[derive(Debug)]
pub enum DecisionBodies<'a> {
    /// An object.
    One(DecisionBody<'a>),
    /// A list of 1 to [`MAX_BATCH`] objects.
    Batch(Vec<DecisionBody<'a>>),
}

/// Reads a body that is an object.
///
/// # Errors
/// [`BodyError::Syntax`] for what is not JSON in UTF-8 (RFC 8259, 8.1), fields that nobody asks for
/// included; [`BodyError::Field`] for what is not a `T`, a list of its fields' values included.
pub fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BodyError> {
    read_any::<Object<T>>(body).map(|Object(value)| value)
}

fn read_any<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BodyError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        BodyError::Syntax(format!("the body is not UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    serde_json::from_str(text).map_err(|_| explain::<T>(body))
}

/// Reads the body of `POST /v1/decisions`.
///
/// # Errors
/// As [`read`].
pub fn read_decisions(body: &[u8]) -> Result<DecisionBodies<'_>, BodyError> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'[') {
        read_any::<Batch<'_>>(body).map(|batch| DecisionBodies::Batch(batch.0))
    } else {
        read(body).map(DecisionBodies::One)
    }
}

/// Reads `body` again to find out where and why it fails.
fn explain<'a, T: Deserialize<'a>>(body: &'a [u8]) -> BodyError {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let read = T::deserialize(serde_path_to_error::Deserializer::new(&mut reader, &mut track));
    let Err(error) = read.and_then(|_| reader.end()) else {
        return BodyError::Syntax("the body cannot be read".to_owned());
    };
    let text = error.to_string();
    let wrong_value = error.is_data() || text.starts_with("number out of range");
    if !wrong_value || text.starts_with("duplicate field") {
        return BodyError::Syntax(text);
    }
    let mut pointer = pointer(&track.path());
    let mut detail = text.rsplit_once(" at line ").map_or(text.clone(), |(detail, _)| detail.to_owned());
    if let Some(missing) = detail.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        pointer.push_str(&format!("/{missing}"));
        detail = "is missing".to_owned();
    }
    BodyError::Field(FieldError { pointer, detail, accepted: String::new() })
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => format!("/{variant}"),
            Segment::Unknown => "/?".to_owned(),
        })
        .collect()
}

fn one() -> u64 {
    1
}

impl<'de: 'a, 'a> Deserialize<'de> for AttributesBody<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = AttributesBody<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(Cow<'de, str>, Cow<'de, str>)> = Vec::new();
                while let Some(name) = map.next_key_seed(TextSeed)? {
                    if pairs.len() == MAX_REQUEST_ATTRIBUTES {
                        return Err(A::Error::custom(format_args!(
                            "more than {MAX_REQUEST_ATTRIBUTES} attributes"
                        )));
                    }
                    if pairs.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom("duplicate field in attributes"));
                    }
                    pairs.push((name, map.next_value_seed(TextSeed)?));
                }
                Ok(AttributesBody(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// A string, borrowed where it has no escapes.
struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A list that is refused as soon as it is too long, before the rest of it is read.
struct Batch<'a>(Vec<DecisionBody<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Batch<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor;
        impl<'de> Visitor<'de> for ItemsVisitor {
            type Value = Batch<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of 1 to {MAX_BATCH} requests")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(Object(item)) = list.next_element()? {
                    if items.len() == MAX_BATCH {
                        return Err(A::Error::custom(format_args!("more than {MAX_BATCH} requests")));
                    }
                    items.push(item);
                }
                if items.is_empty() {
                    return Err(A::Error::custom("an empty batch"));
                }
                Ok(Batch(items))
            }
        }
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error<'a, T: Deserialize<'a> + fmt::Debug>(body: &'a str) -> BodyError {
        read::<T>(body.as_bytes()).unwrap_err()
    }

    fn field(pointer: &str, detail: &str) -> BodyError {
        let (pointer, detail) = (pointer.to_owned(), detail.to_owned());
        BodyError::Field(FieldError { pointer, detail, accepted: String::new() })
    }

    #[test]
    fn fault_13_bytes_that_are_not_utf8_are_refused_wherever_they_are() {
        let body = b"{\"client_id\":\"a\",\"resource\":\"b\",\"other\":\"\xff\"}";
        let error = read::<RateLimitBody<'_>>(body).unwrap_err();
        assert!(matches!(&error, BodyError::Syntax(text) if text.ends_with("from byte 41 on")), "{error:?}");
    }

    #[test]
    fn strings_are_borrowed_unless_escaped() {
        let body: RateLimitBody<'_> = read(br#"{"client_id":"a","resource":"\u0062","later":[1]}"#).unwrap();
        assert!(matches!(body.client_id, Cow::Borrowed("a")));
        assert_eq!(body.resource, "b");
    }

    #[test]
    fn errors_name_the_field() {
        assert_eq!(error::<RateLimitBody<'_>>(r#"{"client_id":"a"}"#), field("/resource", "is missing"));
        assert_eq!(
            error::<RateLimitBody<'_>>(r#"{"client_id":5,"resource":""}"#),
            field("/client_id", "invalid type: integer `5`, expected a string")
        );
        assert_eq!(
            error::<DecisionBody<'_>>(r#"{"attributes":{"a":1}}"#),
            field("/attributes/a", "invalid type: integer `1`, expected a string")
        );
        assert_eq!(
            error::<ConfigureBody>(r#"{"window_seconds":1e400,"request_per_window":1}"#),
            field("/window_seconds", "number out of range")
        );
    }

    #[test]
    fn fault_29_malformed_bodies_are_refused_whole() {
        let deep = "[".repeat(10_000);
        for body in [
            "",
            "{",
            r#"{"client_id":"a","resource":"b""#,
            r#"{"client_id":"a","resource":"b"} x"#,
            r#"{"client_id":"a","client_id":"b","resource":"c"}"#,
            &format!(r#"{{"client_id":"a","resource":"b","x":{deep}"#),
            "\u{feff}{}",
        ] {
            assert!(matches!(error::<RateLimitBody<'_>>(body), BodyError::Syntax(_)), "{body:.60}");
        }
        let twice = r#"{"attributes":{"a":"1","a":"2"}}"#;
        assert!(matches!(error::<DecisionBody<'_>>(twice), BodyError::Syntax(_)));
        assert!(read::<RateLimitBody<'_>>(b"{\"client_id\":\"\xff\",\"resource\":\"\"}").is_err());
    }

    #[test]
    fn fault_29_a_name_that_comes_twice_is_refused_at_every_depth() {
        for body in [r#"{"limit":1,"limit":2}"#, r#"{"match":{"a":"1","a":"2"}}"#, r#"{"a":[{"b":1,"b":1}]}"#]
        {
            assert!(
                matches!(error::<UniqueJson>(body), BodyError::Syntax(text) if text.starts_with("duplicate field"))
            );
        }
        let body = r#"{"a":[1,-1,1.5,true,null,"x",{"a":{"a":1}}],"b":18446744073709551615}"#;
        let expected: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(read::<UniqueJson>(body.as_bytes()).unwrap().0, expected);
        assert!(matches!(
            error::<UniqueJson>(&format!("{{\"a\":{}", "[".repeat(10_000))),
            BodyError::Syntax(_)
        ));
    }

    #[test]
    fn a_list_of_values_is_no_object() {
        let expected = field("", "invalid type: sequence, expected an object");
        assert_eq!(error::<ConfigureBody>("[60,100]"), expected);
        assert_eq!(error::<RateLimitBody<'_>>(r#"["a","b"]"#), expected);
        assert_eq!(error::<UniqueJson>("[]"), expected);
        let item = read_decisions(br#"[[{"client_id":"a"},1,false]]"#).unwrap_err();
        assert_eq!(item, field("/0", "invalid type: sequence, expected an object"));
    }

    #[test]
    fn a_batch_is_bounded_from_both_sides() {
        let many = |count: usize| format!("[{}]", vec![r#"{"attributes":{}}"#; count].join(","));
        assert!(matches!(read_decisions(many(MAX_BATCH).as_bytes()), Ok(DecisionBodies::Batch(_))));
        assert!(read_decisions(many(MAX_BATCH + 1).as_bytes()).is_err());
        assert!(read_decisions(b"[]").is_err());
        assert!(matches!(read_decisions(b" {\"attributes\":{}}"), Ok(DecisionBodies::One(_))));
    }

    #[test]
    fn attributes_are_bounded() {
        let pairs: Vec<String> = (0..=MAX_REQUEST_ATTRIBUTES).map(|n| format!("\"a{n}\":\"\"")).collect();
        let body = format!(r#"{{"attributes":{{{}}}}}"#, pairs.join(","));
        assert_eq!(error::<DecisionBody<'_>>(&body), field("/attributes", "more than 32 attributes"));
    }
}
