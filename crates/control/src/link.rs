//! One connection to the database that nodes share, with its schema.

use tidegate_postgres::{Place, Schema, Session, migrate};

use crate::asked_from;
use crate::database_error::{NAME, unavailable};
use crate::error::Error;
use crate::nodes;
use crate::uses;

const VERSION: i32 = 1;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidegate_control.document (
        kind text NOT NULL,
        name bytea NOT NULL,
        body text NOT NULL,
        revision bigint NOT NULL,
        PRIMARY KEY (kind, name)
    );
    CREATE TABLE IF NOT EXISTS tidegate_control.audit (
        revision bigint PRIMARY KEY,
        at_nanos bigint NOT NULL,
        actor text NOT NULL,
        action text NOT NULL,
        kind text NOT NULL,
        name bytea NOT NULL,
        before text,
        after text
    );
";

/// A connection to a database whose schema this program knows.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Newer`].
pub(crate) async fn open(
    place: &Place,
    heard: impl Fn(&str, &str) + Send + 'static,
) -> Result<Session, Error> {
    let client = place.connect(heard).await.map_err(unavailable)?;
    // When this process gives up an operation, the server must not wait for a lock any longer, either.
    client.bound(crate::OPERATION).await.map_err(unavailable)?;
    // An acknowledged change is on the disk, whatever the database's default is.
    client.batch_execute("SET synchronous_commit = on").await.map_err(unavailable)?;
    let schema = Schema { name: NAME, version: VERSION, sql: SCHEMA.into() };
    migrate(&client, &schema).await.map_err(unavailable)?;
    asked_from::prepare(&client).await?;
    uses::prepare(&client).await?;
    // Without the names of nodes, all else is good: this role may have lost the right to make a schema.
    if let Err(error) = nodes::prepare(&client).await {
        tracing::debug!(%error, "the table of nodes cannot be made");
    }
    let found = client.query_one("SELECT max(version) FROM tidegate_control.migrations", &[]).await;
    let found: i32 = found.and_then(|row| row.try_get(0)).map_err(unavailable)?;
    if found > VERSION {
        return Err(Error::Newer { path: NAME.into(), found: found.into(), supported: VERSION.into() });
    }
    Ok(client)
}
