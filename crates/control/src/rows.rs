//! Documents and audit rows as PostgreSQL has them.
//!
//! Names are `bytea`, since PostgreSQL's text cannot hold a NUL and a name may.

use std::collections::BTreeMap;

use tidegate_algorithms::time::Wall;
use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Client, Row, SqlState, Transaction};

use crate::document::{Accepted, Action, AuditRow, Author, Document, Kind, Revision};
use crate::error::Error;
use crate::link::{NAME, unavailable};
use crate::snapshot::Snapshot;
use crate::statements::{revision, signed};

/// Every document at one revision.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn load(client: &Client) -> Result<Snapshot, Error> {
    let query = "SELECT kind, name, body, revision, (SELECT max(revision) FROM tidegate_control.audit) \
                 FROM tidegate_control.document";
    // One statement sees one moment.
    let rows = client.query(query, &[]).await.map_err(unavailable)?;
    let newest = match rows.first() {
        Some(row) => row.try_get::<_, Option<i64>>(4).map_err(unavailable)?.map_or(Revision(0), revision),
        // Without a document there may be a history all the same.
        None => revisions(client).await?.map_or(Revision(0), |(_, newest)| newest),
    };
    let documents = rows.iter().map(document).collect::<Result<Vec<_>, _>>()?;
    match documents.iter().find(|document| document.revision > newest) {
        Some(ahead) => Err(corrupt(format!("{} is ahead of the audit log", ahead.revision))),
        None => Ok(Snapshot::restore(newest, documents)),
    }
}

/// The same, where the schema may be missing: then nothing is stored.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn look(client: &Client) -> Result<Snapshot, Error> {
    let query = "SELECT to_regclass('tidegate_control.document') IS NOT NULL";
    let row = client.query_one(query, &[]).await.map_err(unavailable)?;
    if row.try_get(0).map_err(unavailable)? { load(client).await } else { Ok(Snapshot::default()) }
}

/// What has become of `known`, if anything.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn later(client: &Client, known: &Snapshot) -> Result<Option<Snapshot>, Error> {
    let newest = revisions(client).await?.map_or(Revision(0), |(_, newest)| newest);
    if newest == known.revision() {
        return Ok(None);
    }
    if newest < known.revision() {
        // Another history: the database was restored, or lost writes in a failover.
        return load(client).await.map(Some);
    }
    let rows = audit(client, known.revision(), crate::MAX_AUDIT_PAGE).await?;
    let mut next = known.clone();
    for row in &rows {
        // A gap, where rows were pruned before this node saw them.
        if !next.replay(row) {
            return load(client).await.map(Some);
        }
    }
    if rows.len() == crate::MAX_AUDIT_PAGE { load(client).await.map(Some) } else { Ok(Some(next)) }
}

/// Oldest and newest revision of the audit log.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn revisions(client: &Client) -> Result<Option<(Revision, Revision)>, Error> {
    let query = "SELECT min(revision), max(revision) FROM tidegate_control.audit";
    let row = client.query_one(query, &[]).await.map_err(unavailable)?;
    let (oldest, newest): (Option<i64>, Option<i64>) =
        (row.try_get(0).map_err(unavailable)?, row.try_get(1).map_err(unavailable)?);
    Ok(oldest.zip(newest).map(|(oldest, newest)| (revision(oldest), revision(newest))))
}

/// At most `limit` audit rows after `after`, oldest first.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn audit(client: &Client, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
    let query = "SELECT revision, at_nanos, actor, action, kind, name, before, after \
                 FROM tidegate_control.audit WHERE revision > $1 ORDER BY revision LIMIT $2";
    let rows = client.query(query, &[&signed(after.0), &signed(limit as u64)]).await;
    rows.map_err(unavailable)?.iter().map(audit_row).collect()
}

/// Writes accepted changes in one transaction, if `base` is still the newest revision.
///
/// # Errors
/// [`Error::Moved`] or [`Error::Unavailable`]: then nothing was written. [`Error::Unknown`].
pub(crate) async fn commit(
    client: &mut Client,
    base: Revision,
    accepted: &[Accepted],
    audit_rows: u64,
) -> Result<(), Error> {
    let transaction = client.transaction().await.map_err(unavailable)?;
    let newest = "SELECT coalesce(max(revision), 0) FROM tidegate_control.audit";
    let newest =
        transaction.query_one(newest, &[]).await.and_then(|row| row.try_get(0)).map_err(unavailable)?;
    if revision(newest) != base {
        return Err(Error::Moved { newest: revision(newest) });
    }
    write_audit(&transaction, accepted).await?;
    write_documents(&transaction, accepted).await?;
    if let Some(last) = accepted.last() {
        let pruned = signed(last.revision.0.saturating_sub(audit_rows));
        let prune = "DELETE FROM tidegate_control.audit WHERE revision <= $1";
        transaction.execute(prune, &[&pruned]).await.map_err(unavailable)?;
    }
    transaction.batch_execute(&format!("NOTIFY {NAME}")).await.map_err(unavailable)?;
    transaction.commit().await.map_err(|error| Error::Unknown { reason: tidegate_postgres::text(&error) })
}

