//! Secrets that nodes share and no API shows: private keys, and the accounts that they belong to.
//!
//! Documents are the wrong place for them: every change of a document is a row of the audit log, and the admin API
//! returns them. A secret has a name, a text and a version; it is put in place of the version that its writer knows, so
//! that of two nodes one is refused. No history is kept. They are beside the documents, in the data directory's
//! database or in PostgreSQL, where they have a schema of their own: nodes of an earlier version do not mind it.
//!
//! A node keeps a copy of those of PostgreSQL in its data directory, and starts with it while the database is away.
//!
//! Bounds: [`MAX_SECRETS`], [`MAX_SECRET_BYTES`] each.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use tidegate_postgres::{Client, Schema, migrate};

use crate::database_error::unavailable;
use crate::document::Revision;
use crate::error::Error;
use crate::replace::replace_file;
use crate::statements::{revision, signed};

/// Most secrets.
pub const MAX_SECRETS: usize = 1_000;

/// Longest secret, in bytes.
pub const MAX_SECRET_BYTES: usize = 64 << 10;

/// This node's copy of the secrets in PostgreSQL.
pub const SECRETS_COPY_FILE: &str = "secrets-copy.json";

/// The data directory's table of them.
pub(crate) const TABLE: &str = "
    CREATE TABLE secret (
        name TEXT PRIMARY KEY,
        body TEXT NOT NULL,
        version INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The schema's name in PostgreSQL.
const NAME: &str = "tidegate_secrets";
const VERSION: i32 = 1;
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidegate_secrets.secret (
        name text PRIMARY KEY,
        body text NOT NULL,
        version bigint NOT NULL
    );
    REVOKE ALL ON tidegate_secrets.secret FROM PUBLIC;
";

/// A text that only this program reads.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// What it is called.
    pub name: String,
    /// The text.
    pub body: String,
    /// Which one of this name it is: the first is 1.
    pub version: u64,
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secret")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A secret that is to be put in the place of the version that its writer knows.
#[derive(Clone, Copy)]
pub(crate) struct SecretUpdate<'a> {
    pub(crate) name: &'a str,
    pub(crate) body: &'a str,
    /// The version that is replaced; 0 if there must be none.
    pub(crate) known: u64,
}

/// All secrets of a data directory.
pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Vec<Secret>> {
    connection
        .prepare("SELECT name, body, version FROM secret ORDER BY name")?
        .query_map([], |row| {
            Ok(Secret { name: row.get(0)?, body: row.get(1)?, version: revision(row.get(2)?).0 })
        })?
        .collect()
}

/// Puts one there in the place of the known version.
pub(crate) fn write(connection: &mut Connection, update: SecretUpdate<'_>) -> rusqlite::Result<Written> {
    let SecretUpdate { name, body, known } = update;
    let transaction = connection.transaction()?;
    let found: Option<i64> = transaction
        .query_row("SELECT version FROM secret WHERE name = ?", [name], |row| row.get(0))
        .optional()?;
    let found = found.map_or(0, |version| revision(version).0);
    if found != known {
        return Ok(Written::Moved(found));
    }
    let count: i64 = transaction.query_row("SELECT count(*) FROM secret", [], |row| row.get(0))?;
    if found == 0 && count >= signed(MAX_SECRETS as u64) {
        return Ok(Written::Full);
    }
    transaction.execute(
        "INSERT INTO secret (name, body, version) VALUES (?, ?, ?)
         ON CONFLICT DO UPDATE SET body = excluded.body, version = excluded.version",
        params![name, body, signed(known + 1)],
    )?;
    transaction.commit()?;
    Ok(Written::Version(known + 1))
}

/// What became of a secret that was put.
pub(crate) enum Written {
    /// It is stored as this version.
    Version(u64),
    /// This version is there instead of the known one.
    Moved(u64),
    /// There are too many.
    Full,
}

