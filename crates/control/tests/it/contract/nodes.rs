//! Several nodes on one database.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Change, Control, Draft, Error, Kind, KnownNode, Limits, NodeIdentity, Place, Precondition,
    Revision, known_nodes,
};
use tidegate_testkit::Signal;
use tidegate_testkit::postgres::PostgresServer;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::contract::{Database, Home, NOWHERE};

const POLICY: (Kind, &str) = (Kind::new("policy"), "api");

fn author() -> Author {
    Author { actor: "alice".to_owned(), at: Wall(1), from: None }
}

/// How long until `control` has heard of `revision`.
fn heard_after(control: &Control, revision: Revision) -> Duration {
    let (start, mut newest) = (Instant::now(), control.watch());
    while newest.borrow_and_update().revision() < revision {
        assert!(start.elapsed() < Duration::from_secs(60), "not heard of {revision}");
        thread::yield_now();
    }
    start.elapsed()
}

pub(crate) fn changes_are_heard_of_within_a_second(home: &Database<'_>) {
    let (a, b) = (home.open(Limits::default()), home.open(Limits::default()));
    let mut waits = Vec::new();
    for number in 1..=20 {
        let made = a.put(POLICY, &number.to_string(), Precondition::None, &author()).unwrap();
        waits.push(heard_after(&b, made));
        assert_eq!(b.snapshot(), a.snapshot());
    }
    // A machine that stands still may be late once or twice.
    waits.sort();
    assert!(waits[waits.len() - 3] < Duration::from_secs(1), "{waits:?}");
    let gone = b.delete(POLICY, Precondition::IfMatch(Revision(20)), &author()).unwrap();
    heard_after(&a, gone);
    assert!(a.snapshot().is_empty() && a.is_reachable());
}

pub(crate) fn fault_20_nodes_change_at_once(home: &Database<'_>) {
    const EACH: u64 = 20;
    let nodes: Vec<_> = (0..3).map(|_| home.open(Limits::default())).collect();
    thread::scope(|scope| {
        for (index, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                let name = format!("policy-{index}");
                for number in 0..EACH {
                    // The precondition holds at the newest revision, whoever made it.
                    let found = node.get(Kind::new("policy"), &name).map(|document| document.revision);
                    let precondition = found.map_or(Precondition::IfNoneMatch, Precondition::IfMatch);
                    node.put((Kind::new("policy"), &name), &number.to_string(), precondition, &author())
                        .unwrap();
                }
            });
        }
    });
    let last = Revision(3 * EACH);
    for node in &nodes {
        heard_after(node, last);
        assert_eq!(node.snapshot(), nodes[0].snapshot());
    }
    let rows = nodes[0].audit(Revision(0), 1_000).unwrap();
    let revisions: Vec<_> = rows.iter().map(|row| row.revision.0).collect();
    assert_eq!(revisions, (1..=last.0).collect::<Vec<_>>(), "every change is there, once");
    let loser =
        nodes[1].put((Kind::new("policy"), "policy-0"), "9", Precondition::IfMatch(Revision(1)), &author());
    assert!(matches!(loser, Err(Error::PreconditionFailed { .. })), "{loser:?}");
}

/// The locks that are turns: each node that is there holds another one.
const TURNS: &str =
    "FROM pg_locks WHERE locktype = 'advisory' AND (classid, objid) = (1953064037, 1668575852)";

/// Connections that wait for a turn, and those that have it.
fn turns(home: &Database<'_>) -> (usize, usize) {
    let found = home.server.sql(&format!("SELECT granted {TURNS}"));
    (found.matches('f').count(), found.matches('t').count())
}

/// A draft that puts this policy on what the node knows.
fn draft(node: &Control, body: &str) -> Draft {
    let mut draft = node.draft();
    draft.add(Change::put(POLICY.0, POLICY.1, body), author(), |_| Ok::<_, Error>(())).unwrap();
    draft
}

pub(crate) fn a_node_waits_for_its_turn_and_then_decides_on_what_is_newest(home: &Database<'_>) {
    let (a, b) = (home.open(Limits::default()), home.open(Limits::default()));
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < Duration::from_secs(60), "b never waits for its turn");
        let turn = a.take_turn().unwrap();
        let (seen, made, later) = thread::scope(|scope| {
            let other =
                scope.spawn(|| b.put((POLICY.0, "other"), "1", Precondition::None, &author()).unwrap());
            let mut seen = false;
            while !other.is_finished() && !seen {
                seen = turns(home) == (1, 1);
            }
            let made = a.commit(draft(&a, "1"), turn);
            (seen, made, other.join().unwrap())
        });
        // On a machine that stands still it has waited for long enough meanwhile.
        if seen && made.as_ref().is_ok_and(|made| made.0 + 1 == later.0) {
            return;
        }
    }
}

