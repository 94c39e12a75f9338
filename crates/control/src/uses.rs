//! When documents were last of use, beside them: a number that only grows.
//!
//! It is no part of a document and has no revision: it changes all the time, and nobody has changed anything. A node adds its own
//! now and then, the later one stays, and what is gone is forgotten with its document.
//!
//! In PostgreSQL it has a schema of its own: nodes of an earlier version do not mind it.

use rusqlite::{Connection, TransactionBehavior, params};
use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Client, Schema, migrate};

use crate::database_error::unavailable;
use crate::document::Kind;
use crate::error::Error;
use crate::statements::{revision, signed};

/// Its table in SQLite.
pub(crate) const TABLE: &str = "
    CREATE TABLE used (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT, WITHOUT ROWID;
";

const NAME: &str = "tidegate_uses";
const VERSION: i32 = 1;
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidegate_uses.used (
        kind text NOT NULL,
        name bytea NOT NULL,
        at bigint NOT NULL,
        PRIMARY KEY (kind, name)
    );
";

/// A document's name, and the civil second at which it was last of use.
pub type Use = (String, u64);

pub(crate) fn write(connection: &mut Connection, kind: Kind, uses: &[Use]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut keep = transaction.prepare(
            "INSERT INTO used (kind, name, at) SELECT kind, name, ? FROM document WHERE kind = ? AND name = ?
             ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
        )?;
        for (name, at) in uses {
            keep.execute(params![signed(*at), kind.as_str(), name])?;
        }
    }
    transaction.execute(
        "DELETE FROM used WHERE kind = ? AND name NOT IN (SELECT name FROM document WHERE document.kind = used.kind)",
        [kind.as_str()],
    )?;
    transaction.commit()
}

pub(crate) fn read(connection: &Connection, kind: Kind, since: u64) -> rusqlite::Result<Vec<Use>> {
    connection
        .prepare("SELECT name, at FROM used WHERE kind = ? AND at >= ?")?
        .query_map(params![kind.as_str(), signed(since)], |row| Ok((row.get(0)?, revision(row.get(1)?).0)))?
        .collect()
}

/// As [`write()`], in PostgreSQL.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn store(client: &Client, kind: Kind, uses: &[Use]) -> Result<(), Error> {
    let names: Vec<&[u8]> = uses.iter().map(|(name, _)| name.as_bytes()).collect();
    let times: Vec<i64> = uses.iter().map(|(_, at)| signed(*at)).collect();
    // In the order of names, so that nodes do not wait for each other in a circle.
    let keep = "INSERT INTO tidegate_uses.used AS known (kind, name, at) \
                SELECT $1, used.name, max(used.at) FROM unnest($2::bytea[], $3::bigint[]) AS used (name, at) \
                JOIN tidegate_control.document AS document ON document.kind = $1 AND document.name = used.name \
                GROUP BY used.name ORDER BY used.name \
                ON CONFLICT (kind, name) DO UPDATE SET at = excluded.at WHERE known.at < excluded.at";
    let columns: [&(dyn ToSql + Sync); 3] = [&kind.as_str(), &names, &times];
    client.execute(keep, &columns).await.map_err(unavailable)?;
    let forget = "DELETE FROM tidegate_uses.used AS used WHERE kind = $1 AND NOT EXISTS \
                  (SELECT FROM tidegate_control.document WHERE kind = used.kind AND name = used.name)";
    client.execute(forget, &[&kind.as_str()]).await.map(drop).map_err(unavailable)
}

/// As [`read`], in PostgreSQL.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Corrupt`].
pub(crate) async fn load(client: &Client, kind: Kind, since: u64) -> Result<Vec<Use>, Error> {
    let query = "SELECT name, at FROM tidegate_uses.used WHERE kind = $1 AND at >= $2";
    let rows = client.query(query, &[&kind.as_str(), &signed(since)]).await.map_err(unavailable)?;
    let used = rows.iter().map(|row| {
        let at = revision(row.try_get(1).map_err(unavailable)?).0;
        Ok((crate::rows::name(row, 0)?, at))
    });
    used.collect()
}

/// Makes the table, where it is missing.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn prepare(client: &Client) -> Result<(), Error> {
    let schema = Schema { name: NAME, version: VERSION, sql: SCHEMA.into() };
    migrate(client, &schema).await.map_err(unavailable)
}
