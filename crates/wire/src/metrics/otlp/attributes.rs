//! Attributes as the tags of lines.

use std::borrow::Cow;
use std::fmt::Write;

use super::{Fields, Malformed};
use crate::protobuf::FieldValue;

/// How deep lists and maps may stand in each other.
const MAX_DEPTH: usize = 16;
/// What the name of a scope's attribute begins with.
const SCOPE: &str = "otel.scope.";
const SCOPE_NAME: &str = "otel.scope.name";
const SCOPE_VERSION: &str = "otel.scope.version";

/// Names and texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes<'a> {
    list: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether one was left out because it is not UTF-8: what has these attributes is not what it says.
    is_cut: bool,
}

/// Why an attribute cannot be read.
enum Unreadable {
    Malformed,
    /// A text of the point is not UTF-8; the rest of the request may still be good.
    NotText,
}

impl From<Malformed> for Unreadable {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

fn utf8(field: FieldValue<'_>) -> Result<&str, Unreadable> {
    field.text()?.ok_or(Unreadable::NotText)
}

impl<'a> Attributes<'a> {
    /// Adds a `KeyValue`. Of a name that comes twice the last value is taken.
    pub(super) fn add(&mut self, attribute: &'a [u8]) -> Result<(), Malformed> {
        self.add_below("", attribute)
    }

    /// Adds name, version and attributes of an `InstrumentationScope`.
    pub(super) fn add_scope(&mut self, scope: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields::of(scope) {
            let (name, text) = match field? {
                (1, text) => (SCOPE_NAME, text.text()?),
                (2, text) => (SCOPE_VERSION, text.text()?),
                (3, attribute) => {
                    self.add_below(SCOPE, attribute.bytes()?)?;
                    continue;
                }
                _ => continue,
            };
            match text {
                None => self.is_cut = true,
                Some("") => {}
                Some(text) => self.set(name.into(), text.into()),
            }
        }
        Ok(())
    }

    /// Adds a `KeyValue` under its key behind `prefix`.
    fn add_below(&mut self, prefix: &str, attribute: &'a [u8]) -> Result<(), Malformed> {
        match key_value(attribute) {
            Ok((key, Some(value))) => {
                let key = if prefix.is_empty() { key.into() } else { format!("{prefix}{key}").into() };
                self.set(key, value);
            }
            Ok((_, None)) => {}
            Err(Unreadable::NotText) => self.is_cut = true,
            Err(Unreadable::Malformed) => return Err(Malformed),
        }
        Ok(())
    }

    fn set(&mut self, key: Cow<'a, str>, value: Cow<'a, str>) {
        match self.list.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.list.push((key, value)),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|(known, _)| *known == name)
    }

    /// Whether one was left out because it is not UTF-8.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.list.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Key and text of a `KeyValue`; `None` for no value.
fn key_value(attribute: &[u8]) -> Result<(&str, Option<Cow<'_, str>>), Unreadable> {
    let (mut key, mut value) = ("", None);
    for field in Fields::of(attribute) {
        match field? {
            (1, field) => key = utf8(field)?,
            (2, field) => value = text(field.bytes()?)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// The text of an `AnyValue`; `None` for no value.
fn text(value: &[u8]) -> Result<Option<Cow<'_, str>>, Unreadable> {
    let mut text = None;
    for field in Fields::of(value) {
        text = match field? {
            (1, field) => Some(Cow::Borrowed(utf8(field)?)),
            (2, field) => Some(Cow::Borrowed(if field.unsigned()? == 0 { "false" } else { "true" })),
            (3, field) => Some(Cow::Owned(field.int64()?.to_string())),
            (4, field) => Some(Cow::Owned(field.double()?.to_string())),
            (5 | 6, _) => {
                let mut json = String::new();
                write_json(value, 0, &mut json)?;
                Some(Cow::Owned(json))
            }
            (7, field) => Some(Cow::Owned(base64(field.bytes()?))),
            _ => text,
        };
    }
    Ok(text)
}

/// Bytes as OpenTelemetry has them in formats that have none (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    let digit = |bits: u32| char::from(DIGITS[bits as usize & 63]);
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let digits = [digit(bits >> 18), digit(bits >> 12), digit(bits >> 6), digit(bits)];
        let (written, padding) = digits.split_at(chunk.len() + 1);
        text.extend(written);
        text.extend(padding.iter().map(|_| '='));
    }
    text
}

/// The bytes of such a text, or of one in the alphabet for addresses, with or without its end.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut bits = 0;
        for place in 0..4 {
            let value = match chunk.get(place).copied() {
                None => 0,
                Some(b'-') => 62,
                Some(b'_') => 63,
                Some(digit) => DIGITS.iter().position(|known| *known == digit)?,
            };
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        if chunk.len() == 1 {
            return None;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn write_json(value: &[u8], depth: usize, out: &mut String) -> Result<(), Unreadable> {
    if depth == MAX_DEPTH {
        return Err(Unreadable::Malformed);
    }
    let mut last = None;
    for field in Fields::of(value) {
        last = Some(field?);
    }
    match last {
        Some((1, text)) => write_string(utf8(text)?, out),
        Some((2, flag)) => out.push_str(if flag.unsigned()? == 0 { "false" } else { "true" }),
        Some((3, number)) => write_number(number.int64()?, out),
        Some((4, number)) if number.double()?.is_finite() => write_number(number.double()?, out),
        Some((5, list)) => write_all('[', list, ']', out, |item, out| write_json(item, depth + 1, out))?,
        Some((6, map)) => write_all('{', map, '}', out, |pair, out| write_pair(pair, depth + 1, out))?,
        Some((7, bytes)) => write_string(&base64(bytes.bytes()?), out),
        _ => out.push_str("null"),
    }
    Ok(())
}

fn write_all(
    open: char,
    message: FieldValue<'_>,
    close: char,
    out: &mut String,
    mut write: impl FnMut(&[u8], &mut String) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
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

fn write_pair(pair: &[u8], depth: usize, out: &mut String) -> Result<(), Unreadable> {
    let (mut key, mut value) = ("", &[][..]);
    for field in Fields::of(pair) {
        match field? {
            (1, field) => key = utf8(field)?,
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
