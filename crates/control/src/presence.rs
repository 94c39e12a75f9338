//! Presence: the nodes that share a database and are there now.
//!
//! Each node has a number, drawn at its start, and holds an advisory lock of that number on the connection that it
//! follows changes by. The server lets go of the lock when the connection ends, however it does: state with a lifetime,
//! and no row that somebody would have to clean up. A node that is out of contact for a moment counts as gone for that
//! moment, so whoever acts on it waits for longer. Names are a matter of their own ([`crate::nodes`]).
//!
//! A node that vanished without a word is noticed by the server's keepalive probes, within a minute. Behind a proxy that
//! gives one connection to many clients, nodes seem to be there for longer than they are.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tidegate_postgres::{Place, Session};

use crate::database_error::{in_time, unavailable};
use crate::error::Error;

/// The first half of the locks' names.
pub(crate) const CLASS: i32 = 0x7467_6e64;

/// The locks of nodes that are there, for a query whose first parameter is [`CLASS`].
pub(crate) const LOCKS: &str = "FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 \
     AND classid::int8 = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The server's probes of a silent connection: 20 + 3 x 10 = 50 s.
const KEEPALIVE: &str =
    "SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// The nodes that are there.
pub type NodesPresent = Arc<HashSet<u32>>;

/// The versions of the nodes that are connected to this database at this moment, this program's own not counted.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Late`].
pub async fn versions_present(place: &Place) -> Result<Vec<String>, Error> {
    let asking = async {
        let session = place.connect(|_, _| {}).await.map_err(unavailable)?;
        session.bound(crate::OPERATION).await.map_err(unavailable)?;
        let query = "SELECT DISTINCT split_part(application_name, ' ', 2) FROM pg_stat_activity \
                     WHERE application_name LIKE 'tidegate %' AND datname = current_database() \
                     AND pid <> pg_backend_pid() ORDER BY 1";
        let rows = session.query(query, &[]).await.map_err(unavailable)?;
        rows.iter().map(|row| row.try_get(0).map_err(unavailable)).collect()
    };
    in_time(asking).await
}

/// Draws the number of a node, above 0. Of fifty nodes, one draws the number of another about once in a million starts.
pub(crate) fn draw() -> u32 {
    let drawn = RandomState::new().hash_one(0) as u32 & 0x7fff_ffff;
    drawn.max(1)
}

/// Says on `session` that `node` is there, for as long as the session lives.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn announce(session: &Session, node: u32) -> Result<(), Error> {
    // Shared, so that the session before, which the server may still know, is not in the way.
    let lock = format!("{KEEPALIVE}; SELECT pg_try_advisory_lock_shared({CLASS}, {node})");
    session.batch_execute(&lock).await.map_err(unavailable)
}

/// The nodes that are there.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn present(session: &Session) -> Result<NodesPresent, Error> {
    let query = format!("SELECT objid::int8 {LOCKS}");
    let rows = session.query(&query, &[&i64::from(CLASS)]).await.map_err(unavailable)?;
    let numbers = rows.iter().map(|row| row.try_get::<_, i64>(0).map_err(unavailable));
    let numbers: Vec<i64> = numbers.collect::<Result<_, _>>()?;
    Ok(Arc::new(numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect()))
}
