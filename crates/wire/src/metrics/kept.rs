//! A line that was kept, read back with everything that is in it.
//!
//! For who needs a line's value and tags, and not only its name and time as [`describe`](super::describe) gives
//! them. Texts without escapes are borrowed from the line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Kind, Number, rfc3339};

/// A line, read.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptLine<'a> {
    /// When it was measured, in Unix milliseconds.
    pub millis: i64,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its value.
    pub value: Number,
    /// What the value is.
    pub kind: Kind,
    /// Its tags, in the order in which they came.
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Who sent it.
    pub client: Cow<'a, str>,
}

impl KeptLine<'_> {
    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }
}

/// Reads a line that a [`LineWriter`](super::LineWriter) wrote, with or without its line feed; `None` for anything
/// else.
#[must_use]
pub fn read_line(line: &[u8]) -> Option<KeptLine<'_>> {
    let KeptFields { timestamp, name, value, kind, tags, client } = serde_json::from_slice(line).ok()?;
    Some(KeptLine {
        millis: rfc3339::parse(&timestamp)?,
        name,
        value,
        kind: Kind::of_word(&kind)?,
        tags: tags.0,
        client,
    })
}

#[derive(Deserialize)]
struct KeptFields<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    value: Number,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    tags: KeptTags<'a>,
    #[serde(borrow)]
    client: Cow<'a, str>,
}

struct KeptTags<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// A text that is borrowed where it has no escapes, which a plain `Cow` in a map never is.
#[derive(Deserialize)]
struct KeptText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for KeptTags<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TagsVisitor;

        impl<'de> Visitor<'de> for TagsVisitor {
            type Value = KeptTags<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("tags")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeptTags<'de>, A::Error> {
                let mut tags = Vec::new();
                while let Some((KeptText(name), KeptText(value))) = map.next_entry()? {
                    tags.push((name, value));
                }
                Ok(KeptTags(tags))
            }
        }

        deserializer.deserialize_map(TagsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metrics::{LineWriter, Metric};

    proptest! {
        #[test]
        fn what_was_written_is_read(
            name in "\\PC{1,30}",
            value in any::<f64>().prop_filter("lines have none", |value| value.is_finite()),
            kind in proptest::sample::select(&Kind::ALL[..]),
            millis in rfc3339::FIRST..=rfc3339::LAST,
            tags in proptest::collection::btree_map("\\PC{1,9}", ".{0,9}", 0..5),
            client in ".{0,9}",
        ) {
            let mut writer = LineWriter::new(&client, 0, usize::MAX);
            let pairs = tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            writer.write(&Metric { name: &name, value: value.into(), kind, millis: Some(millis), tags: pairs }).unwrap();
            let lines = writer.finish();
            let read = read_line(&lines.bytes).unwrap();
            prop_assert_eq!((read.millis, &*read.name, read.kind, &*read.client), (millis, &*name, kind, &*client));
            prop_assert_eq!(read.value.float().to_bits(), value.to_bits());
            let found: Vec<(&str, &str)> = read.tags.iter().map(|(name, value)| (&**name, &**value)).collect();
            prop_assert_eq!(found, tags.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>());
            for (name, value) in &tags {
                prop_assert_eq!(read.tag(name), Some(value.as_str()));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = read_line(&bytes);
        }
    }

    #[test]
    fn plain_texts_are_borrowed() {
        let line = br#"{"timestamp":"2026-11-23T08:00:00.000Z","name":"a","value":1.0,"type":"gauge","tags":{"host":"b"},"client":"c"}"#;
        let read = read_line(line).unwrap();
        let (name, value) = &read.tags[0];
        for text in [&read.name, &read.client, name, value] {
            assert!(matches!(text, Cow::Borrowed(_)), "{text}");
        }
    }
}
