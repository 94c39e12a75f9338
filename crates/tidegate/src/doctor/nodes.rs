//! The stored configuration, and whether all who work together are of one version: the nodes that share a
//! database or a Redis, and the running server beside the program that is installed. Nodes that share a database are named.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tidegate_access::keys::shown_time;
use tidegate_algorithms::time::{SECOND, Wall};
use tidegate_control::{Control, KnownNode, Place, known_nodes, versions_present};

use super::processes::Process;
use super::{Finding, store};
use crate::config::Settings;

const AREA: &str = "nodes";
const OWN: &str = env!("CARGO_PKG_VERSION");
/// Most nodes that are named.
const MAX_NAMED: usize = 20;

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenNodes {
    /// Where the shared configuration is, and the versions of the nodes that are connected to it, or why these are not
    /// known.
    database: Option<(String, Result<Vec<String>, String>)>,
    /// The nodes that are there or were within a day, as the database lists them.
    known: Vec<KnownNode>,
    /// Where nodes count in Redis, and their versions, if it tells.
    redis: Option<(String, Option<Vec<String>>)>,
    /// The running server, if its program was replaced since it started.
    outdated: Option<Process>,
    /// Where the configuration is, if it is this machine's own.
    folder: Option<PathBuf>,
}

/// Asks the database, if nodes share one.
pub(super) fn look(settings: &Settings, server: Option<&Process>, store: &store::SeenStore) -> SeenNodes {
    let database = settings.control_url().map(|url| match Place::parse(url.expose()) {
        Ok(place) => (place.address(), connected(&place)),
        Err(error) => ("control".to_owned(), Err(error.to_string())),
    });
    let (database, known) = match database {
        Some((address, Ok((versions, known)))) => (Some((address, Ok(versions))), known),
        Some((address, Err(why))) => (Some((address, Err(why))), Vec::new()),
        None => (None, Vec::new()),
    };
    let folder = database.is_none().then(|| settings.data_dir.clone());
    let outdated = server.filter(|server| server.is_replaced).cloned();
    SeenNodes { database, known, redis: store.versions_in_redis(), outdated, folder }
}

/// The versions of the nodes that are connected, and all nodes that are listed.
fn connected(place: &Place) -> Result<(Vec<String>, Vec<KnownNode>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async {
        // What is stored must be of a kind that this program can read.
        Control::look_at(place).await?;
        Ok::<_, tidegate_control::Error>((versions_present(place).await?, known_nodes(place).await?))
    });
    asked.map_err(|error| error.to_string())
}

/// What follows from it.
pub(super) fn judge(seen: &SeenNodes) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(server) = &seen.outdated {
        found.push(Finding::warning(
            AREA,
            format!("{server} runs a program that was replaced since it started: what is installed is version {OWN}"),
            "restart it: `systemctl restart tidegate`",
        ));
    }
    if let Some(folder) = &seen.folder {
        found.push(Finding::ok(
            AREA,
            format!("the configuration is in {}, for one server alone", folder.display()),
        ));
    }
    match &seen.database {
        None => {}
        Some((address, Err(why))) => found.push(Finding::problem(
            AREA,
            format!("the configuration in {address} cannot be read: {why}"),
            "start the database, open the way to it, or mend `control`; meanwhile nodes start from their own copies",
        )),
        Some((address, Ok(versions))) => {
            found.push(skew(address, versions));
            found.extend(named(address, &seen.known));
            found.extend(namesakes(address, &seen.known));
        }
    }
    match &seen.redis {
        None => {}
        Some((address, Some(versions))) => found.push(skew(address, versions)),
        Some((address, None)) => found.push(Finding::ok(
            AREA,
            format!(
                "{address} does not tell this user who is connected (+client|list): versions are not compared"
            ),
        )),
    }
    found
}

fn skew(address: &str, versions: &[String]) -> Finding {
    let others: Vec<_> = versions.iter().filter(|version| *version != OWN).map(String::as_str).collect();
    if others.is_empty() {
        let connected = if versions.is_empty() { "no node is connected" } else { "all nodes are of version" };
        let version = if versions.is_empty() { "" } else { OWN };
        return Finding::ok(AREA, format!("{address}: {connected} {version}").trim_end().to_owned());
    }
    Finding::warning(
        AREA,
        format!("{address}: nodes of version {} are connected, and this is version {OWN}", others.join(", ")),
        "bring all nodes to one version; nodes side by side are meant for the time of an upgrade",
    )
}

