//! From where a change was asked for, beside its audit row.
//!
//! In PostgreSQL it has a table of its own. The digest of an audit row, by which nodes tell histories apart, is made of the whole
//! row: a new column there would be another history to every node that runs, and nodes of an earlier version, which write no such
//! column, read this database as well. In SQLite, which one process has, it is a column.

use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Client, Schema, migrate};

use crate::database_error::unavailable;
use crate::document::Accepted;
use crate::error::Error;
use crate::statements::signed;

/// Of the audit table in SQLite.
pub(crate) const COLUMN: &str = "ALTER TABLE audit ADD COLUMN asked_from TEXT";

const NAME: &str = "tidegate_asked_from";
const VERSION: i32 = 1;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidegate_asked_from.change (
        revision bigint PRIMARY KEY,
        asked_from text NOT NULL
    );
";

/// Makes the table, where it is missing.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn prepare(client: &Client) -> Result<(), Error> {
    let schema = Schema { name: NAME, version: VERSION, sql: SCHEMA.into() };
    migrate(client, &schema).await.map_err(unavailable)
}

/// Writes it of accepted changes, and forgets it of rows up to `pruned`.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn write(client: &Client, accepted: &[Accepted], pruned: i64) -> Result<(), Error> {
    // What is newer is of another history: the audit log may have been restored from a backup, and this table not.
    let first = accepted.first().map_or(i64::MAX, |one| signed(one.revision.0));
    let forget = "DELETE FROM tidegate_asked_from.change WHERE revision <= $1 OR revision >= $2";
    client.execute(forget, &[&pruned, &first]).await.map_err(unavailable)?;
    let known = accepted.iter().filter_map(|one| Some((signed(one.revision.0), one.author.from.as_deref()?)));
    let (revisions, places): (Vec<i64>, Vec<&str>) = known.unzip();
    let insert = "INSERT INTO tidegate_asked_from.change (revision, asked_from) \
                  SELECT * FROM unnest($1::bigint[], $2::text[])";
    let columns: [&(dyn ToSql + Sync); 2] = [&revisions, &places];
    client.execute(insert, &columns).await.map(drop).map_err(unavailable)
}
