//! Nodes by name: what each node that shares the database says of itself, and when it was seen last.
//!
//! ```text
//!   presence   an advisory lock of the node's number: whether it is there      ends with its connection
//!   this file  a row of the same number: name, version, start, admin API       written every few seconds
//! ```
//!
//! The lock decides whether a node is there, and the row says which one it is. A node that is gone leaves its row behind, so
//! that it is listed as seen last at that time, by the database's clock. Rows are deleted a day after that, and a minute after
//! it where a node of the same name has started anew. A list has [`MAX_LISTED`] nodes at most, those that are there first.
//!
//! Names are not unique by themselves: two machines may be called the same. Their numbers tell them apart, and
//! [`KnownNode::shares_name`] says so.
//!
//! In PostgreSQL the table has a schema of its own: nodes of an earlier version do not mind it, and are listed without a name.

use std::collections::{HashMap, HashSet};

use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Client, Place, Schema, migrate};

use crate::database_error::{in_time, unavailable};
use crate::error::Error;
use crate::presence::{CLASS, LOCKS};
use crate::statements::{revision, signed};

/// Most nodes that are listed.
const MAX_LISTED: usize = 1_000;

const NAME: &str = "tidegate_nodes";
const VERSION: i32 = 1;
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidegate_nodes.node (
        number bigint PRIMARY KEY,
        name text NOT NULL,
        version text NOT NULL,
        started_unix_ms bigint NOT NULL,
        api text,
        seen timestamptz NOT NULL
    );
";

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// What people call it.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// When it started, in milliseconds since 1970 by its own clock.
    pub started_unix_ms: u64,
    /// The URL of its admin API, if others can reach it.
    pub api: Option<String>,
}

/// A node that is there, or was within a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Its number, drawn anew at each start; 0 in a data directory.
    pub number: u32,
    /// What it says of itself; `None` of a node of an earlier version, and of one that has just connected.
    pub identity: Option<NodeIdentity>,
    /// When it was seen last, in milliseconds since 1970 by the database's clock; `None` where it has no row.
    pub last_seen_unix_ms: Option<u64>,
    /// Whether it is there.
    pub is_present: bool,
    /// Whether another node that is there has the same name.
    pub shares_name: bool,
}

/// The nodes that share a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeList {
    /// Those that are there, by name, and then those that are gone, the one seen last first.
    pub nodes: Vec<KnownNode>,
    /// Whether it is as of some seconds ago. Otherwise the database does not answer, and this was so when it last did.
    pub is_current: bool,
}

/// The nodes that share this database, as it says itself; none where no node of this version has been.
///
/// # Errors
/// [`Error::Unavailable`] or [`Error::Late`].
pub async fn known_nodes(place: &Place) -> Result<Vec<KnownNode>, Error> {
    let asking = async {
        let session = place.connect(|_, _| {}).await.map_err(unavailable)?;
        session.bound(crate::OPERATION).await.map_err(unavailable)?;
        let table = "SELECT to_regclass('tidegate_nodes.node') IS NOT NULL";
        let found: Result<bool, _> = session.query_one(table, &[]).await.and_then(|row| row.try_get(0));
        if found.map_err(unavailable)? { list(&session).await } else { Ok(Vec::new()) }
    };
    in_time(asking).await
}

/// Makes the table, where it is missing.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn prepare(client: &Client) -> Result<(), Error> {
    let schema = Schema { name: NAME, version: VERSION, sql: SCHEMA.into() };
    migrate(client, &schema).await.map_err(unavailable)
}

/// Says who the node `number` is and that it was there just now, and forgets those that are gone for long.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn keep(client: &Client, number: u32, identity: &NodeIdentity) -> Result<(), Error> {
    let (number, started) = (i64::from(number), signed(identity.started_unix_ms));
    let keep = "INSERT INTO tidegate_nodes.node (number, name, version, started_unix_ms, api, seen) \
                VALUES ($1, $2, $3, $4, $5, now()) ON CONFLICT (number) DO UPDATE SET name = excluded.name, \
                version = excluded.version, started_unix_ms = excluded.started_unix_ms, api = excluded.api, \
                seen = excluded.seen";
    let columns: [&(dyn ToSql + Sync); 5] =
        [&number, &identity.name, &identity.version, &started, &identity.api];
    client.execute(keep, &columns).await.map_err(unavailable)?;
    let forget = "DELETE FROM tidegate_nodes.node WHERE seen < now() - interval '1 day' \
                  OR (name = $1 AND number <> $2 AND seen < now() - interval '1 minute')";
    client.execute(forget, &[&identity.name, &number]).await.map(drop).map_err(unavailable)
}

