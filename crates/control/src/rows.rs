//! Documents and audit rows as PostgreSQL has them.
//!
//! Names are `bytea`, since PostgreSQL's text cannot hold a NUL and a name may.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_algorithms::time::Wall;
use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Client, Row, SqlState};

use crate::asked_from;
use crate::database_error::{NAME, unavailable};
use crate::document::{Accepted, Action, AuditRow, Author, Document, Kind, Revision};
use crate::error::Error;
use crate::snapshot::{History, Snapshot};
use crate::statements::{revision, signed};
use crate::turn;

/// The digest of an audit row, by which histories are told apart.
const DIGEST: &str = "hashtextextended(audit::text, 0)";

/// Every document at one revision.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn load(client: &Client) -> Result<Snapshot, Error> {
    // One statement sees one moment. There may be a history without a document.
    let query = format!(
        "SELECT document.kind, document.name, body, document.revision, audit.revision, {DIGEST} \
         FROM (SELECT * FROM tidegate_control.audit ORDER BY revision DESC LIMIT 1) AS audit \
         FULL JOIN tidegate_control.document AS document ON true"
    );
    let rows = client.query(&query, &[]).await.map_err(unavailable)?;
    let mut newest = (Revision(0), History::default());
    let mut documents = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(number) = row.try_get::<_, Option<i64>>(4).map_err(unavailable)? {
            newest = (revision(number), History(row.try_get(5).map_err(unavailable)?));
        }
        if row.try_get::<_, Option<&str>>(0).map_err(unavailable)?.is_some() {
            documents.push(document(row)?);
        }
    }
    let (newest, history) = newest;
    match documents.iter().find(|document| document.revision > newest) {
        Some(ahead) => Err(corrupt(format!("{} is ahead of the audit log", ahead.revision))),
        None => Ok(Snapshot::restore(newest, documents).in_history(history)),
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
    let query = format!(
        "SELECT revision, {DIGEST} FROM tidegate_control.audit AS audit WHERE revision = $1 \
         OR revision = (SELECT max(revision) FROM tidegate_control.audit) ORDER BY revision"
    );
    let rows = client.query(&query, &[&signed(known.revision().0)]).await.map_err(unavailable)?;
    let found = rows.iter().map(position).collect::<Result<Vec<_>, _>>()?;
    let newest = found.last().map_or(Revision(0), |(newest, _)| *newest);
    let there = found.iter().find(|(revision, _)| *revision == known.revision());
    let is_other = there.is_some_and(|(_, history)| *history != known.history());
    if newest < known.revision() || is_other {
        tracing::warn!(
            known = known.revision().0,
            found = newest.0,
            "the configuration's database has another history than this node knew, as after a failover that \
             lost changes: everything is loaded anew"
        );
        return Ok(Some(load(client).await?.replacing(known)));
    }
    if newest == known.revision() {
        return Ok(None);
    }
    let query = audit_query();
    let after = [&signed(known.revision().0) as &(dyn ToSql + Sync), &signed(crate::MAX_AUDIT_PAGE as u64)];
    let rows = client.query(&query, &after).await.map_err(unavailable)?;
    let mut next = known.clone();
    for row in &rows {
        // A gap, where rows were pruned before this node saw them.
        if !next.replay(&audit_row(row)?) {
            return load(client).await.map(Some);
        }
        next = next.in_history(History(row.try_get(8).map_err(unavailable)?));
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
    let rows = client.query(&audit_query(), &[&signed(after.0), &signed(limit as u64)]).await;
    rows.map_err(unavailable)?.iter().map(audit_row).collect()
}

/// What documents of this kind were before their first change after this revision, of one more than may go back at most.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn first_before(
    client: &Client,
    after: Revision,
    of_kind: Kind,
) -> Result<Vec<(String, Option<String>)>, Error> {
    let query = "SELECT name, before FROM tidegate_control.audit WHERE revision IN \
                 (SELECT min(revision) FROM tidegate_control.audit WHERE revision > $1 AND kind = $2 GROUP BY name) \
                 ORDER BY revision LIMIT $3";
    let most = signed(crate::MAX_CHANGES as u64 + 1);
    let rows =
        client.query(query, &[&signed(after.0), &of_kind.as_str(), &most]).await.map_err(unavailable)?;
    rows.iter().map(|row| Ok((name(row, 0)?, row.try_get(1).map_err(unavailable)?))).collect()
}

fn audit_query() -> String {
    format!(
        "SELECT revision, at_nanos, actor, action, kind, name, before, after, {DIGEST}, asked_from \
         FROM tidegate_control.audit AS audit LEFT JOIN tidegate_asked_from.change USING (revision) \
         WHERE revision > $1 ORDER BY revision LIMIT $2"
    )
}

/// A revision and its history.
fn position(row: &Row) -> Result<(Revision, History), Error> {
    let (number, digest) = (row.try_get(0).map_err(unavailable)?, row.try_get(1).map_err(unavailable)?);
    Ok((revision(number), History(digest)))
}

