//! Several services on one configuration: a consistent set is in force, or the one before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidegate_algorithms::policy::Mistake;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Change, ChangeError, Configuration, Control, Error, Kind, Layers, Limits, Origin, Parts,
    Precondition, PreviewedChange, Revert, Revision, Service, Services, SetAside, Snapshot,
};

const POLICY: Kind = Kind::new("policy");
const ROUTE: Kind = Kind::new("route");

/// Documents by name, and the revision that they are of.
#[derive(Clone, Debug, Default, PartialEq)]
struct Set {
    revision: Revision,
    documents: BTreeMap<String, Value>,
}

type InForce = Arc<Mutex<Arc<Set>>>;

/// A service with policies: `{"limit": n}`. It takes none above 100.
#[derive(Clone, Default)]
struct Policies(InForce);

/// A service with routes: `{"policies": [names]}`.
#[derive(Clone, Default)]
struct Routes(InForce);

fn put_together(kind: Kind, layer: &BTreeMap<String, Value>, stored: &Snapshot) -> Set {
    let mut documents = layer.clone();
    documents.extend(
        stored.documents(kind).map(|it| (it.name.to_string(), serde_json::from_str(&it.body).unwrap())),
    );
    Set { revision: stored.revision(), documents }
}

fn mistake(pointer: String) -> Mistake {
    Mistake { pointer, problem: "is wrong".to_owned(), accepted: "what is right".to_owned() }
}

/// The layer's name for [`Layers`]: each service has a type of its own.
#[derive(Clone, Debug, Default)]
struct Declared<const SERVICE: char>(BTreeMap<String, Value>);

#[derive(Debug)]
struct Part<const SERVICE: char>(Set, Arc<Declared<SERVICE>>);

impl Service for Policies {
    const KINDS: &'static [Kind] = &[POLICY];
    type Layer = Declared<'p'>;
    type Set = Part<'p'>;

    fn assemble(&self, layer: Arc<Self::Layer>, stored: &Snapshot) -> Self::Set {
        Part(put_together(POLICY, &layer.0, stored), layer)
    }

    fn after(&self, last: &Self::Set, stored: &Snapshot) -> Self::Set {
        self.assemble(last.1.clone(), stored)
    }

    fn objections(&self, _last: &Self::Set, next: &Self::Set, _change: Option<&Change>) -> Vec<Mistake> {
        let wrong = next.0.documents.iter().filter(|(_, document)| document["limit"].as_u64() > Some(100));
        wrong.map(|(name, _)| mistake(format!("/policy/{name}/limit"))).collect()
    }

    fn document(&self, set: &Self::Set, _kind: Kind, name: &str) -> Option<Value> {
        set.0.documents.get(name).cloned()
    }

    fn origin(&self, set: &Self::Set, _kind: Kind, name: &str) -> Option<Origin> {
        set.0.documents.contains_key(name).then_some(Origin::File)
    }

    fn names(&self, set: &Self::Set, _kind: Kind) -> Vec<Arc<str>> {
        set.0.documents.keys().map(|name| Arc::from(name.as_str())).collect()
    }

    fn set_aside(&self, _set: &Self::Set) -> Vec<SetAside> {
        Vec::new()
    }

    fn set_aside_count(&self, _set: &Self::Set) -> usize {
        0
    }

    fn announce(&self, _last: Option<&Self::Set>, _next: &Self::Set) {}

    fn put_in_force(&self, set: Arc<Self::Set>, _parts: &Parts) {
        *self.0.lock().unwrap() = Arc::new(set.0.clone());
    }
}

impl Service for Routes {
    const KINDS: &'static [Kind] = &[ROUTE];
    type Layer = Declared<'r'>;
    type Set = Part<'r'>;

    fn assemble(&self, layer: Arc<Self::Layer>, stored: &Snapshot) -> Self::Set {
        Part(put_together(ROUTE, &layer.0, stored), layer)
    }

    fn after(&self, last: &Self::Set, stored: &Snapshot) -> Self::Set {
        self.assemble(last.1.clone(), stored)
    }

    fn objections(&self, _last: &Self::Set, _next: &Self::Set, _change: Option<&Change>) -> Vec<Mistake> {
        Vec::new()
    }

