//! Attributes as the tags of lines.

use std::borrow::Cow;
use std::fmt::Write;

use super::{Fields, Malformed};
use crate::protobuf::FieldValue;

/// How deep lists and maps may stand in each other.
const MAX_DEPTH: usize = 16;

/// Names and texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes<'a>(Vec<(&'a str, Cow<'a, str>)>);

impl<'a> Attributes<'a> {
    /// Adds a `KeyValue`. Of a name that comes twice the last value is taken.
    pub(super) fn add(&mut self, attribute: &'a [u8]) -> Result<(), Malformed> {
        let (mut key, mut value) = ("", None);
        for field in Fields::of(attribute) {
            match field? {
                (1, field) => key = field.text()?,
                (2, field) => value = text(field.bytes()?)?,
                _ => {}
            }
        }
        if let Some(value) = value {
            match self.0.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = value,
                None => self.0.push((key, value)),
            }
        }
        Ok(())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }
}

/// The text of an `AnyValue`; `None` for bytes, and for no value.
fn text(value: &[u8]) -> Result<Option<Cow<'_, str>>, Malformed> {
    let mut text = None;
    for field in Fields::of(value) {
        text = match field? {
            (1, field) => Some(Cow::Borrowed(field.text()?)),
            (2, field) => Some(Cow::Borrowed(if field.unsigned()? == 0 { "false" } else { "true" })),
            (3, field) => Some(Cow::Owned(field.int64()?.to_string())),
            (4, field) => Some(Cow::Owned(field.double()?.to_string())),
            (5 | 6, _) => {
                let mut json = String::new();
                write_json(value, 0, &mut json)?;
                Some(Cow::Owned(json))
            }
            _ => text,
        };
    }
    Ok(text)
}

fn write_json(value: &[u8], depth: usize, out: &mut String) -> Result<(), Malformed> {
    if depth == MAX_DEPTH {
        return Err(Malformed);
    }
    let mut last = None;
    for field in Fields::of(value) {
        last = Some(field?);
    }
    match last {
        Some((1, text)) => write_string(text.text()?, out),
        Some((2, flag)) => out.push_str(if flag.unsigned()? == 0 { "false" } else { "true" }),
        Some((3, number)) => write_number(number.int64()?, out),
        Some((4, number)) if number.double()?.is_finite() => write_number(number.double()?, out),
        Some((5, list)) => write_all('[', list, ']', out, |item, out| write_json(item, depth + 1, out))?,
        Some((6, map)) => write_all('{', map, '}', out, |pair, out| write_pair(pair, depth + 1, out))?,
        _ => out.push_str("null"),
    }
    Ok(())
}

fn write_all(
    open: char,
    message: FieldValue<'_>,
    close: char,
    out: &mut String,
    mut write: impl FnMut(&[u8], &mut String) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    out.push(open);
    let mut is_first = true;
    for field in Fields::of(message.bytes()?) {
        if let (1, item) = field? {
            if !is_first {
                out.push(',');
            }
            is_first = false;
            write(item.bytes()?, out)?;
        }
    }
    out.push(close);
    Ok(())
}

fn write_pair(pair: &[u8], depth: usize, out: &mut String) -> Result<(), Malformed> {
    let (mut key, mut value) = ("", &[][..]);
    for field in Fields::of(pair) {
        match field? {
            (1, field) => key = field.text()?,
            (2, field) => value = field.bytes()?,
            _ => {}
        }
    }
    write_string(key, out);
    out.push(':');
    write_json(value, depth, out)
}

fn write_string(text: &str, out: &mut String) {
    // Invariant: every text can be written.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

fn write_number(number: impl std::fmt::Display, out: &mut String) {
    // Invariant: a string takes all text.
    write!(out, "{number}").unwrap_or_default();
}
