//! Versions of the nodes that count in a Redis: each node names one of its connections to each server, and the doctor reads the
//! names of all connections. Redis stores nothing for this, and a node that is gone leaves no name behind.

use redis::aio::MultiplexedConnection;
use redis::cmd;

/// The name of a connection, before the version.
const PREFIX: &str = "tidegate-";
const OWN: &str = env!("CARGO_PKG_VERSION");

/// Names this connection. A user without the right `+client|setname`, and a proxy that knows no names, counts all the
/// same.
pub(super) async fn announce(mut connection: MultiplexedConnection) {
    let name = format!("{PREFIX}{OWN}");
    let said = cmd("CLIENT").arg("SETNAME").arg(name).query_async::<()>(&mut connection).await;
    if let Err(error) = said {
        tracing::debug!(%error, "Redis is not told this node's version");
    }
}

/// The versions of all connected nodes, each once; empty for a user without the right `+client|list`.
pub(super) async fn versions(mut connection: MultiplexedConnection) -> Option<Vec<String>> {
    let listed = cmd("CLIENT").arg("LIST").query_async::<String>(&mut connection).await;
    listed.ok().map(|clients| named(&clients))
}

fn named(clients: &str) -> Vec<String> {
    let words = clients.lines().flat_map(|line| line.split(' '));
    let versions = words.filter_map(|word| word.strip_prefix("name=")?.strip_prefix(PREFIX));
    let mut versions: Vec<String> = versions.map(str::to_owned).collect();
    versions.sort();
    versions.dedup();
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_names_of_connections() {
        let clients = "id=3 addr=127.0.0.1:1 name=tidegate-0.2.0 age=1\nid=4 name= age=2\n\
                       id=5 name=tidegate-0.1.0 age=2\nid=6 name=other-0.3.0\nid=7 name=tidegate-0.2.0\n";
        assert_eq!(named(clients), ["0.1.0", "0.2.0"]);
        assert_eq!(named(""), [""; 0]);
    }
}
