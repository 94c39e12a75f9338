//! One metric of a batch: its fields in any order, each once.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Name;
use crate::metrics::{Kind, LineWriter, MAX_TAGS, Metric, MetricError, Number, rfc3339};

/// Names and values of a metric's tags. One vector serves all metrics of a batch.
pub(super) type MetricTags<'de> = Vec<(Cow<'de, str>, Cow<'de, str>)>;

/// Reads one metric and writes its line.
pub(super) struct MetricSeed<'r, 'de> {
    pub(super) writer: &'r mut LineWriter,
    pub(super) tags: &'r mut MetricTags<'de>,
}

impl<'de> DeserializeSeed<'de> for MetricSeed<'_, 'de> {
    type Value = Result<(), MetricError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// What has been read of a metric.
#[derive(Default)]
struct MetricFields<'de> {
    name: Option<Cow<'de, str>>,
    value: Option<Number>,
    kind: Option<Kind>,
    millis: Option<i64>,
    /// A bit for each [`Field`] that came.
    seen: u8,
    error: Option<MetricError>,
}

impl<'de> Visitor<'de> for MetricSeed<'_, 'de> {
    type Value = Result<(), MetricError>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a metric")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = MetricFields::default();
        while let Some(field) = map.next_key()? {
            fields.read(field, &mut map, self.tags)?;
        }
        Ok(fields.write(self.tags, self.writer))
    }
}

impl<'de> MetricFields<'de> {
    /// Reads the value of `field`. Only what is not JSON is an error here.
    fn read<A: MapAccess<'de>>(
        &mut self,
        field: Field,
        map: &mut A,
        tags: &mut MetricTags<'de>,
    ) -> Result<(), A::Error> {
        let Some(word) = field.word() else { return map.next_value::<IgnoredAny>().map(drop) };
        let bit = 1 << field as u8;
        if self.seen & bit != 0 {
            self.fail(MetricError::Twice(word));
            return map.next_value::<IgnoredAny>().map(drop);
        }
        self.seen |= bit;
        if field == Field::Tags {
            if let Err(error) = map.next_value_seed(TagsSeed(tags))? {
                self.fail(error);
            }
            return Ok(());
        }
        let raw: &'de RawValue = map.next_value()?;
        if let Err(error) = self.set(field, raw.get()) {
            self.fail(error);
        }
        Ok(())
    }

    fn set(&mut self, field: Field, raw: &'de str) -> Result<(), MetricError> {
        match field {
            Field::Name => {
                let expected = MetricError::Type { field: "name", expected: "a string" };
                self.name = Some(text(raw).ok_or(expected)?);
            }
            Field::Value => {
                let expected = MetricError::Type { field: "value", expected: "a number" };
                self.value = Some(number(raw).ok_or(expected)?);
            }
            Field::Kind if raw != "null" => {
                let kind = text(raw).and_then(|word| Kind::of_word(&word));
                self.kind = Some(kind.ok_or(MetricError::UnknownKind)?);
            }
            Field::Timestamp if raw != "null" => {
                let millis = match text(raw) {
                    Some(text) => rfc3339::parse(&text),
                    None => raw.parse().ok(),
                };
                self.millis = Some(millis.ok_or(MetricError::Timestamp)?);
            }
            Field::Kind | Field::Timestamp | Field::Tags | Field::Other => {}
        }
        Ok(())
    }

    /// The first error of a metric is the one that is said.
    fn fail(&mut self, error: MetricError) {
        self.error.get_or_insert(error);
    }

    fn write(self, tags: &MetricTags<'de>, writer: &mut LineWriter) -> Result<(), MetricError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let name = self.name.ok_or(MetricError::Missing("name"))?;
        let value = self.value.ok_or(MetricError::Missing("value"))?;
        let tags = tags.iter().map(|(name, value)| (&**name, &**value));
        let kind = self.kind.unwrap_or_default();
        writer.write(&Metric { name: &name, value, kind, millis: self.millis, tags })
    }
}

/// A JSON string's text; `None` if `raw` is another JSON value.
fn text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw).ok().map(Cow::Owned)
}

/// A JSON number; `None` if `raw` is another JSON value.
fn number(raw: &str) -> Option<Number> {
    raw.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        .then(|| Number::parse(raw))
        .flatten()
}

/// The fields of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Value,
    Kind,
    Tags,
    Timestamp,
    Other,
}

impl Field {
    const fn word(self) -> Option<&'static str> {
        match self {
            Self::Name => Some("name"),
            Self::Value => Some("value"),
            Self::Kind => Some("type"),
            Self::Tags => Some("tags"),
            Self::Timestamp => Some("timestamp"),
            Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = Field;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a field's name")
            }

            fn visit_str<E>(self, word: &str) -> Result<Field, E> {
                Ok(match word {
                    "name" => Field::Name,
                    "value" => Field::Value,
                    "type" => Field::Kind,
                    "tags" => Field::Tags,
                    "timestamp" => Field::Timestamp,
                    _ => Field::Other,
                })
            }
        }
        deserializer.deserialize_identifier(Word)
    }
}

/// Reads the tags of a metric.
struct TagsSeed<'r, 'de>(&'r mut MetricTags<'de>);

impl<'de> DeserializeSeed<'de> for TagsSeed<'_, 'de> {
    type Value = Result<(), MetricError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for TagsSeed<'_, 'de> {
    type Value = Result<(), MetricError>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of strings as tags")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Ok(()))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut result = Ok(());
        while let Some(Name(name)) = map.next_key()? {
            let raw: &'de RawValue = map.next_value()?;
            match text(raw.get()) {
                Some(_) if self.0.len() == MAX_TAGS => result = Err(MetricError::TooManyTags),
                Some(value) => self.0.push((name, value)),
                None => result = Err(MetricError::Type { field: "each tag", expected: "a string" }),
            }
        }
        Ok(result)
    }
}