/// All nodes that are there or have a row.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn list(client: &Client) -> Result<Vec<KnownNode>, Error> {
    let query = format!(
        "SELECT coalesce(node.number, there.number), node.name, node.version, node.started_unix_ms, node.api, \
         (extract(epoch FROM node.seen) * 1000)::int8, there.number IS NOT NULL \
         FROM tidegate_nodes.node AS node \
         FULL JOIN (SELECT DISTINCT objid::int8 AS number {LOCKS}) AS there ON node.number = there.number \
         ORDER BY there.number IS NULL, node.seen DESC NULLS LAST LIMIT {MAX_LISTED}"
    );
    let rows = client.query(&query, &[&i64::from(CLASS)]).await.map_err(unavailable)?;
    let mut nodes = Vec::with_capacity(rows.len());
    for row in &rows {
        let number: i64 = row.try_get(0).map_err(unavailable)?;
        let name: Option<String> = row.try_get(1).map_err(unavailable)?;
        let version: Option<String> = row.try_get(2).map_err(unavailable)?;
        let started: Option<i64> = row.try_get(3).map_err(unavailable)?;
        let api: Option<String> = row.try_get(4).map_err(unavailable)?;
        let seen: Option<i64> = row.try_get(5).map_err(unavailable)?;
        let identity = name.zip(version).zip(started).map(|((name, version), started)| NodeIdentity {
            name,
            version,
            started_unix_ms: revision(started).0,
            api,
        });
        nodes.push(KnownNode {
            number: u32::try_from(number).unwrap_or(0),
            identity,
            last_seen_unix_ms: seen.map(|seen| revision(seen).0),
            is_present: row.try_get(6).map_err(unavailable)?,
            shares_name: false,
        });
    }
    Ok(in_order(nodes))
}

/// Leaves out what a node of the same name has replaced, says which nodes share a name, and puts them in order.
fn in_order(mut nodes: Vec<KnownNode>) -> Vec<KnownNode> {
    let mut present: HashMap<String, u32> = HashMap::new();
    for name in nodes.iter().filter(|node| node.is_present).filter_map(KnownNode::name) {
        *present.entry(name.to_owned()).or_default() += 1;
    }
    nodes.sort_by_cached_key(|node| {
        let since = node.last_seen_unix_ms.filter(|_| !node.is_present).unwrap_or(0);
        (!node.is_present, u64::MAX - since, node.name().map(str::to_owned), node.number)
    });
    let mut gone = HashSet::new();
    nodes.retain_mut(|node| {
        let Some(name) = node.name().map(str::to_owned) else { return true };
        let namesakes = present.get(&name).copied().unwrap_or(0);
        node.shares_name = node.is_present && namesakes > 1;
        // Of those that are gone, the one that was seen last comes first.
        node.is_present || (namesakes == 0 && gone.insert(name))
    });
    nodes
}

impl KnownNode {
    /// A node that is there, of which no other node is known to have the name.
    pub(crate) fn alone(number: u32, identity: Option<NodeIdentity>) -> Self {
        Self { number, identity, last_seen_unix_ms: None, is_present: true, shares_name: false }
    }

    /// Its name, if it is known.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(number: u32, name: &str, seen: u64, is_present: bool) -> KnownNode {
        let identity =
            NodeIdentity { name: name.to_owned(), version: "1".to_owned(), started_unix_ms: 1, api: None };
        let last_seen_unix_ms = Some(seen);
        KnownNode { number, identity: Some(identity), last_seen_unix_ms, is_present, shares_name: false }
    }

    #[test]
    fn a_node_that_started_anew_is_listed_once_and_two_of_one_name_are_told_apart() {
        let unnamed = KnownNode::alone(0, None);
        let nodes = vec![
            known(1, "c", 30, false),
            known(2, "c", 40, false),
            known(3, "b", 10, true),
            known(4, "a", 10, true),
            known(5, "a", 11, true),
            known(6, "b", 9, false),
            known(7, "d", 50, false),
            unnamed,
        ];
        let listed = in_order(nodes);
        let said: Vec<_> = listed.iter().map(|it| (it.name(), it.number, it.shares_name)).collect();
        let wanted = [
            (None, 0, false),
            (Some("a"), 4, true),
            (Some("a"), 5, true),
            (Some("b"), 3, false),
            (Some("d"), 7, false),
            (Some("c"), 2, false),
        ];
        assert_eq!(said, wanted);
        assert_eq!(listed.iter().filter(|it| it.is_present).count(), 4);
    }
}
