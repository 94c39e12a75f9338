//! Several services on one configuration: a consistent set is in force, or the one before.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidegate_algorithms::policy::Mistake;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Change, ChangeError, Configuration, Control, Error, Kind, Layers, Limits, Origin, Parts,
    Revision, Service, Services, SetAside, Snapshot,
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
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let (policies, routes) = (Policies::default(), Routes::default());
    let services = Services::default().with(policies.clone()).with(routes.clone());
    let configuration = Configuration::start(control, services, &Layers::default());
    Both { _data: data, policies, routes, configuration }
}

impl Both {
    async fn change(&self, change: Change) -> Result<Revision, Vec<String>> {
        let author = Author { actor: "test".to_owned(), at: Wall(1) };
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
