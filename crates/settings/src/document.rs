//! The TOML file as a tree whose every node knows its line and column.
//!
//! The parser recovers from mistakes, so one pass reports all of them; it bounds nesting (80) and
//! the file's size is bounded here, so any bytes give a tree and a list of mistakes.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::mistake::{Found, MAX_MISTAKES, Mistake, Origin, Position};
use crate::value::TomlType;

/// Largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// A parsed file; the default is one that is not there.
#[derive(Debug, Default)]
pub struct Document<'a> {
    pub(crate) root: DeTable<'a>,
    lines: LineStarts<'a>,
    /// What is wrong with the syntax.
    pub syntax: Found,
}

/// One value of the file, as text and with its type.
pub(crate) struct Scalar<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) written: TomlType,
    pub(crate) position: Position,
}

impl<'a> Document<'a> {
    /// Parses `bytes`.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Self {
        let mut found = Found::default();
        let text = text(bytes).unwrap_or_else(|mistake| {
            found.push(mistake);
            ""
        });
        let lines = LineStarts::new(text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors.iter().take(MAX_MISTAKES) {
            let at = error.span().map_or(text.len(), |span| span.start);
            found.push(syntax(lines.position(at), error.message()));
        }
        found.skip(errors.len().saturating_sub(MAX_MISTAKES));
        Self { root: root.into_inner(), lines, syntax: found }
    }

    /// The value of a setting, if the file has it.
    pub(crate) fn scalar(&self, path: &str) -> Option<Scalar<'_>> {
        let value = match path.split_once('.') {
            None => self.root.get(path)?,
            Some((group, field)) => self.root.get(group)?.get_ref().as_table()?.get(field)?,
        };
        let written = TomlType::of(value.get_ref());
        let text = match value.get_ref() {
            DeValue::String(text) => Cow::Borrowed(&**text),
            DeValue::Integer(number) => Cow::Owned(decimal(number)),
            DeValue::Float(number) => Cow::Borrowed(number.as_str()),
            DeValue::Boolean(value) => Cow::Owned(value.to_string()),
            DeValue::Array(list) => Cow::Owned(joined(list)),
            _ => Cow::Borrowed(""),
        };
        Some(Scalar { text, written, position: self.lines.position(value.span().start) })
    }

    /// The entries of `[[name]]` as JSON.
    ///
    /// # Errors
    /// When the file has something else under this name.
    pub fn entries(&self, name: &str) -> Result<Entries, Mistake> {
        let mut entries = Entries::default();
        let Some(value) = self.root.get(name) else { return Ok(entries) };
        let DeValue::Array(list) = value.get_ref() else {
            return Err(Mistake {
                origin: self.at(&value.span()),
                path: name.to_owned(),
                problem: TomlType::of(value.get_ref()).described().to_owned(),
                accepted: format!("a list of tables, each under [[{name}]]"),
            });
        };
        for (index, entry) in list.iter().enumerate() {
            let pointer = format!("/{name}/{index}");
            let value = json(entry.get_ref(), &pointer, &mut entries.inexpressible);
            entries.values.push(value);
        }
        Ok(entries)
    }

    /// The table `name` as JSON, empty if it is not there.
    #[must_use]
    pub fn table(&self, name: &str) -> Json {
        let mut ignored = Vec::new();
        // What JSON cannot say stands there as text, which is no source of an attribute either.
        let value = self.root.get(name).map(|value| json(value.get_ref(), &format!("/{name}"), &mut ignored));
        value.unwrap_or_else(|| Json::Object(serde_json::Map::new()))
    }

    /// Where the value at a JSON pointer stands, or the nearest thing around it that exists.
    #[must_use]
    pub fn locate(&self, pointer: &str) -> Origin {
        let mut tokens = pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~"));
        let Some(mut found) = tokens.next().and_then(|token| self.root.get(&*token)) else {
            return Origin::File(self.lines.position(0));
        };
        for token in tokens {
            let index = token.parse::<usize>().ok();
            let next = match found.get_ref() {
                DeValue::Table(table) => table.get(&*token),
                DeValue::Array(array) => index.and_then(|index| array.get(index)),
                _ => None,
            };
            let Some(value) = next else { break };
            found = value;
        }
        self.at(&found.span())
    }

    pub(crate) fn at(&self, span: &Range<usize>) -> Origin {
        Origin::File(self.lines.position(span.start))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Mistake> {
    let start = Position { line: 1, column: 1 };
    if bytes.len() > MAX_FILE_BYTES {
        let problem = format!("the file has {} bytes", bytes.len());
        let accepted = format!("at most {MAX_FILE_BYTES} bytes");
        return Err(Mistake { origin: Origin::File(start), path: String::new(), problem, accepted });
    }
    let text = str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).and_then(|valid| str::from_utf8(valid).ok());
        let valid = valid.unwrap_or_default();
        syntax(LineStarts::new(valid).position(valid.len()), "invalid UTF-8")
    })?;
    if text.trim().is_empty() {
        let problem = "the file is blank".to_owned();
        let accepted = "at least one setting or a comment; for defaults, start without a file".to_owned();
        return Err(Mistake { origin: Origin::File(start), path: String::new(), problem, accepted });
    }
    Ok(text)
}