/// Who the nodes are; nothing where none has said so.
fn named(address: &str, known: &[KnownNode]) -> Option<Finding> {
    let said = known.iter().filter_map(|node| Some((node, node.name()?)));
    let mut texts: Vec<String> = said
        .map(|(node, name)| match node.last_seen_unix_ms.filter(|_| !node.is_present) {
            Some(seen) => {
                let seen = shown_time(Wall((seen / 1_000).saturating_mul(SECOND)));
                format!("{name} (gone, last seen {seen})")
            }
            None => name.to_owned(),
        })
        .collect();
    let more = texts.len().saturating_sub(MAX_NAMED);
    texts.truncate(MAX_NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!texts.is_empty())
        .then(|| Finding::ok(AREA, format!("{address}: its nodes are {}{more}", texts.join(", "))))
}

/// Names that several nodes have.
fn namesakes(address: &str, known: &[KnownNode]) -> Option<Finding> {
    let shared = known.iter().filter(|node| node.shares_name);
    let names: BTreeSet<&str> = shared.filter_map(KnownNode::name).collect();
    let names: Vec<&str> = names.into_iter().take(MAX_NAMED).collect();
    (!names.is_empty()).then(|| {
        Finding::warning(
            AREA,
            format!("{address}: several nodes have the name {}", names.join(", ")),
            "give each node a `node.name` of its own",
        )
    })
}

#[cfg(test)]
mod tests {
    use tidegate_control::NodeIdentity;

    use super::super::Level;
    use super::*;

    #[test]
    fn nodes_are_named_and_two_of_one_name_are_a_warning() {
        let node = |number: u32, name: &str, shares_name: bool, is_present: bool| {
            let identity = NodeIdentity {
                name: name.to_owned(),
                version: OWN.to_owned(),
                started_unix_ms: 0,
                api: None,
            };
            let last_seen_unix_ms = Some(1_790_000_000_000);
            KnownNode { number, identity: Some(identity), last_seen_unix_ms, is_present, shares_name }
        };
        let known = vec![node(1, "a", true, true), node(2, "a", true, true), node(3, "b", false, false)];
        let database = Some(("h:5432/d".to_owned(), Ok(vec![OWN.to_owned()])));
        let found = judge(&SeenNodes { database, known, ..SeenNodes::default() });
        let texts: Vec<_> = found.iter().map(|it| it.what.as_str()).collect();
        let seen = "h:5432/d: its nodes are a, a, b (gone, last seen 2026-09-21T14:13:20Z)";
        assert_eq!(texts[1..], [seen, "h:5432/d: several nodes have the name a"]);
        assert!(found[1].level == Level::Ok && found[2].level == Level::Warning);
    }

    #[test]
    fn versions_that_differ_are_a_warning() {
        let of = |versions: Result<Vec<String>, String>| {
            judge(&SeenNodes { database: Some(("h:5432/d".into(), versions)), ..SeenNodes::default() })
                .remove(0)
        };
        assert_eq!(of(Ok(vec![])).what, "h:5432/d: no node is connected");
        assert_eq!(of(Ok(vec![OWN.into()])).level, Level::Ok);
        let skewed = of(Ok(vec!["0.0.9".into(), OWN.into()]));
        assert!(skewed.level == Level::Warning && skewed.what.contains("version 0.0.9 are connected"));
        assert_eq!(of(Err("refused".into())).level, Level::Problem);
        let redis = |versions| {
            judge(&SeenNodes { redis: Some(("h:6379".into(), versions)), ..SeenNodes::default() }).remove(0)
        };
        let skewed = redis(Some(vec!["0.0.9".into()]));
        assert!(skewed.level == Level::Warning && skewed.what.starts_with("h:6379: nodes of version 0.0.9"));
        assert!(redis(None).level == Level::Ok && redis(None).what.contains("not compared"));
        let outdated = Some(Process { id: 7, name: "tidegate".into(), is_replaced: true });
        let found = judge(&SeenNodes { outdated, ..SeenNodes::default() });
        assert_eq!(found[0].level, Level::Warning);
    }
}