impl Written {
    pub(crate) fn into_version(self) -> Result<u64, Error> {
        match self {
            Self::Version(version) => Ok(version),
            Self::Moved(version) => Err(Error::Moved { newest: Revision(version) }),
            Self::Full => Err(Error::Full { what: "secrets", limit: MAX_SECRETS }),
        }
    }
}

/// All secrets of PostgreSQL. Makes their table if it is missing.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn load(client: &Client) -> Result<Vec<Secret>, Error> {
    prepare(client).await?;
    let query = "SELECT name, body, version FROM tidegate_secrets.secret ORDER BY name LIMIT $1";
    let rows = client.query(query, &[&signed(MAX_SECRETS as u64)]).await.map_err(unavailable)?;
    let secret = |row: &tidegate_postgres::Row| {
        let version = revision(row.try_get(2).map_err(unavailable)?).0;
        let (name, body) = (row.try_get(0).map_err(unavailable)?, row.try_get(1).map_err(unavailable)?);
        Ok(Secret { name, body, version })
    };
    rows.iter().map(secret).collect()
}

/// Puts one there in the place of the known version.
///
/// # Errors
/// [`Error::Moved`], [`Error::Full`] or [`Error::Unavailable`].
pub(crate) async fn store(client: &Client, update: SecretUpdate<'_>) -> Result<u64, Error> {
    let SecretUpdate { name, body, known } = update;
    prepare(client).await?;
    let next = signed(known + 1);
    // One statement each: nothing comes between the comparison and the change.
    let stored = if known == 0 {
        let insert = "INSERT INTO tidegate_secrets.secret (name, body, version) SELECT $1, $2, $3 \
                      WHERE (SELECT count(*) FROM tidegate_secrets.secret) < $4 ON CONFLICT DO NOTHING";
        client.execute(insert, &[&name, &body, &next, &signed(MAX_SECRETS as u64)]).await
    } else {
        let replace =
            "UPDATE tidegate_secrets.secret SET body = $2, version = $3 WHERE name = $1 AND version = $4";
        client.execute(replace, &[&name, &body, &next, &signed(known)]).await
    };
    if stored.map_err(unavailable)? == 1 {
        return Ok(known + 1);
    }
    let query = "SELECT version FROM tidegate_secrets.secret WHERE name = $1";
    let found = client.query_opt(query, &[&name]).await.map_err(unavailable)?;
    let found = found.map(|row| row.try_get(0)).transpose().map_err(unavailable)?.map(revision);
    match (found, known) {
        (None, 0) => Written::Full.into_version(),
        (found, _) => Written::Moved(found.unwrap_or_default().0).into_version(),
    }
}

async fn prepare(client: &Client) -> Result<(), Error> {
    let schema = Schema { name: NAME, version: VERSION, sql: SCHEMA.into() };
    migrate(client, &schema).await.map_err(unavailable)
}

/// The secrets of one database, as a node keeps them.
#[derive(Serialize, Deserialize)]
struct SecretsCopy {
    database: String,
    secrets: Vec<Secret>,
}

/// Keeps them in `folder`, if they are not there already.
pub(crate) fn keep(folder: &Path, database: &str, secrets: &[Secret]) -> io::Result<()> {
    if secrets.is_empty() || kept(folder, database).as_deref() == Some(secrets) {
        return Ok(());
    }
    let path = folder.join(SECRETS_COPY_FILE);
    let copy = SecretsCopy { database: database.to_owned(), secrets: secrets.to_vec() };
    replace_file(&path, |out| serde_json::to_writer(out, &copy).map_err(io::Error::from))
}

/// The copy in `folder` of this database's secrets, if there is a good one.
pub(crate) fn kept(folder: &Path, database: &str) -> Option<Vec<Secret>> {
    let copy: SecretsCopy = serde_json::from_slice(&fs::read(folder.join(SECRETS_COPY_FILE)).ok()?).ok()?;
    (copy.database == database).then_some(copy.secrets)
}