pub(crate) fn a_turn_that_stands_still_or_is_lost_keeps_nobody_from_changing(home: &Database<'_>) {
    let (a, b) = (home.open(Limits::default()), home.open(Limits::default()));
    let (turn, overtaken) = (a.take_turn().unwrap(), draft(&a, "1"));
    b.put(POLICY, "2", Precondition::None, &author()).unwrap();
    let refused = a.commit(overtaken, turn);
    assert!(matches!(refused, Err(Error::Moved { .. })), "{refused:?}");
    a.put(POLICY, "3", Precondition::None, &author()).unwrap();
    // The server has ended it: what nobody has overtaken is stored all the same.
    let (turn, alone) = (a.take_turn().unwrap(), draft(&a, "4"));
    home.server.sql(&format!("SELECT pg_terminate_backend(pid) {TURNS}"));
    assert_eq!(a.commit(alone, turn).unwrap(), Revision(3));
    // One that comes to nothing is the next one's at once.
    drop(a.take_turn().unwrap());
    while turns(home) != (0, 0) {
        thread::yield_now();
    }
    b.put(POLICY, "5", Precondition::IfMatch(Revision(3)), &author()).unwrap();
}

pub(crate) fn a_node_that_missed_pruned_changes_loads_everything(home: &Database<'_>) {
    let limits = Limits { audit_rows: 1, ..Limits::default() };
    let (a, b) = (home.open(limits), home.open(limits));
    for number in 0..50 {
        a.put((Kind::new("override"), &format!("client-{number}")), "1", Precondition::None, &author())
            .unwrap();
    }
    heard_after(&b, Revision(50));
    assert_eq!(b.snapshot(), a.snapshot());
    assert_eq!(b.snapshot().len(), 50);
}

/// An earlier version writes and reads the audit rows alone. What is kept beside them changes no digest, so that no node
/// takes the history for another one.
pub(crate) fn a_node_of_an_earlier_version_shares_the_history(home: &Database<'_>) {
    let first = home.open(Limits::default());
    first.put(POLICY, "1", Precondition::None, &author()).unwrap();
    home.server.sql("DROP SCHEMA tidegate_asked_from CASCADE");
    let second = home.open(Limits::default());
    let from = |place: &str| Author { from: Some(place.into()), ..author() };
    let made = second.put(POLICY, "2", Precondition::None, &from("192.0.2.1")).unwrap();
    heard_after(&first, made);
    let file = Change::record_file("tidegate.toml", &Value::Null, &Value::from(1));
    let made = second.apply(&[file], &from("host")).unwrap();
    heard_after(&first, made);
    assert_eq!(first.snapshot(), second.snapshot());
    assert_eq!((first.snapshot().replaced(), first.snapshot().len()), (0, 1));
    let places: Vec<_> =
        first.audit(Revision(0), 10).unwrap().into_iter().map(|row| row.author.from).collect();
    assert_eq!(places, [None, Some("192.0.2.1".into()), Some("host".into())]);
    // A backup of the audit log without the addresses: its revisions are made again, by somebody else.
    home.server.sql("INSERT INTO tidegate_asked_from.change VALUES (4, 'another history')");
    second.delete(POLICY, Precondition::None, &author()).unwrap();
    assert_eq!(second.audit(Revision(3), 10).unwrap()[0].author.from, None);
}

#[test]
fn without_the_database_the_last_revision_stays_and_changes_are_refused() {
    let (mut server, runtime) = (PostgresServer::start(&[]), Runtime::new().unwrap());
    let place = Place::parse(&server.connection_string()).unwrap();
    let connect =
        || Control::connect(place.clone(), NOWHERE.as_ref(), Limits::default(), runtime.handle()).unwrap();
    let (a, b) = (connect(), connect());
    let made = a.put(POLICY, "1", Precondition::None, &author()).unwrap();
    heard_after(&b, made);
    let before = b.snapshot();

    server.server.end(Signal::INT);
    let refused = b.put(POLICY, "2", Precondition::None, &author()).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert_eq!(b.snapshot(), before);
    while a.is_reachable() || b.is_reachable() {
        thread::yield_now();
    }

    server.restart();
    while !b.is_reachable() {
        thread::yield_now();
    }
    let made = a.put(POLICY, "3", Precondition::IfMatch(made), &author()).unwrap();
    heard_after(&b, made);
    assert_eq!(&*b.get(POLICY.0, POLICY.1).unwrap().body, "3");
}

#[test]
fn changes_one_after_the_other_share_a_connection() {
    let (server, runtime) = (PostgresServer::start(&[]), Runtime::new().unwrap());
    let node = Database { server: &server, runtime: &runtime }.open(Limits::default());
    let mut newest;
    // The connection that loaded everything at the start ends by itself.
    let first = loop {
        newest = node.put(POLICY, "0", Precondition::None, &author()).unwrap();
        let found = server.clients();
        if found.len() == 2 {
            break found;
        }
    };
    for number in 1..20 {
        newest = node.put(POLICY, &number.to_string(), Precondition::IfMatch(newest), &author()).unwrap();
    }
    assert_eq!(server.clients(), first, "the one that follows, and the one that changes");

    // A connection that was cut in the meantime costs no change.
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    node.put(POLICY, "20", Precondition::IfMatch(newest), &author()).unwrap();
    while !node.is_reachable() || server.clients().len() != 1 {
        thread::yield_now();
    }
}