fn syntax(position: Position, message: &str) -> Mistake {
    Mistake {
        origin: Origin::File(position),
        path: String::new(),
        problem: message.to_owned(),
        accepted: "TOML 1.1, with texts in quotes".to_owned(),
    }
}

/// A list as the environment would have it. What is no string becomes a text that no list may hold.
fn joined(list: &[Spanned<DeValue<'_>>]) -> String {
    let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().unwrap_or(" ").to_owned();
    list.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The number in decimal, or as it was written if it does not fit 128 bits.
fn decimal(number: &DeInteger<'_>) -> String {
    i128::from_str_radix(number.as_str(), number.radix())
        .map_or_else(|_| number.to_string(), |n| n.to_string())
}

/// The entries of one list, as the JSON that the admin API would have received.
#[derive(Debug, Default)]
pub struct Entries {
    /// Each entry.
    pub values: Vec<Json>,
    /// Pointers to what JSON cannot say (dates, NaN, numbers beyond 64 bits), and its text, which
    /// stands in `values` for it. The first [`MAX_MISTAKES`]: one is enough to refuse the file.
    pub inexpressible: Vec<(String, String)>,
}

fn json(value: &DeValue<'_>, pointer: &str, inexpressible: &mut Vec<(String, String)>) -> Json {
    let said = match value {
        DeValue::String(text) => Some(Json::from(&**text)),
        DeValue::Integer(number) => {
            let digits = decimal(number);
            let unsigned = digits.parse::<u64>().map(Json::from);
            unsigned.or_else(|_| digits.parse::<i64>().map(Json::from)).ok()
        }
        DeValue::Float(number) => {
            number.as_str().parse().ok().and_then(serde_json::Number::from_f64).map(Json::Number)
        }
        DeValue::Boolean(value) => Some(Json::from(*value)),
        DeValue::Datetime(_) => None,
        DeValue::Array(values) => {
            let entry = |(index, value): (usize, &Spanned<DeValue<'_>>)| {
                json(value.get_ref(), &format!("{pointer}/{index}"), inexpressible)
            };
            Some(values.iter().enumerate().map(entry).collect())
        }
        DeValue::Table(table) => {
            let fields = table.iter().map(|(key, value)| {
                let key = key.get_ref();
                let token = key.replace('~', "~0").replace('/', "~1");
                (key.to_string(), json(value.get_ref(), &format!("{pointer}/{token}"), inexpressible))
            });
            Some(fields.collect())
        }
    };
    said.unwrap_or_else(|| {
        let text = match value {
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Datetime(date) => date.to_string(),
            other => TomlType::of(other).described().to_owned(),
        };
        if inexpressible.len() < MAX_MISTAKES {
            inexpressible.push((pointer.to_owned(), text.clone()));
        }
        Json::from(text)
    })
}

/// Turns byte offsets into lines and columns.
#[derive(Debug, Default)]
struct LineStarts<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    fn new(text: &'a str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: before.chars().count() + 1 }
    }
}
