//! Changes, preconditions, bounds, the audit log and watchers, on a real database.

use std::sync::{Arc, Barrier};
use std::thread;

use serde_json::{Value, json};
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Action, Author, Change, Control, Error, FILE, Kind, Limits, MAX_AUDIT_PAGE, MAX_CHANGES, Precondition,
    Revision,
};

use crate::contract::Home;

fn author(at: u64) -> Author {
    Author { actor: "alice".to_owned(), at: Wall(at), from: None }
}

fn open(home: &impl Home) -> Control {
    home.open(Limits::default())
}

const POLICY: (Kind, &str) = (Kind::new("policy"), "api");

pub(crate) fn a_change_is_there_after_a_restart(home: &impl Home) {
    {
        let control = open(home);
        assert_eq!(control.snapshot().revision(), Revision(0));
        assert_eq!(control.put(POLICY, "{\"a\": 1}", Precondition::None, &author(7)).unwrap(), Revision(1));
        assert_eq!(control.put(POLICY, "2", Precondition::None, &author(8)).unwrap(), Revision(2));
        control
            .put((Kind::new("override"), "nul\0 and \u{fc}"), "3", Precondition::None, &author(u64::MAX))
            .unwrap();
        assert_eq!(control.delete(POLICY, Precondition::None, &author(9)).unwrap(), Revision(4));
    }
    let control = open(home);
    assert_eq!(control.snapshot().revision(), Revision(4));
    assert_eq!(control.get(POLICY.0, POLICY.1), None);
    let kept = control.get(Kind::new("override"), "nul\0 and \u{fc}").unwrap();
    assert_eq!((&*kept.body, kept.revision), ("3", Revision(3)));

    let rows = control.audit(Revision(0), 10).unwrap();
    let told: Vec<_> =
        rows.iter().map(|r| (r.revision.0, r.action, r.before.as_deref(), r.after.as_deref())).collect();
    assert_eq!(
        told,
        [
            (1, Action::Put, None, Some("{\"a\": 1}")),
            (2, Action::Put, Some("{\"a\": 1}"), Some("2")),
            (3, Action::Put, None, Some("3")),
            (4, Action::Delete, Some("2"), None),
        ]
    );
    assert_eq!(rows[0].author, author(7));
    assert_eq!(rows[2].author.at, Wall(i64::MAX as u64), "a time that the database cannot hold is clamped");
    assert_eq!(control.audit(Revision(2), 1).unwrap(), rows[2..3]);
    assert_eq!(control.audit(Revision(u64::MAX), 1).unwrap(), []);
}

pub(crate) fn fault_20_two_admins_edit(home: &impl Home) {
    let control = open(home);
    let start = control.put(POLICY, "0", Precondition::IfNoneMatch, &author(1)).unwrap();
    let gate = Barrier::new(2);
    let edit = |body: &'static str| {
        gate.wait();
        control.put(POLICY, body, Precondition::IfMatch(start), &author(2))
    };
    let (mine, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| edit("2"));
        (edit("1"), theirs.join().unwrap())
    });
    let (winner, loser, body) = if mine.is_ok() { (mine, theirs, "1") } else { (theirs, mine, "2") };
    let winner = winner.unwrap();
    let loser = loser.unwrap_err();
    assert!(matches!(loser, Error::PreconditionFailed { found, .. } if found == Some(winner)), "{loser}");
    assert_eq!(&*control.get(POLICY.0, POLICY.1).unwrap().body, body);
    assert_eq!(control.audit(Revision(0), 10).unwrap().len(), 2, "the refused edit left no trace");
}