/// Writes accepted changes and ends the transaction that has begun, if `base` is still the newest revision, of the
/// same history. The history of the last one.
///
/// # Errors
/// [`Error::Moved`] or [`Error::Unavailable`]: then nothing was written. [`Error::Unknown`].
pub(crate) async fn commit(
    client: &Client,
    base: &Snapshot,
    accepted: &[Accepted],
    audit_rows: u64,
) -> Result<History, Error> {
    match write(client, base, accepted, audit_rows).await {
        Ok(history) => match client.batch_execute("COMMIT").await {
            Ok(()) => Ok(history),
            Err(error) => Err(Error::Unknown { reason: tidegate_postgres::text(&error) }),
        },
        Err(error) => {
            // What failed is known; a connection that is gone has rolled back by itself.
            turn::roll_back(client).await.unwrap_or_default();
            Err(error)
        }
    }
}

/// The same, without ending the transaction.
async fn write(
    client: &Client,
    base: &Snapshot,
    accepted: &[Accepted],
    audit_rows: u64,
) -> Result<History, Error> {
    let newest = format!(
        "SELECT revision, {DIGEST} FROM tidegate_control.audit AS audit ORDER BY revision DESC LIMIT 1"
    );
    let newest = client.query_opt(&newest, &[]).await.map_err(unavailable)?;
    let newest = newest.as_ref().map(position).transpose()?.unwrap_or_default();
    if newest != (base.revision(), base.history()) {
        return Err(Error::Moved { newest: newest.0 });
    }
    let history = write_audit(client, accepted).await?;
    write_documents(client, accepted).await?;
    if let Some(last) = accepted.last() {
        let pruned = signed(last.revision.0.saturating_sub(audit_rows));
        let prune = "DELETE FROM tidegate_control.audit WHERE revision <= $1";
        client.execute(prune, &[&pruned]).await.map_err(unavailable)?;
        asked_from::write(client, accepted, pruned).await?;
    }
    client.batch_execute(&format!("NOTIFY {NAME}")).await.map_err(unavailable)?;
    Ok(history)
}

/// Writes their audit rows; the history of the last one.
async fn write_audit(client: &Client, accepted: &[Accepted]) -> Result<History, Error> {
    let insert = format!(
        "INSERT INTO tidegate_control.audit AS audit \
         (revision, at_nanos, actor, action, kind, name, before, after) \
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], \
         $6::bytea[], $7::text[], $8::text[]) RETURNING revision, {DIGEST}"
    );
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
    match client.query(&insert, &columns).await {
        Ok(rows) => {
            let written = rows.iter().map(position).collect::<Result<Vec<_>, _>>()?;
            Ok(written.into_iter().max_by_key(|(revision, _)| *revision).unwrap_or_default().1)
        }
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            Err(Error::Moved { newest: accepted.first().map_or(Revision(0), |one| one.revision) })
        }
        Err(error) => Err(unavailable(error)),
    }
}

/// Writes what each document is after the last change to it.
async fn write_documents(client: &Client, accepted: &[Accepted]) -> Result<(), Error> {
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
    client.execute(put, &[&kinds, &names, &bodies, &revisions]).await.map_err(unavailable)?;
    let delete = "DELETE FROM tidegate_control.document document \
                  USING unnest($1::text[], $2::bytea[]) AS gone (kind, name) \
                  WHERE document.kind = gone.kind AND document.name = gone.name";
    client.execute(delete, &[&gone_kinds, &gone_names]).await.map(drop).map_err(unavailable)
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
    let row = AuditRow {
        revision: revision(row.try_get(0).map_err(unavailable)?),
        author: Author {
            actor: row.try_get(2).map_err(unavailable)?,
            at: Wall(revision(row.try_get(1).map_err(unavailable)?).0),
            from: row.try_get::<_, Option<&str>>(9).map_err(unavailable)?.map(Arc::from),
        },
        action,
        kind: kind(row, 4)?,
        name: name(row, 5)?,
        before: row.try_get(6).map_err(unavailable)?,
        after: row.try_get(7).map_err(unavailable)?,
    };
    Ok(row.unpacked())
}

fn kind(row: &Row, column: usize) -> Result<Kind, Error> {
    let word = word(row, column)?;
    Kind::of(word).ok_or_else(|| corrupt(format!("unknown word {word:?}")))
}

fn word(row: &Row, column: usize) -> Result<&str, Error> {
    row.try_get(column).map_err(unavailable)
}

pub(crate) fn name(row: &Row, column: usize) -> Result<String, Error> {
    let bytes: Vec<u8> = row.try_get(column).map_err(unavailable)?;
    String::from_utf8(bytes).map_err(|_| corrupt("a name is not UTF-8".to_owned()))
}

fn corrupt(reason: String) -> Error {
    Error::Corrupt { path: NAME.into(), reason }
}