async fn write_audit(transaction: &Transaction<'_>, accepted: &[Accepted]) -> Result<(), Error> {
    let insert = "INSERT INTO tidegate_control.audit \
                  (revision, at_nanos, actor, action, kind, name, before, after) \
                  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], \
                  $6::bytea[], $7::text[], $8::text[])";
    let revisions: Vec<_> = accepted.iter().map(|one| signed(one.revision.0)).collect();
    let action = |one: &Accepted| if one.change.body.is_some() { Action::Put } else { Action::Delete };
    let actions: Vec<_> = accepted.iter().map(|one| action(one).as_str()).collect();
    let kinds: Vec<_> = accepted.iter().map(|one| one.change.kind.as_str()).collect();
    let names: Vec<_> = accepted.iter().map(|one| one.change.name.as_bytes()).collect();
    let before: Vec<_> =
        accepted.iter().map(|one| one.before.as_ref().map(|document| &*document.body)).collect();
    let after: Vec<_> = accepted.iter().map(|one| one.change.body.as_deref()).collect();
    let times: Vec<_> = accepted.iter().map(|one| signed(one.author.at.0)).collect();
    let actors: Vec<_> = accepted.iter().map(|one| one.author.actor.as_str()).collect();
    let columns: [&(dyn ToSql + Sync); 8] =
        [&revisions, &times, &actors, &actions, &kinds, &names, &before, &after];
    match transaction.execute(insert, &columns).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            Err(Error::Moved { newest: accepted.first().map_or(Revision(0), |one| one.revision) })
        }
        Err(error) => Err(unavailable(error)),
    }
}

/// Writes what each document is after the last change to it.
async fn write_documents(transaction: &Transaction<'_>, accepted: &[Accepted]) -> Result<(), Error> {
    let mut last: BTreeMap<(&str, &[u8]), &Accepted> = BTreeMap::new();
    for one in accepted {
        last.insert((one.change.kind.as_str(), one.change.name.as_bytes()), one);
    }
    let (mut kinds, mut names, mut bodies, mut revisions) = (vec![], vec![], vec![], vec![]);
    let (mut gone_kinds, mut gone_names) = (vec![], vec![]);
    for ((kind, name), one) in last {
        match &one.change.body {
            Some(body) => {
                kinds.push(kind);
                names.push(name);
                bodies.push(&**body);
                revisions.push(signed(one.revision.0));
            }
            None => {
                gone_kinds.push(kind);
                gone_names.push(name);
            }
        }
    }
    let put = "INSERT INTO tidegate_control.document (kind, name, body, revision) \
               SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[]) \
               ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body, revision = excluded.revision";
    transaction.execute(put, &[&kinds, &names, &bodies, &revisions]).await.map_err(unavailable)?;
    let delete = "DELETE FROM tidegate_control.document document \
                  USING unnest($1::text[], $2::bytea[]) AS gone (kind, name) \
                  WHERE document.kind = gone.kind AND document.name = gone.name";
    transaction.execute(delete, &[&gone_kinds, &gone_names]).await.map(drop).map_err(unavailable)
}

fn document(row: &Row) -> Result<Document, Error> {
    let body: String = row.try_get(2).map_err(unavailable)?;
    let revision = revision(row.try_get(3).map_err(unavailable)?);
    Ok(Document { kind: kind(row, 0)?, name: name(row, 1)?.into(), body: body.into(), revision })
}

fn audit_row(row: &Row) -> Result<AuditRow, Error> {
    let action = match word(row, 3)? {
        "put" => Action::Put,
        "delete" => Action::Delete,
        other => return Err(corrupt(format!("unknown word {other:?}"))),
    };
    Ok(AuditRow {
        revision: revision(row.try_get(0).map_err(unavailable)?),
        author: Author {
            actor: row.try_get(2).map_err(unavailable)?,
            at: Wall(revision(row.try_get(1).map_err(unavailable)?).0),
        },
        action,
        kind: kind(row, 4)?,
        name: name(row, 5)?,
        before: row.try_get(6).map_err(unavailable)?,
        after: row.try_get(7).map_err(unavailable)?,
    })
}

fn kind(row: &Row, column: usize) -> Result<Kind, Error> {
    let word = word(row, column)?;
    Kind::of(word).ok_or_else(|| corrupt(format!("unknown word {word:?}")))
}

fn word(row: &Row, column: usize) -> Result<&str, Error> {
    row.try_get(column).map_err(unavailable)
}

fn name(row: &Row, column: usize) -> Result<String, Error> {
    let bytes: Vec<u8> = row.try_get(column).map_err(unavailable)?;
    String::from_utf8(bytes).map_err(|_| corrupt("a name is not UTF-8".to_owned()))
}

fn corrupt(reason: String) -> Error {
    Error::Corrupt { path: NAME.into(), reason }
}
