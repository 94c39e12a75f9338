//! The statements of the SQLite database, and its rows as documents and audit rows.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use tidegate_algorithms::time::Wall;

use crate::document::{Accepted, Action, Altered, AuditRow, Author, Document, Kind, Revision};

pub(crate) fn write_document(connection: &Connection, accepted: &Accepted) -> rusqlite::Result<()> {
    let Accepted { change, revision, .. } = accepted;
    match &change.body {
        Some(body) => connection
            .prepare(
                "INSERT INTO document (kind, name, body, revision) VALUES (?, ?, ?, ?)
                 ON CONFLICT DO UPDATE SET body = excluded.body, revision = excluded.revision",
            )?
            .execute(params![change.kind.as_str(), change.name, body, signed(revision.0)])?,
        None => connection
            .prepare("DELETE FROM document WHERE kind = ? AND name = ?")?
            .execute(params![change.kind.as_str(), change.name])?,
    };
    Ok(())
}

pub(crate) fn write_audit(connection: &Connection, accepted: &Accepted) -> rusqlite::Result<()> {
    let Accepted { change, author, revision, before } = accepted;
    let action = if change.body.is_some() { Action::Put } else { Action::Delete };
    connection
        .prepare(
            "INSERT INTO audit (revision, at_nanos, actor, action, kind, name, before, after, asked_from)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            signed(revision.0),
            signed(author.at.0),
            author.actor,
            action.as_str(),
            change.kind.as_str(),
            change.name,
            before.as_ref().map(|document| &document.body),
            change.body,
            author.from,
        ])?;
    Ok(())
}

/// The documents that are not what the audit rows of their revisions say.
pub(crate) fn altered(connection: &Connection) -> rusqlite::Result<Vec<Altered>> {
    connection
        .prepare(
            "SELECT document.kind, document.name, document.revision,
                    CASE WHEN (audit.kind, audit.name) = (document.kind, document.name)
                         THEN audit.after END
             FROM document JOIN audit ON audit.revision = document.revision
             WHERE audit.after IS NOT document.body
                OR (audit.kind, audit.name) <> (document.kind, document.name)",
        )?
        .query_map([], |row| {
            Ok(Altered {
                kind: kind(row, 0)?,
                name: row.get(1)?,
                revision: revision(row.get(2)?),
                recorded: row.get(3)?,
            })
        })?
        .collect()
}

/// What documents of this kind were before their first change after this revision, of one more than may go back at most.
pub(crate) fn first_before(
    connection: &Connection,
    after: Revision,
    kind: Kind,
) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    connection
        .prepare(
            "SELECT name, before FROM audit WHERE revision IN
                 (SELECT min(revision) FROM audit WHERE revision > ? AND kind = ? GROUP BY name)
             ORDER BY revision LIMIT ?",
        )?
        .query_map(params![signed(after.0), kind.as_str(), signed(crate::MAX_CHANGES as u64 + 1)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect()
}

/// Oldest and newest revision of the audit log.
pub(crate) fn revisions(connection: &Connection) -> rusqlite::Result<Option<(Revision, Revision)>> {
    connection.query_row("SELECT min(revision), max(revision) FROM audit", [], |row| {
        let (oldest, newest): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(oldest.zip(newest).map(|(oldest, newest)| (revision(oldest), revision(newest))))
    })
}

pub(crate) fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        kind: kind(row, 0)?,
        name: row.get(1)?,
        body: row.get(2)?,
        revision: revision(row.get(3)?),
    })
}

pub(crate) fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let action = match row.get_ref(3)?.as_str()? {
        "put" => Action::Put,
        "delete" => Action::Delete,
        other => return Err(unknown(3, other)),
    };
    let row = AuditRow {
        revision: revision(row.get(0)?),
        author: Author { actor: row.get(2)?, at: Wall(revision(row.get(1)?).0), from: row.get(8)? },
        action,
        kind: kind(row, 4)?,
        name: row.get(5)?,
        before: row.get(6)?,
        after: row.get(7)?,
    };
    Ok(row.unpacked())
}

fn kind(row: &Row<'_>, column: usize) -> rusqlite::Result<Kind> {
    let word = row.get_ref(column)?.as_str()?;
    Kind::of(word).ok_or_else(|| unknown(column, word))
}

fn unknown(column: usize, word: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("unknown word {word:?}").into())
}

/// SQLite's integers are signed: what does not fit is clamped (a time after 2262, no revision).
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn revision(value: i64) -> Revision {
    Revision(u64::try_from(value).unwrap_or(0))
}