pub(crate) fn a_precondition_that_fails_says_what_is_there(home: &impl Home) {
    let control = open(home);
    let message = |result: Result<Revision, Error>| result.unwrap_err().to_string();
    let put = |precondition| control.put(POLICY, "1", precondition, &author(1));
    assert_eq!(
        message(put(Precondition::IfMatch(Revision(3)))),
        "policy \"api\" is absent, but the change expects revision 3"
    );
    put(Precondition::IfNoneMatch).unwrap();
    assert_eq!(
        message(put(Precondition::IfNoneMatch)),
        "policy \"api\" is at revision 1, but the change expects its absence"
    );
    assert_eq!(
        message(control.delete(POLICY, Precondition::IfMatch(Revision(9)), &author(1))),
        "policy \"api\" is at revision 1, but the change expects revision 9"
    );
    control.delete(POLICY, Precondition::IfMatch(Revision(1)), &author(1)).unwrap();
    assert_eq!(message(control.delete(POLICY, Precondition::None, &author(1))), "there is no policy \"api\"");
}

pub(crate) fn several_changes_are_made_together_or_not_at_all(home: &impl Home) {
    let control = open(home);
    let good = [Change::put(Kind::new("policy"), "a", "1"), Change::put(Kind::new("policy"), "b", "1")];
    assert_eq!(control.apply(&good, &author(1)).unwrap(), Revision(2));
    let bad = [
        Change::put(Kind::new("policy"), "a", "2"),
        Change::delete(Kind::new("policy"), "b"),
        Change::put(Kind::new("policy"), "b", "2").when(Precondition::IfMatch(Revision(2))),
    ];
    let refused = control.apply(&bad, &author(2)).unwrap_err();
    assert!(matches!(refused, Error::PreconditionFailed { found: None, .. }), "{refused}");
    assert_eq!(&*control.get(Kind::new("policy"), "a").unwrap().body, "1");
    assert_eq!(control.apply(&[], &author(3)).unwrap(), Revision(2));

    let many = vec![Change::put(Kind::new("policy"), "a", "3"); MAX_CHANGES + 1];
    assert!(matches!(control.apply(&many, &author(4)), Err(Error::TooManyChanges { .. })));
    assert_eq!(control.apply(&many[1..], &author(5)).unwrap(), Revision(2 + MAX_CHANGES as u64));
    assert_eq!(control.audit(Revision(0), usize::MAX).unwrap().len(), MAX_AUDIT_PAGE);

    for actor in [String::new(), "x".repeat(257)] {
        let anonymous = Author { actor, at: Wall(1), from: None };
        assert!(matches!(control.apply(&good, &anonymous), Err(Error::InvalidActor { .. })));
    }
}

pub(crate) fn old_audit_rows_are_pruned_and_counted(home: &impl Home) {
    let limits = Limits { audit_rows: 3, ..Limits::default() };
    let control = home.open(limits);
    for at in 1..=10 {
        control.put(POLICY, "1", Precondition::None, &author(at)).unwrap();
    }
    let rows = control.audit(Revision(0), 10).unwrap();
    assert_eq!(rows.iter().map(|row| row.revision.0).collect::<Vec<_>>(), [8, 9, 10]);
    let usage = control.usage().unwrap();
    assert_eq!((usage.audit_rows, usage.audit_pruned, usage.documents, usage.bytes), (3, 7, 1, 4));
    drop(control);
    let reopened = home.open(limits);
    assert_eq!(reopened.put(POLICY, "1", Precondition::None, &author(11)).unwrap(), Revision(11));
}

pub(crate) fn a_change_says_from_where_it_came(home: &impl Home) {
    let control = home.open(Limits { audit_rows: 2, ..Limits::default() });
    let from = |place: &str| Author { from: Some(place.into()), ..author(1) };
    control.put(POLICY, "1", Precondition::None, &from("192.0.2.1")).unwrap();
    control.put(POLICY, "2", Precondition::None, &author(1)).unwrap();
    control.put(POLICY, "3", Precondition::None, &from("2001:db8::1")).unwrap();
    let places = |control: &Control| -> Vec<_> {
        let rows = control.audit(Revision(0), 10).unwrap();
        rows.into_iter().map(|row| (row.revision.0, row.author.from)).collect()
    };
    assert_eq!(places(&control), [(2, None), (3, Some("2001:db8::1".into()))]);
    drop(control);
    assert_eq!(places(&open(home)).len(), 2);
}

