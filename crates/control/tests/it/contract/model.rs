//! Random operations against a plain map, with the database closed and reopened at random.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tidegate_algorithms::time::Wall;
use tidegate_control::{Author, Change, Control, Error, Kind, Limits, Precondition, Revision};

use crate::contract::Home;

#[derive(Clone, Debug)]
enum Operation {
    Apply(Vec<Change>),
    Reopen,
}

type Model = BTreeMap<(Kind, String), (String, Revision)>;

fn change() -> impl Strategy<Value = Change> {
    let kind = prop::sample::select(["policy", "override", "route"].map(Kind::new).to_vec());
    let name = prop_oneof![8 => "[ab]", 1 => ".{0,3}", 1 => Just("n".repeat(513))];
    let body = prop_oneof![6 => "[0-9]".prop_map(Some), 3 => Just(None), 1 => ".{0,40}".prop_map(Some)];
    let precondition = prop_oneof![
        4 => Just(Precondition::None),
        1 => Just(Precondition::IfNoneMatch),
        2 => (0..30_u64).prop_map(|revision| Precondition::IfMatch(Revision(revision))),
    ];
    (kind, name, body, precondition).prop_map(|(kind, name, body, precondition)| Change {
        removed: None,
        kind,
        name: name.into(),
        body: body.map(Into::into),
        precondition,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![9 => vec(change(), 0..4).prop_map(Operation::Apply), 1 => Just(Operation::Reopen)]
}

/// What the change should do, written as naively as possible.
fn expect(
    model: &mut Model,
    revision: &mut Revision,
    change: &Change,
    limits: &Limits,
) -> Result<(), &'static str> {
    let key = (change.kind, change.name.to_string());
    let found = model.get(&key).map(|(_, revision)| *revision);
    let json = |body: &str| serde_json::from_str::<serde_json::Value>(body).is_ok();
    let acceptable = change.body.as_deref().is_none_or(|body| body.len() <= limits.body_bytes && json(body));
    if key.1.is_empty() || key.1.len() > 512 || !acceptable {
        return Err("invalid");
    }
    match change.precondition {
        Precondition::IfMatch(expected) if found != Some(expected) => return Err("precondition"),
        Precondition::IfNoneMatch if found.is_some() => return Err("precondition"),
        _ => {}
    }
    let next = Revision(revision.0 + 1);
    match &change.body {
        None if found.is_none() => return Err("missing"),
        None => drop(model.remove(&key)),
        Some(_) if found.is_none() && model.len() >= limits.documents => return Err("full"),
        Some(body) => drop(model.insert(key, (body.to_string(), next))),
    }
    *revision = next;
    Ok(())
}

fn word(error: &Error) -> &'static str {
    match error {
        Error::Invalid { .. } => "invalid",
        Error::PreconditionFailed { .. } => "precondition",
        Error::NotFound { .. } => "missing",
        Error::Full { .. } => "full",
        _ => "other",
    }
}

fn contents(control: &Control) -> Model {
    let snapshot = control.snapshot();
    let entry =
        |d: &tidegate_control::Document| ((d.kind, d.name.to_string()), (d.body.to_string(), d.revision));
    snapshot.all().map(entry).collect()
}

/// Random histories on `home`, which starts empty for each.
pub(crate) fn the_store_agrees_with_a_map(home: &impl Home, cases: u32) {
    let settings = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(settings);
    let agreed = runner.run(&vec(operation(), 1..40), |operations| {
        home.clear();
        agrees(home, operations)
    });
    agreed.unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

fn agrees(home: &impl Home, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let limits = Limits { documents: 5, body_bytes: 24, ..Limits::default() };
    let author = Author { actor: "model".to_owned(), at: Wall(1), from: None };
    let mut control = home.open(limits);
    let (mut model, mut revision) = (Model::new(), Revision(0));
    for operation in operations {
        match operation {
            Operation::Reopen => {
                drop(control);
                control = home.open(limits);
            }
            Operation::Apply(changes) => {
                let (mut next, mut newest) = (model.clone(), revision);
                let expected =
                    changes.iter().try_for_each(|change| expect(&mut next, &mut newest, change, &limits));
                let got = control.apply(&changes, &author);
                prop_assert_eq!(got.as_ref().map(|_| ()).map_err(word), expected, "{:?}", got);
                if expected.is_ok() {
                    (model, revision) = (next, newest);
                }
            }
        }
        prop_assert_eq!(control.snapshot().revision(), revision);
        prop_assert_eq!(contents(&control), model.clone());
    }
    let audited: u64 = control.audit(Revision(0), 1000).unwrap().len() as u64;
    prop_assert_eq!(audited, revision.0, "one audit row per revision");
    Ok(())
}