    fn dangling(&self, set: &Self::Set, parts: &Parts) -> Vec<Mistake> {
        let missing = |(route, document): (&String, &Value)| {
            let names = document["policies"].as_array().cloned().unwrap_or_default();
            let mut missing =
                names.into_iter().filter(|name| !parts.has(POLICY, name.as_str().unwrap_or_default()));
            missing
                .next()
                .map(|name| mistake(format!("/route/{route}/policies/{}", name.as_str().unwrap_or_default())))
        };
        set.0.documents.iter().filter_map(missing).collect()
    }

    fn document(&self, set: &Self::Set, _kind: Kind, name: &str) -> Option<Value> {
        set.0.documents.get(name).cloned()
    }

    fn origin(&self, set: &Self::Set, _kind: Kind, name: &str) -> Option<Origin> {
        set.0.documents.contains_key(name).then_some(Origin::File)
    }

    fn names(&self, set: &Self::Set, _kind: Kind) -> Vec<Arc<str>> {
        set.0.documents.keys().map(|name| Arc::from(name.as_str())).collect()
    }

    fn set_aside(&self, _set: &Self::Set) -> Vec<SetAside> {
        Vec::new()
    }

    fn set_aside_count(&self, _set: &Self::Set) -> usize {
        0
    }

    fn announce(&self, _last: Option<&Self::Set>, _next: &Self::Set) {}

    fn put_in_force(&self, set: Arc<Self::Set>, _parts: &Parts) {
        *self.0.lock().unwrap() = Arc::new(set.0.clone());
    }
}

struct Both {
    _data: tempfile::TempDir,
    policies: Policies,
    routes: Routes,
    configuration: Configuration,
}

fn start() -> Both {
    start_with(Limits::default())
}

fn start_with(limits: Limits) -> Both {
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), limits).unwrap();
    let (policies, routes) = (Policies::default(), Routes::default());
    let services = Services::default().with(policies.clone()).with(routes.clone());
    let configuration = Configuration::start(control, services, &Layers::default());
    Both { _data: data, policies, routes, configuration }
}

impl Both {
    async fn change(&self, change: Change) -> Result<Revision, Vec<String>> {
        let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
        self.configuration.change(change, author).await.map_err(|error| match error {
            ChangeError::Mistakes(mistakes) => mistakes.into_iter().map(|it| it.pointer).collect(),
            other => panic!("{other}"),
        })
    }

    async fn put(&self, kind: Kind, name: &str, body: Value) -> Result<Revision, Vec<String>> {
        self.change(Change::put(kind, name, body.to_string())).await
    }

    fn in_force(&self) -> [Arc<Set>; 2] {
        [&self.policies.0, &self.routes.0].map(|set| set.lock().unwrap().clone())
    }
}

#[tokio::test]
async fn a_change_that_another_service_cannot_take_changes_neither() {
    let both = start();
    let route = json!({"policies": ["api"]});
    assert_eq!(both.put(ROUTE, "r", route.clone()).await.unwrap_err(), ["/route/r/policies/api"]);
    assert_eq!(both.put(POLICY, "api", json!({"limit": 5})).await, Ok(Revision(1)));
    assert_eq!(both.put(ROUTE, "r", route).await, Ok(Revision(2)));
    let before = both.in_force();
    assert_eq!(before.each_ref().map(|set| set.revision), [Revision(2); 2], "one state for all");
    let deleted = both.change(Change::delete(POLICY, "api")).await;
    assert_eq!(deleted.unwrap_err(), ["/route/r/policies/api"]);
    assert_eq!(both.in_force(), before);
    both.change(Change::delete(ROUTE, "r")).await.unwrap();
    both.change(Change::delete(POLICY, "api")).await.unwrap();
    assert!(both.in_force().iter().all(|set| set.documents.is_empty() && set.revision == Revision(4)));
}

#[tokio::test]
async fn a_file_is_in_force_for_every_service_or_for_none() {
    let both = start();
    let layers = |limit: u64, policy: &str| {
        let policies = BTreeMap::from([("api".to_owned(), json!({ "limit": limit }))]);
        let routes = BTreeMap::from([("r".to_owned(), json!({ "policies": [policy] }))]);
        Layers::default().with::<Policies>(Declared(policies)).with::<Routes>(Declared(routes))
    };
    both.configuration.replace_file(layers(5, "api")).await.unwrap();
    let before = both.in_force();
    assert!(before.iter().all(|set| set.documents.len() == 1));
    for (limit, policy, pointer) in
        [(500, "api", "/policy/api/limit"), (6, "other", "/route/r/policies/other")]
    {
        let refused = both.configuration.replace_file(layers(limit, policy)).await.unwrap_err();
        assert_eq!(refused[0].pointer, pointer);
        assert_eq!(both.in_force(), before);
    }
    // What is stored goes on top of the file, and goes with it too.
    both.put(POLICY, "stored", json!({"limit": 1})).await.unwrap();
    both.configuration.replace_file(layers(6, "stored")).await.unwrap();
    assert_eq!(both.in_force()[0].documents.len(), 2);
}

