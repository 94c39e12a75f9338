//! Data rows from CSV (RFC 4180, first line is the header) or JSON Lines.

use std::sync::Arc;

use thiserror::Error;

use crate::load::Rows;

/// Largest data file, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Most rows.
pub const MAX_ROWS: usize = 1_000_000;
/// Most cells in all rows.
pub const MAX_CELLS: usize = 8_000_000;

/// Why a data file is refused.
#[derive(Debug, Error)]
pub enum DataError {
    /// Too large.
    #[error("more than {MAX_BYTES} bytes, {MAX_ROWS} rows or {MAX_CELLS} cells")]
    TooLarge,
    /// No rows.
    #[error("no rows")]
    Empty,
    /// A row has another number of cells than the header.
    #[error("line {line}: {found} cells where the header has {expected}")]
    Cells {
        /// Row number, the header being 1.
        line: usize,
        /// Cells in it.
        found: usize,
        /// Cells in the header.
        expected: usize,
    },
    /// A quote that is never closed.
    #[error("a quoted cell is never closed")]
    Quote,
    /// A line that is no JSON object, or has other members than the first.
    #[error("line {0} is not a JSON object with the members of the first line")]
    Json(usize),
}

/// Reads rows, and no more than the bounds allow; JSON Lines when the first byte that is not blank opens an object.
///
/// # Errors
/// When the text is neither, or exceeds a bound.
pub fn parse(text: &str) -> Result<Arc<Rows>, DataError> {
    if text.len() > MAX_BYTES {
        return Err(DataError::TooLarge);
    }
    let rows = if text.trim_start().starts_with('{') { json_lines(text) } else { csv(text) }?;
    if rows.cells.is_empty() { Err(DataError::Empty) } else { Ok(Arc::new(rows)) }
}

/// Rows as they are read; a row or a cell beyond the bounds ends the reading.
#[derive(Default)]
struct RowTable {
    columns: Vec<String>,
    cells: Vec<Vec<String>>,
    count: usize,
}

impl RowTable {
    fn push(&mut self, row: Vec<String>) -> Result<(), DataError> {
        self.count += row.len();
        if self.cells.len() >= MAX_ROWS || self.count > MAX_CELLS {
            return Err(DataError::TooLarge);
        }
        self.cells.push(row);
        Ok(())
    }
}

fn csv(text: &str) -> Result<Rows, DataError> {
    let mut table = RowTable::default();
    let (mut record, mut cell, mut line) = (Vec::new(), String::new(), 0);
    let (mut quoted, mut chars) = (false, text.chars().peekable());
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if cell.is_empty() => quoted = true,
            ',' if !quoted && record.len() >= MAX_CELLS => return Err(DataError::TooLarge),
            ',' if !quoted => record.push(std::mem::take(&mut cell)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut cell));
                take_record(&mut table, std::mem::take(&mut record), &mut line)?;
            }
            other => cell.push(other),
        }
    }
    if quoted {
        return Err(DataError::Quote);
    }
    if !cell.is_empty() || !record.is_empty() {
        record.push(cell);
        take_record(&mut table, record, &mut line)?;
    }
    Ok(Rows { columns: table.columns, cells: table.cells })
}

/// The header, or a row with as many cells; an empty line is none.
fn take_record(table: &mut RowTable, record: Vec<String>, line: &mut usize) -> Result<(), DataError> {
    if record.len() <= 1 && record.first().is_none_or(String::is_empty) {
        return Ok(());
    }
    *line += 1;
    if table.columns.is_empty() {
        table.columns = record;
        return Ok(());
    }
    if record.len() != table.columns.len() {
        return Err(DataError::Cells { line: *line, found: record.len(), expected: table.columns.len() });
    }
    table.push(record)
}

fn json_lines(text: &str) -> Result<Rows, DataError> {
    let mut rows = RowTable::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = || DataError::Json(index + 1);
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).map_err(|_| bad())?;
        if rows.columns.is_empty() {
            rows.columns = object.keys().cloned().collect();
        }
        if object.len() != rows.columns.len() {
            return Err(bad());
        }
        let cell = |name: &String| {
            object.get(name).map(|value| match value {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            })
        };
        let row = rows.columns.iter().map(cell).collect::<Option<_>>().ok_or_else(bad)?;
        rows.push(row)?;
    }
    Ok(Rows { columns: rows.columns, cells: rows.cells })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn csv_with_quotes() {
        let rows = parse("id,name\r\n1,\"a, \"\"b\"\"\nc\"\n2,\n").unwrap();
        assert_eq!(rows.columns, ["id", "name"]);
        assert_eq!(rows.cells, [["1", "a, \"b\"\nc"], ["2", ""]]);
    }

    #[test]
    fn json_lines_give_the_same_table() {
        let rows = parse("{\"id\":1,\"name\":\"x\"}\n\n{\"name\":[1],\"id\":null}\n").unwrap();
        assert_eq!(rows.cells, [["1", "x"], ["null", "[1]"]]);
    }

    #[test]
    fn bad_data_is_refused() {
        assert!(matches!(parse(""), Err(DataError::Empty)));
        assert!(matches!(parse("a,b\n1\n"), Err(DataError::Cells { line: 2, found: 1, expected: 2 })));
        assert!(matches!(parse("a\n\"x"), Err(DataError::Quote)));
        assert!(matches!(parse("{\"a\":1}\n{\"b\":1}"), Err(DataError::Json(2))));
    }

    /// Short lines are the worst: each is a row of its own in memory.
    #[test]
    fn reading_ends_at_the_bounds() {
        let rows = format!("a\n{}", "1\n".repeat(MAX_ROWS));
        assert_eq!(parse(&rows).unwrap().cells.len(), MAX_ROWS);
        assert!(matches!(parse(&(rows + "1\n")), Err(DataError::TooLarge)));
        assert!(matches!(parse(&",".repeat(MAX_CELLS + 1)), Err(DataError::TooLarge)));
        assert!(matches!(parse(&"x".repeat(MAX_BYTES + 1)), Err(DataError::TooLarge)));
        let wide = format!("{}a\n", "a,".repeat(9_999));
        assert!(matches!(parse(&wide.repeat(MAX_CELLS / 10_000 + 2)), Err(DataError::TooLarge)));
    }

    proptest! {
        #[test]
        fn any_text_ends_without_a_panic(text in ".{0,60}") {
            if let Ok(rows) = parse(&text) {
                prop_assert!(rows.cells.iter().all(|row| row.len() == rows.columns.len()));
            }
        }
    }
}
