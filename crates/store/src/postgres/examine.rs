//! Facts about the PostgreSQL server, and the version of its tables. Asking changes nothing.

use tidegate_algorithms::time::Wall;
use tidegate_postgres::{Error, Session, text};

use super::schema::schema;
use super::{PostgresConfig, natural};
use crate::batch::Failure;
use crate::facts::{ClockReading, PATIENCE, SchemaFacts, ServerFacts};

const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::int8";
const SERVER: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::int4, \
                      has_database_privilege(current_database(), 'CREATE')";

/// Asks the server.
///
/// # Errors
/// When it cannot be asked.
pub(crate) async fn examine(
    config: &PostgresConfig,
    wall: &(dyn Fn() -> Wall + Sync),
) -> Result<ServerFacts, Failure> {
    let asking = async {
        let session = config.place.connect(|_, _| {}).await?;
        session.bound(PATIENCE).await?;
        ask(&session, config, wall).await
    };
    asking.await.map_err(|error: Error| Failure::Unsent(text(&error)))
}

async fn ask(
    session: &Session,
    config: &PostgresConfig,
    wall: &(dyn Fn() -> Wall + Sync),
) -> Result<ServerFacts, Error> {
    let asked = wall();
    let clock = session.query_one(CLOCK, &[]).await?.try_get(0)?;
    let clock = ClockReading { asked, server: Wall(natural(clock)), answered: wall() };
    let server = session.query_one(SERVER, &[]).await?;
    let number: i32 = server.try_get(1)?;
    let own = schema(config.durability);
    let migrations = format!("{}.migrations", own.name);
    let is_there = session.query_one("SELECT to_regclass($1) IS NOT NULL", &[&migrations]).await?;
    let found = if is_there.try_get(0)? {
        session.query_one(&format!("SELECT max(version) FROM {migrations}"), &[]).await?.try_get(0)?
    } else {
        None
    };
    Ok(ServerFacts {
        address: config.place.address(),
        version: server.try_get(0)?,
        major: u32::try_from(number / 10_000).ok(),
        clock: Some(clock),
        drops_keys: None,
        schema: Some(SchemaFacts { found, own: own.version, may_create: server.try_get(2)? }),
        nodes: None,
    })
}