#[tokio::test]
async fn documents_of_a_kind_that_nobody_has_are_carried() {
    let both = start();
    let unknown = Kind::new("from_another_version");
    both.put(unknown, "x", json!({"a": 1})).await.unwrap();
    both.put(POLICY, "api", json!({"limit": 5})).await.unwrap();
    let Both { _data: data, configuration, .. } = both;
    drop(configuration);
    // The worker that answered may still be about to let go of the directory.
    let again = loop {
        match Control::open(data.path(), Limits::default()) {
            Err(Error::InUse { .. }) => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(&*again.get(unknown, "x").unwrap().body, "{\"a\":1}");
    assert_eq!(again.snapshot().all().count(), 2);
}

#[tokio::test]
async fn several_changes_are_in_force_together_or_none_is_and_each_has_its_revision() {
    let both = start();
    both.put(ROUTE, "old", json!({"policies": []})).await.unwrap();
    let together = async |changes: Vec<Change>| {
        let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
        both.configuration.edit_all(author, move |_| Ok(changes.clone())).await
    };
    let put = |kind, name, body: Value| Change::put(kind, name, body.to_string());
    // The route comes before the policy that it names: what counts is what all of them make.
    let good = vec![
        put(ROUTE, "r", json!({"policies": ["api"]})),
        put(POLICY, "api", json!({"limit": 5})),
        Change::delete(ROUTE, "old"),
    ];
    assert_eq!(together(good).await.unwrap(), Revision(4));
    let rows = both.configuration.control().audit(Revision(0), 10).unwrap();
    assert_eq!(rows.iter().map(|row| row.revision.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let before = both.in_force();
    assert_eq!(before.each_ref().map(|set| set.documents.len()), [1, 1]);

    let more = || put(POLICY, "more", json!({"limit": 7}));
    for (bad, says) in [
        (put(POLICY, "api", json!({"limit": 500})), "1 mistake"),
        (Change::delete(ROUTE, "nothing"), "there is no route"),
        (put(POLICY, "api", json!({"limit": 6})).when(Precondition::IfMatch(Revision(2))), "revision 3"),
    ] {
        let error = together(vec![more(), bad]).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(both.in_force(), before);
        assert_eq!(both.configuration.parts().documents().revision(), Revision(4));
    }
    assert_eq!(together(Vec::new()).await.unwrap(), Revision(4), "nothing to change");
    assert_eq!(both.configuration.stats().stored, 4);
}

impl Both {
    async fn revert(&self, to: u64, expected: Option<u64>) -> Result<(u64, Vec<String>), ChangeError> {
        let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
        let (to, expected) = (Revision(to), expected.map(Revision));
        let reverted = self.configuration.revert(Revert { to, expected, stays: &[KEPT] }, author).await?;
        let said = |(kind, name, action): &(Kind, Arc<str>, _)| format!("{action:?} {kind} {name}");
        Ok((reverted.revision.0, reverted.changes.iter().map(said).collect()))
    }
}

const KEPT: Kind = Kind::new("kept");

const TO_2: Revert = Revert { to: Revision(2), expected: None, stays: &[KEPT] };

#[tokio::test]
async fn an_earlier_revision_is_in_force_again_by_changes_that_lead_forward() {
    let both = start();
    both.put(POLICY, "api", json!({"limit": 5})).await.unwrap();
    both.put(ROUTE, "r", json!({"policies": ["api"]})).await.unwrap();
    let then = both.in_force();
    both.put(POLICY, "api", json!({"limit": 6})).await.unwrap();
    both.put(POLICY, "api", json!({"limit": 7})).await.unwrap();
    both.put(POLICY, "new", json!({"limit": 1})).await.unwrap();
    both.put(KEPT, "k", json!({})).await.unwrap();
    both.change(Change::delete(ROUTE, "r")).await.unwrap();

    let overtaken = both.revert(2, Some(6)).await.unwrap_err();
    assert!(matches!(overtaken, ChangeError::Overtaken { newest: Revision(7), .. }), "{overtaken}");
    let future = both.revert(8, None).await.unwrap_err();
    assert!(matches!(future, ChangeError::NotThere { .. }), "{future}");
    let preview = both.configuration.preview(TO_2).await.unwrap();
    let would = |it: &PreviewedChange| (it.kind, it.name.to_string(), it.now.is_some(), it.then.is_some());
    let would: Vec<_> = preview.changes.iter().map(would).collect();
    let [new, api, r] = ["new", "api", "r"].map(str::to_owned);
    assert_eq!(would, [(POLICY, new, true, false), (POLICY, api, true, true), (ROUTE, r, false, true)]);
    assert_eq!(preview.revision, Revision(7));
    let (revision, done) = both.revert(2, Some(7)).await.unwrap();
    assert_eq!(done, ["Delete policy new", "Put policy api", "Put route r"]);
    assert_eq!(
        (revision, both.in_force().map(|set| set.documents.clone())),
        (10, then.map(|set| set.documents.clone()))
    );
    assert!(both.configuration.control().get(KEPT, "k").is_some(), "a kind that the caller keeps");
    assert_eq!(both.revert(2, None).await.unwrap(), (10, vec![]), "it is so already");
    // Going back is a change like others, and can be gone back from.
    let (_, done) = both.revert(7, None).await.unwrap();
    assert_eq!(done, ["Delete route r", "Put policy api", "Put policy new"]);
    let (_, done) = both.revert(0, None).await.unwrap();
    assert_eq!(done, ["Delete policy api", "Delete policy new"]);
    assert_eq!(both.configuration.control().audit(Revision(0), 100).unwrap().len(), 15);
}

#[tokio::test]
async fn a_revision_that_does_not_go_with_the_file_any_more_or_is_forgotten_changes_nothing() {
    let both = start_with(Limits { audit_rows: 3, ..Limits::default() });
    let layers = |limit: u64| {
        let policies = BTreeMap::from([("file".to_owned(), json!({ "limit": limit }))]);
        Layers::default().with::<Policies>(Declared(policies))
    };
    both.configuration.replace_file(layers(5)).await.unwrap();
    both.put(ROUTE, "r", json!({"policies": ["file"]})).await.unwrap();
    both.put(ROUTE, "r", json!({"policies": []})).await.unwrap();
    both.configuration.replace_file(Layers::default()).await.unwrap();
    let before = both.in_force();
    let refused = both.revert(1, None).await.unwrap_err();
    assert!(
        matches!(&refused, ChangeError::Mistakes(them) if them[0].pointer == "/route/r/policies/file"),
        "{refused}"
    );
    let previewed = both.configuration.preview(Revert { to: Revision(1), ..TO_2 }).await.unwrap_err();
    assert_eq!(previewed.to_string(), refused.to_string(), "a preview says the same");
    for limit in 1..=3 {
        both.put(POLICY, "api", json!({ "limit": limit })).await.unwrap();
    }
    let forgotten = both.revert(1, None).await.unwrap_err();
    assert!(matches!(forgotten, ChangeError::Pruned { oldest: Revision(2), .. }), "{forgotten}");
    assert_eq!(both.in_force()[1].documents, before[1].documents);
    assert_eq!(both.revert(2, None).await.unwrap().1, ["Delete policy api"]);
}

#[tokio::test]
async fn what_is_decided_in_the_same_transaction_goes_back_too() {
    let both = start();
    both.put(POLICY, "api", json!({"limit": 5})).await.unwrap();
    let author = || Author { actor: "test".to_owned(), at: Wall(1), from: None };
    // Whatever is put together of these, each is asked for before the next: the last one sees all.
    let put = |limit: u64| Change::put(POLICY, "api", json!({ "limit": limit }).to_string());
    let revert = Revert { to: Revision(1), expected: None, stays: &[] };
    for limit in 10..40 {
        let (one, two, reverted) = tokio::join!(
            both.configuration.change(put(limit), author()),
            both.configuration.change(Change::put(POLICY, "more", "{}"), author()),
            both.configuration.revert(revert, author()),
        );
        one.unwrap();
        two.unwrap();
        assert_eq!(reverted.unwrap().changes.len(), 2, "{limit}");
        assert_eq!(both.in_force()[0].documents, BTreeMap::from([("api".to_owned(), json!({"limit": 5}))]));
    }
}
