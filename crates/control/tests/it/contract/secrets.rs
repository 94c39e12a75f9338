//! What nodes share and nobody is shown.

use tidegate_control::{Error, Limits, MAX_SECRET_BYTES, Revision};

use crate::contract::Home;

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nx\n";

pub(crate) fn a_secret_is_put_in_the_place_of_the_version_that_is_known(home: &impl Home) {
    let control = home.open(Limits::default());
    assert!(control.secrets().unwrap().is_empty());
    assert_eq!(control.put_secret("b", KEY, 0).unwrap(), 1);
    assert_eq!(control.put_secret("a", "1", 0).unwrap(), 1);
    assert_eq!(control.put_secret("b", "2", 1).unwrap(), 2);
    for stale in [0, 1, 3] {
        let refused = control.put_secret("b", "3", stale);
        assert!(matches!(refused, Err(Error::Moved { newest: Revision(2) })), "{stale}: {refused:?}");
    }
    let refused = control.put_secret("c", "1", 1);
    assert!(matches!(refused, Err(Error::Moved { newest: Revision(0) })), "{refused:?}");
    let long = "x".repeat(MAX_SECRET_BYTES + 1);
    assert!(matches!(control.put_secret("c", &long, 0), Err(Error::Full { .. })));
    control.put_secret("c", &long[1..], 0).unwrap();
    drop(control);
    let control = home.open(Limits::default());
    let found = control.secrets().unwrap();
    let names: Vec<_> = found.iter().map(|one| (&*one.name, one.version, one.body.len())).collect();
    assert_eq!(names, [("a", 1, 1), ("b", 2, 1), ("c", 1, MAX_SECRET_BYTES)]);
}

pub(crate) fn a_secret_is_in_no_document_and_no_audit_row(home: &impl Home) {
    let control = home.open(Limits::default());
    let version = control.put_secret("key", KEY, 0).unwrap();
    assert_eq!((control.snapshot().revision(), control.snapshot().len()), (Revision(0), 0));
    assert!(control.audit(Revision(0), 10).unwrap().is_empty());
    let shown = format!("{:?}", control.secrets().unwrap());
    assert!(
        shown.contains("key") && shown.contains(&version.to_string()) && !shown.contains("BEGIN"),
        "{shown}"
    );
}