pub(crate) fn a_change_of_the_file_is_a_row_and_no_document(home: &impl Home) {
    let control = open(home);
    let (before, after) = (json!({"policy": {"a": {"limit": 1}}}), json!({"policy": {"a": {"limit": 2}}}));
    let change = Change::record_file("/etc/tidegate.toml", &before, &after);
    assert_eq!(control.apply(&[change], &author(1)).unwrap(), Revision(1));
    assert!(control.snapshot().is_empty());
    let rows = control.audit(Revision(0), 10).unwrap();
    assert_eq!((rows[0].kind, &*rows[0].name, rows[0].action), (FILE, "/etc/tidegate.toml", Action::Put));
    let value = |text: &Option<String>| serde_json::from_str::<Value>(text.as_ref().unwrap()).unwrap();
    assert_eq!((value(&rows[0].before), value(&rows[0].after)), (before, after));
    control.put(POLICY, "1", Precondition::IfNoneMatch, &author(2)).unwrap();
    drop(control);
    assert_eq!(open(home).snapshot().len(), 1);
}

pub(crate) fn the_latest_use_of_a_document_is_kept_for_as_long_as_it_is_there(home: &impl Home) {
    let (kind, control) = (POLICY.0, open(home));
    let used = |name: &str, at: u64| (name.to_owned(), at);
    for name in ["a", "b\0"] {
        control.put((kind, name), "1", Precondition::None, &author(1)).unwrap();
    }
    let revision = control.snapshot().revision();
    control.keep_uses(kind, &[used("a", 7), used("b\0", 9), used("nowhere", 9)]).unwrap();
    control.keep_uses(kind, &[used("a", 5), used("b\0", 11)]).unwrap();
    assert_eq!(control.snapshot().revision(), revision, "a use is no change");
    drop(control);
    let control = open(home);
    let mut kept = control.uses(kind, 0).unwrap();
    kept.sort();
    assert_eq!(kept, [used("a", 7), used("b\0", 11)]);
    assert_eq!(control.uses(kind, 8).unwrap(), [used("b\0", 11)]);
    assert_eq!(control.uses(Kind::new("override"), 0).unwrap(), []);
    control.delete((kind, "b\0"), Precondition::None, &author(1)).unwrap();
    control.keep_uses(kind, &[]).unwrap();
    assert_eq!(control.uses(kind, 0).unwrap(), [used("a", 7)]);
}

pub(crate) fn watchers_see_each_newest_revision(home: &impl Home) {
    let control = open(home);
    tokio::runtime::Runtime::new().unwrap().block_on(watched(control));
}

async fn watched(control: Control) {
    let mut watcher = control.watch();
    assert_eq!(watcher.borrow_and_update().revision(), Revision(0));
    let put = |body: &'static str| control.run(move |c| c.put(POLICY, body, Precondition::None, &author(1)));
    put("1").await.unwrap();
    watcher.changed().await.unwrap();
    let first = watcher.borrow_and_update().clone();
    assert_eq!((first.revision(), &*first.get(POLICY.0, POLICY.1).unwrap().body), (Revision(1), "1"));
    put("not JSON").await.unwrap_err();
    assert!(!watcher.has_changed().unwrap(), "a refused change wakes nobody");
    put("2").await.unwrap();
    put("3").await.unwrap();
    watcher.changed().await.unwrap();
    assert_eq!(watcher.borrow_and_update().revision(), Revision(3), "a slow watcher skips to the newest");
    assert_eq!(&*first.get(POLICY.0, POLICY.1).unwrap().body, "1", "an old snapshot does not move");
    assert!(Arc::ptr_eq(&control.snapshot(), &*watcher.borrow()));
}
