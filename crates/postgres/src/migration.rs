//! Schemas that bring themselves up to date when a node connects.

use std::borrow::Cow;

use tokio_postgres::{Client, Error};

/// Name of the advisory lock under which schemas change: "tidegate" as a number.
const MIGRATION_LOCK: i64 = 0x7469_6465_6761_7465;

/// Tables and functions of one part of the program.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Its name in the database: a plain lower-case word, since it becomes part of statements.
    pub name: &'static str,
    /// A change of `sql` raises it.
    pub version: i32,
    /// Makes this version out of any earlier one, or of nothing.
    pub sql: Cow<'static, str>,
}

/// Brings a schema up to date, one node at a time. A newer one than this program's is left alone.
///
/// # Errors
/// Of the database; nothing has changed then.
pub async fn migrate(client: &Client, schema: &Schema) -> Result<(), Error> {
    let Schema { name, version, sql } = schema;
    let known = format!("SELECT to_regclass('{name}.migrations') IS NOT NULL");
    let is_current = format!("SELECT EXISTS (SELECT FROM {name}.migrations WHERE version >= {version})");
    if client.query_one(&known, &[]).await?.try_get(0)?
        && client.query_one(&is_current, &[]).await?.try_get(0)?
    {
        return Ok(());
    }
    let begin = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK}); CREATE SCHEMA IF NOT EXISTS {name}; \
         CREATE TABLE IF NOT EXISTS {name}.migrations \
         (version int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
    );
    let done = async {
        client.batch_execute(&begin).await?;
        if !client.query_one(&is_current, &[]).await?.try_get::<_, bool>(0)? {
            client.batch_execute(sql).await?;
            client
                .batch_execute(&format!("INSERT INTO {name}.migrations (version) VALUES ({version})"))
                .await?;
        }
        client.batch_execute("COMMIT").await
    };
    let outcome = done.await;
    if outcome.is_err() {
        // What failed is already known; a connection that is gone has rolled back by itself.
        client.batch_execute("ROLLBACK").await.unwrap_or_default();
    }
    outcome
}
