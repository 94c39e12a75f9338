//! What several documents are read by: objects inside them, and bounds of their numbers.

use http::StatusCode;
use tidegate_algorithms::document::DocumentReader;

/// Most that a limit in these files may be: no one machine holds more.
pub(super) const MANY: u64 = 1_000_000;

/// A day, the longest time that may be stated here.
pub(super) const DAY: f64 = 86_400.0;

/// Reads an object inside the document, if it is there. Its mistakes join the document's.
pub(super) fn part<T>(
    reader: &mut DocumentReader<'_>,
    field: &str,
    keys: &[&str],
    pointer: &str,
    read: impl FnOnce(&mut DocumentReader<'_>) -> T,
) -> Option<T> {
    let value = reader.field(field)?;
    let pointer = format!("{pointer}/{field}");
    match DocumentReader::new(value, &pointer, keys) {
        Ok(mut inner) => {
            let value = read(&mut inner);
            reader.mistakes.append(&mut inner.mistakes);
            Some(value)
        }
        Err(mistakes) => {
            reader.mistakes.extend(mistakes);
            None
        }
    }
}

pub(super) fn limit(number: Option<u64>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

pub(super) fn status_code(status: u64) -> StatusCode {
    // Invariant: the caller checked the range.
    u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or_default()
}
