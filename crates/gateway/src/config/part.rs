//! Reading by a table: an object of a document, whose known keys and ranges are those of the document's table (`reference.rs`).
//! Beside it, bounds that several tables have.

use std::ops::{Deref, DerefMut};

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_algorithms::document::{DocumentReader, Mistake};

use super::reference::{DocumentKey, Shape, members, names};

/// Most that a limit in these files may be: no one machine holds more.
pub(super) const MANY: u64 = 1_000_000;

/// A day, the longest time that may be stated here.
pub(super) const DAY: f64 = 86_400.0;

/// Reads a document, or a table in it. A test reads each key at the ends of its range, so that no key is read as another shape than
/// its row has: that would give `None`.
#[derive(Debug)]
pub(super) struct KeyReader<'v> {
    reader: DocumentReader<'v>,
    keys: &'static [DocumentKey],
    table: &'static str,
}

impl<'v> Deref for KeyReader<'v> {
    type Target = DocumentReader<'v>;

    fn deref(&self) -> &Self::Target {
        &self.reader
    }
}

impl DerefMut for KeyReader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

impl<'v> KeyReader<'v> {
    /// A reader of a document that has noted the keys which are not in its table.
    ///
    /// # Errors
    /// When it is no object.
    pub(super) fn new(
        value: &'v Value,
        pointer: &str,
        keys: &'static [DocumentKey],
    ) -> Result<Self, Vec<Mistake>> {
        Self::of_table(value, pointer, keys, "")
    }

    fn of_table(
        value: &'v Value,
        pointer: &str,
        keys: &'static [DocumentKey],
        table: &'static str,
    ) -> Result<Self, Vec<Mistake>> {
        Ok(Self { reader: DocumentReader::new(value, pointer, &names(keys, table))?, keys, table })
    }

    /// Reads a table of the document, if it is there. Its mistakes join the document's.
    pub(super) fn part<T>(&mut self, field: &'static str, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let value = self.field(field)?;
        self.entry(field, field, value, read)
    }

    /// Reads `value` as the table `table`, or as an entry of a list of such tables: it stands at `place`.
    pub(super) fn entry<T>(
        &mut self,
        table: &'static str,
        place: &str,
        value: &'v Value,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let pointer = format!("{}/{place}", self.pointer());
        let inner = match self.shape(table) {
            Some(Shape::Shared(keys)) => Self::new(value, &pointer, keys),
            _ => Self::of_table(value, &pointer, self.keys, table),
        };
        match inner {
            Ok(mut inner) => {
                let value = read(&mut inner);
                self.mistakes.append(&mut inner.mistakes);
                Some(value)
            }
            Err(mistakes) => {
                self.mistakes.extend(mistakes);
                None
            }
        }
    }

    /// A whole number. As for all below, `None` if it is absent or wrong; wrong ones are reported.
    pub(super) fn number(&mut self, field: &str) -> Option<u64> {
        let Shape::Number(least, most) = self.stated(field)? else { return None };
        self.reader.number(field, least, most)
    }

    /// The same, for rows whose numbers fit into 32 bits.
    pub(super) fn limit(&mut self, field: &str) -> Option<u32> {
        self.number(field).and_then(|number| u32::try_from(number).ok())
    }

    /// A time in seconds, as nanoseconds.
    pub(super) fn seconds(&mut self, field: &str) -> Option<u64> {
        let Shape::Seconds(least, most) = self.stated(field)? else { return None };
        self.reader.seconds(field, least, most)
    }

    /// A text.
    pub(super) fn text(&mut self, field: &str) -> Option<&'v str> {
        let Shape::Text(least, most) = self.stated(field)? else { return None };
        self.reader.text(field, least, most)
    }

    /// One of the words of the row.
    pub(super) fn choice<T: DeserializeOwned>(&mut self, field: &str) -> Option<T> {
        let Shape::Word(words) = self.stated(field)? else { return None };
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        self.reader.choice(field, &quoted.join(", "))
    }

    /// The texts of a list. Wrong entries are reported and left out.
    pub(super) fn texts(&mut self, field: &str) -> Vec<&'v str> {
        match self.stated(field) {
            Some(Shape::Texts(entries, most) | Shape::OneOrMore(entries, most)) => {
                self.reader.texts(field, entries, 1, most)
            }
            _ => Vec::new(),
        }
    }

    /// The entries of a list. Empty if it is absent or wrong.
    pub(super) fn list(&mut self, field: &str) -> &'v [Value] {
        match self.stated(field) {
            Some(Shape::Servers(most) | Shape::Shares(most)) => self.reader.list(field, most),
            _ => &[],
        }
    }

    /// How many names and texts a table may have.
    pub(super) fn most_pairs(&self, field: &str) -> usize {
        match self.shape(field) {
            Some(Shape::Pairs(most)) => most,
            _ => 0,
        }
    }

    /// What a field may be, if it is there.
    fn stated(&self, field: &str) -> Option<Shape> {
        self.field(field)?;
        self.shape(field)
    }

    fn shape(&self, field: &str) -> Option<Shape> {
        members(self.keys, self.table).find(|(name, _)| *name == field).map(|(_, key)| key.shape)
    }
}

pub(super) fn status_code(status: u64) -> StatusCode {
    // Invariant: the caller checked the range.
    u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or_default()
}
