//! Sums in a data directory's database.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{Added, Batch, Period, Span, Sums, WRITER_KEPT, classes, forget, merged, written};
use crate::statements::{revision, signed};

/// Their tables.
pub(crate) const TABLES: &str = "
    CREATE TABLE counted (
        span INTEGER NOT NULL,
        begin INTEGER NOT NULL,
        labels TEXT NOT NULL,
        requests INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        micros INTEGER NOT NULL,
        classes TEXT NOT NULL,
        PRIMARY KEY (span, begin, labels)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE counted_writer (
        writer INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        at INTEGER NOT NULL
    ) STRICT;
";

/// Adds a batch in one transaction.
pub(crate) fn write(connection: &mut Connection, batch: &Batch, now: u64) -> rusqlite::Result<Added> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_new = transaction.execute(
        "INSERT INTO counted_writer (writer, number, at) VALUES (?, ?, ?)
         ON CONFLICT DO UPDATE SET number = excluded.number, at = excluded.at WHERE number < excluded.number",
        params![signed(batch.writer), signed(batch.number), signed(now)],
    )?;
    if is_new == 0 {
        return Ok(Added::default());
    }
    let mut added = Added::default();
    for span in Span::ALL {
        let of_span = add(&transaction, span, batch)?;
        if span == Span::Minute {
            added = of_span;
        }
        transaction.prepare(&forget("counted", "$2", "$2"))?.execute(params![
            span.number(),
            signed(now),
            span.kept_rows()
        ])?;
    }
    let oldest = signed(now.saturating_sub(WRITER_KEPT));
    transaction.execute("DELETE FROM counted_writer WHERE at < ?", [oldest])?;
    transaction.commit()?;
    Ok(added)
}

fn add(transaction: &Transaction<'_>, span: Span, batch: &Batch) -> rusqlite::Result<Added> {
    let (number, begin) = (span.number(), signed(span.begin(batch.minute)));
    let there: HashMap<String, Sums> = transaction
        .prepare("SELECT labels, requests, bytes, micros, classes FROM counted WHERE span = ? AND begin = ?")?
        .query_map(params![number, begin], |row| Ok((row.get(0)?, sums(row, 1)?)))?
        .collect::<Result<_, _>>()?;
    let (changed, added) = merged(there, &batch.rows);
    let mut put = transaction.prepare(
        "INSERT INTO counted (span, begin, labels, requests, bytes, micros, classes) VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET requests = excluded.requests, bytes = excluded.bytes,
         micros = excluded.micros, classes = excluded.classes",
    )?;
    for (labels, sums) in &changed {
        let Sums { requests, bytes, micros, classes } = sums;
        let (requests, bytes, micros) = (signed(*requests), signed(*bytes), signed(*micros));
        put.execute(params![number, begin, labels, requests, bytes, micros, written(classes)])?;
    }
    Ok(added)
}

/// All sums of a period, and the number of the writer's last batch.
pub(crate) fn read<A: Default>(
    connection: &mut Connection,
    period: Period,
    writer: u64,
    add: impl Fn(&mut A, u64, &str, &Sums),
) -> rusqlite::Result<(A, u64)> {
    // A transaction sees one moment.
    let transaction = connection.transaction()?;
    let number: Option<i64> = transaction
        .query_row("SELECT number FROM counted_writer WHERE writer = ?", [signed(writer)], |row| row.get(0))
        .optional()?;
    let (after, before) = period.bounds();
    let mut all = A::default();
    let mut select = transaction.prepare(
        "SELECT begin, labels, requests, bytes, micros, classes FROM counted
         WHERE span = ? AND begin > ? AND begin < ? ORDER BY begin, labels",
    )?;
    let mut rows = select.query(params![period.span.number(), after, before])?;
    while let Some(row) = rows.next()? {
        let labels = row.get_ref(1)?.as_str()?;
        add(&mut all, revision(row.get(0)?).0, labels, &sums(row, 2)?);
    }
    Ok((all, number.map_or(0, |number| revision(number).0)))
}

/// Four columns from `first`.
fn sums(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Sums> {
    let count = |column: usize| Ok::<_, rusqlite::Error>(revision(row.get(first + column)?).0);
    let classes = classes(row.get_ref(first + 3)?.as_str()?);
    Ok(Sums { requests: count(0)?, bytes: count(1)?, micros: count(2)?, classes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ahead_of_the_clock_has_a_bound_and_the_last_of_it_goes() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLES).unwrap();
        let mut put = |number: u64, minute: u64, now: u64| {
            let rows = vec![super::super::Counted {
                labels: "a".to_owned(),
                otherwise: "others".to_owned(),
                sums: Sums { requests: 1, ..Sums::default() },
            }];
            write(&mut connection, &Batch { writer: 1, number, minute, rows }, now).unwrap();
        };
        let (now, far) = (1_000_000 * 60, 2_000_000 * 60);
        (1..=200).for_each(|number| put(number, far + 60 * number, far + 60 * number));
        put(201, now, now);
        put(202, far, now);
        let period = Period { span: Span::Minute, from: 0, to: u64::MAX };
        let add = |all: &mut Vec<u64>, begin, _: &str, _: &Sums| all.push(begin);
        let (minutes, _) = read(&mut connection, period, 1, add).unwrap();
        let ahead = [far].into_iter().chain((81..=199).map(|number| far + 60 * number));
        assert_eq!(minutes, [now].into_iter().chain(ahead).collect::<Vec<_>>());
    }
}