/// Fewer connections than nodes ask for at once: whoever is refused asks again a little later.
#[test]
fn fault_24_fifty_nodes_load_their_configuration_at_once() {
    let (server, runtime) = (PostgresServer::start(&["max_connections=60"]), Runtime::new().unwrap());
    let place = Place::parse(&server.connection_string()).unwrap();
    let connect = || Control::connect(place.clone(), NOWHERE.as_ref(), Limits::default(), runtime.handle());
    let made = connect().unwrap().put(POLICY, "1", Precondition::None, &author()).unwrap();
    let nodes: Vec<_> = thread::scope(|scope| {
        let starting: Vec<_> = (0..50).map(|_| scope.spawn(connect)).collect();
        starting.into_iter().map(|node| node.join().unwrap().unwrap()).collect()
    });
    assert!(nodes.iter().all(|node| node.snapshot().revision() == made));
    // And all of them hear of the next change, once they follow.
    let next = loop {
        match nodes[0].put(POLICY, "2", Precondition::IfMatch(made), &author()) {
            // The others have all connections for the moment; nothing was written.
            Err(Error::Unavailable { .. }) => thread::yield_now(),
            outcome => break outcome.unwrap(),
        }
    };
    for node in &nodes {
        heard_after(node, next);
    }
}

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let (server, runtime) = (PostgresServer::start(&[]), Runtime::new().unwrap());
    let home = Database { server: &server, runtime: &runtime };
    drop(home.open(Limits::default()));
    server.sql("INSERT INTO tidegate_control.migrations (version) VALUES (99)");
    let place = Place::parse(&server.connection_string()).unwrap();
    let refused = Control::connect(place, NOWHERE.as_ref(), Limits::default(), runtime.handle()).unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused}");
}

/// Says who `control` is; its number.
fn introduced(control: &Control, name: &str) -> u32 {
    let version = "1.2.3".to_owned();
    let api = Some("http://127.0.0.1:4000".to_owned());
    control.introduce(NodeIdentity { name: name.to_owned(), version, started_unix_ms: 7, api });
    control.node()
}

/// The nodes that `control` lists, once they are as `wanted`.
fn listed(control: &Control, wanted: impl Fn(&[KnownNode]) -> bool) -> Vec<KnownNode> {
    let start = Instant::now();
    loop {
        let list = control.nodes();
        if list.is_current && wanted(&list.nodes) {
            return list.nodes;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{list:?}");
        thread::yield_now();
    }
}

pub(crate) fn nodes_are_listed_by_name_and_those_that_are_gone_as_seen_last(home: &Database<'_>) {
    let (a, b) = (home.open(Limits::default()), home.open(Limits::default()));
    let numbers = [introduced(&a, "a"), introduced(&b, "b")];
    let names =
        |nodes: &[KnownNode]| nodes.iter().filter_map(KnownNode::name).map(str::to_owned).collect::<Vec<_>>();
    let both = listed(&a, |nodes| names(nodes) == ["a", "b"]);
    assert_eq!(both.iter().map(|node| node.number).collect::<Vec<_>>(), numbers);
    assert!(both.iter().all(|node| node.is_present && !node.shares_name), "{both:?}");
    let identity = both[1].identity.as_ref().unwrap();
    assert_eq!((identity.version.as_str(), identity.started_unix_ms), ("1.2.3", 7));
    assert_eq!(identity.api.as_deref(), Some("http://127.0.0.1:4000"));

    // What was said first stays.
    introduced(&a, "other");
    drop(b);
    let left = listed(&a, |nodes| nodes.iter().any(|node| !node.is_present));
    assert_eq!(names(&left), ["a", "b"]);
    assert!(left[1].last_seen_unix_ms.is_some_and(|seen| seen > 0) && left[0].is_present, "{left:?}");

    // A node of the same name takes its place, and a second one shares the name.
    let again = home.open(Limits::default());
    introduced(&again, "b");
    let replaced = listed(&a, |nodes| nodes.len() == 2 && nodes.iter().all(|node| node.is_present));
    assert_eq!((names(&replaced), replaced[1].number), (vec!["a".to_owned(), "b".to_owned()], again.node()));
    let second = home.open(Limits::default());
    introduced(&second, "b");
    let shared = listed(&a, |nodes| nodes.iter().filter(|node| node.shares_name).count() == 2);
    assert_eq!(names(&shared), ["a", "b", "b"]);
    let place = Place::parse(&home.server.connection_string()).unwrap();
    let looked = home.runtime.block_on(known_nodes(&place)).unwrap();
    assert_eq!(names(&looked), ["a", "b", "b"]);
}
