//! Sums in PostgreSQL. They have a schema of their own: nodes of an earlier version do not mind it.

use std::collections::HashMap;

use tidegate_postgres::types::ToSql;
use tidegate_postgres::{IsolationLevel, Row, Schema, Session, Transaction, migrate};

use super::{Added, Batch, Period, Span, Sums, WRITER_KEPT, classes, forget, merged, written};
use crate::database_error::unavailable;
use crate::error::Error;
use crate::statements::{revision, signed};

/// The schema's name.
const NAME: &str = "tidegate_counts";
pub(super) const VERSION: i32 = 1;
pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidegate_counts.counted (
        span int NOT NULL,
        begin bigint NOT NULL,
        labels text NOT NULL,
        requests bigint NOT NULL,
        bytes bigint NOT NULL,
        micros bigint NOT NULL,
        classes text NOT NULL,
        PRIMARY KEY (span, begin, labels)
    );
    CREATE TABLE IF NOT EXISTS tidegate_counts.writer (
        writer bigint PRIMARY KEY,
        number bigint NOT NULL,
        at bigint NOT NULL
    );
";

/// The advisory lock under which sums change: one node at a time reads them and writes them back.
const LOCK: i64 = 0x7469_6465_636f_756e;

/// Rows that are fetched at once.
const PAGE: i32 = 2_000;

/// Adds a batch in one transaction.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn store(client: &mut Session, batch: &Batch, now: u64) -> Result<Added, Error> {
    prepare(client).await?;
    let transaction = client.transaction().await.map_err(unavailable)?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(unavailable)?;
    let mark = "INSERT INTO tidegate_counts.writer AS known (writer, number, at) VALUES ($1, $2, $3) \
                ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at \
                WHERE known.number < excluded.number";
    let (writer, number) = (signed(batch.writer), signed(batch.number));
    if transaction.execute(mark, &[&writer, &number, &signed(now)]).await.map_err(unavailable)? == 0 {
        transaction.rollback().await.map_err(unavailable)?;
        return Ok(Added::default());
    }
    let mut added = Added::default();
    for span in Span::ALL {
        let of_span = add(&transaction, span, batch).await?;
        if span == Span::Minute {
            added = of_span;
        }
        // A node whose clock is ahead, however long, takes nothing that the others still count, nor does the database's.
        let forget = forget(
            "tidegate_counts.counted",
            "least($2, extract(epoch FROM now())::bigint)",
            "greatest($2, extract(epoch FROM now())::bigint)",
        );
        let parameters: [&(dyn ToSql + Sync); 3] = [&span.number(), &signed(now), &span.kept_rows()];
        transaction.execute(&forget, &parameters).await.map_err(unavailable)?;
    }
    let (oldest, lasting) = (signed(now.saturating_sub(WRITER_KEPT)), signed(WRITER_KEPT));
    let forget =
        "DELETE FROM tidegate_counts.writer WHERE at < least($1, extract(epoch FROM now())::bigint - $2)";
    transaction.execute(forget, &[&oldest, &lasting]).await.map_err(unavailable)?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(added)
}

async fn add(transaction: &Transaction<'_>, span: Span, batch: &Batch) -> Result<Added, Error> {
    let (number, begin) = (span.number(), signed(span.begin(batch.minute)));
    let query = "SELECT labels, requests, bytes, micros, classes FROM tidegate_counts.counted \
                 WHERE span = $1 AND begin = $2";
    let rows = transaction.query(query, &[&number, &begin]).await.map_err(unavailable)?;
    let there = |row: &Row| Ok((row.try_get(0).map_err(unavailable)?, sums(row, 1)?));
    let there: HashMap<String, Sums> = rows.iter().map(there).collect::<Result<_, Error>>()?;
    let (changed, added) = merged(there, &batch.rows);
    let labels: Vec<&str> = changed.keys().map(String::as_str).collect();
    let column = |of: fn(&Sums) -> u64| changed.values().map(|sums| signed(of(sums))).collect::<Vec<i64>>();
    let (requests, bytes, micros) =
        (column(|sums| sums.requests), column(|sums| sums.bytes), column(|sums| sums.micros));
    let classes: Vec<String> = changed.values().map(|sums| written(&sums.classes)).collect();
    let put = "INSERT INTO tidegate_counts.counted (span, begin, labels, requests, bytes, micros, classes) \
               SELECT $1, $2, * FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[]) \
               ON CONFLICT (span, begin, labels) DO UPDATE SET requests = excluded.requests, \
               bytes = excluded.bytes, micros = excluded.micros, classes = excluded.classes";
    transaction
        .execute(put, &[&number, &begin, &labels, &requests, &bytes, &micros, &classes])
        .await
        .map_err(unavailable)?;
    Ok(added)
}

/// All sums of a period, and the number of the writer's last batch.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn load<A: Default>(
    client: &mut Session,
    period: Period,
    writer: u64,
    add: impl Fn(&mut A, u64, &str, &Sums),
) -> Result<(A, u64), Error> {
    prepare(client).await?;
    // Both statements see one moment.
    let transaction = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let transaction = transaction.read_only(true).start().await.map_err(unavailable)?;
    let query = "SELECT number FROM tidegate_counts.writer WHERE writer = $1";
    let number = transaction.query_opt(query, &[&signed(writer)]).await.map_err(unavailable)?;
    let number = number.map(|row| row.try_get(0)).transpose().map_err(unavailable)?;
    let query = "SELECT begin, labels, requests, bytes, micros, classes FROM tidegate_counts.counted \
                 WHERE span = $1 AND begin > $2 AND begin < $3 ORDER BY begin, labels";
    let (after, before) = period.bounds();
    let portal = transaction.bind(query, &[&period.span.number(), &after, &before]).await;
    let portal = portal.map_err(unavailable)?;
    let mut all = A::default();
    loop {
        let rows = transaction.query_portal(&portal, PAGE).await.map_err(unavailable)?;
        for row in &rows {
            let begin = revision(row.try_get(0).map_err(unavailable)?).0;
            add(&mut all, begin, row.try_get(1).map_err(unavailable)?, &sums(row, 2)?);
        }
        if rows.len() < PAGE as usize {
            break;
        }
    }
    transaction.commit().await.map_err(unavailable)?;
    Ok((all, number.map_or(0, |number| revision(number).0)))
}

/// Four columns from `first`.
fn sums(row: &Row, first: usize) -> Result<Sums, Error> {
    let count = |column: usize| Ok::<_, Error>(revision(row.try_get(first + column).map_err(unavailable)?).0);
    let classes = classes(row.try_get(first + 3).map_err(unavailable)?);
    Ok(Sums { requests: count(0)?, bytes: count(1)?, micros: count(2)?, classes })
}

async fn prepare(client: &Session) -> Result<(), Error> {
    let schema = Schema { name: NAME, version: VERSION, sql: SCHEMA.into() };
    migrate(client, &schema).await.map_err(unavailable)
}
