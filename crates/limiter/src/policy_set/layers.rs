//! How a set is made: layers put on one another, and the next set from the last one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate_algorithms::policy::{MAX_MISTAKES, MatchIndex, Mistake, Policy, Quota, parse, parse_quota};
use tidegate_control::{Change, Document, Kind, Origin, Snapshot};

use super::{
    Base, FileLayer, InForce, MAX_POLICIES, OVERRIDE, Overrides, POLICY, PolicyCandidate, PolicySet,
    Rejection, Rejections,
};
use crate::tally::Tallies;

impl PolicySet {
    /// Assembles the set of a file's layer and the stored documents. Its policies are counted by
    /// `tallies`, and appear there once the set is in force.
    #[must_use]
    pub fn assemble(file: Arc<FileLayer>, documents: Snapshot, tallies: &Tallies) -> Self {
        let mut set = Self::layered(file, documents, tallies);
        set.candidate = PolicyCandidate::beside(&set, None, &BTreeSet::new(), tallies);
        set
    }

    /// The same with nothing judged beside it.
    pub(super) fn layered(file: Arc<FileLayer>, documents: Snapshot, tallies: &Tallies) -> Self {
        let mut set_aside = Rejections::new_sync();
        let base = Base::assemble(file, &documents, tallies, &mut set_aside);
        let (base, overrides) = (Arc::new(base), Overrides::new_sync());
        let mut set = Self { documents, base, overrides, set_aside, candidate: None };
        set.resolve_all_overrides();
        set
    }

    /// This set, made again from `documents`. If it is known which have changed, and only overrides have, it looks at
    /// these alone. Documents of other services are left alone.
    pub(crate) fn after(&self, documents: &Snapshot, tallies: &Tallies) -> Self {
        let changes = documents.changes_since(&self.documents);
        let only_overrides = changes.map(|changes| {
            let own = changes.filter(|(kind, _)| [POLICY, OVERRIDE].contains(kind));
            let clients = own.map(|(kind, name)| (kind == OVERRIDE).then_some(name));
            clients.collect::<Option<BTreeSet<_>>>()
        });
        let Some(Some(clients)) = only_overrides else {
            return Self::assemble(self.base.file.clone(), documents.clone(), tallies);
        };
        let mut next = self.with_clients(documents.clone(), &clients);
        next.candidate = PolicyCandidate::beside(&next, self.candidate.as_ref(), &clients, tallies);
        next
    }

    /// This set with `documents`, in which only what these clients have of their own has changed.
    pub(super) fn with_clients(&self, documents: Snapshot, clients: &BTreeSet<&Arc<str>>) -> Self {
        let mut next = Self { documents, ..self.clone() };
        for client in clients {
            next.resolve_overrides_of(client);
        }
        next
    }

    /// What keeps `next`, which `change` would make of this set, from being put in force: what it would
    /// set aside of the changed document, unless it was there before and is left as it was; and what
    /// fits no longer for its sake. An override may lose its policy: it counts again when that is back.
    pub(crate) fn objections(&self, next: &Self, change: &Change) -> Vec<Mistake> {
        let changed = (change.kind, change.name.clone());
        let before = self.documents.get(change.kind, &change.name).and_then(numbers_by_policy);
        let after = next.documents.get(change.kind, &change.name).and_then(numbers_by_policy);
        let known = self.set_aside.get(&changed).map(|rejections| &**rejections).unwrap_or_default();
        let is_left_as_it_was = |rejection: &&Rejection| {
            let Some(policy) = &rejection.policy else { return false };
            let numbers = |document: &Option<Map<String, Value>>| document.as_ref()?.get(policy).cloned();
            match numbers(&after) {
                Some(after) => numbers(&before) == Some(after),
                // It stands in the file.
                None => known.contains(rejection),
            }
        };
        let of_document = next.set_aside.get(&changed).filter(|_| change.body.is_some());
        let of_document = of_document.map(|rejections| &**rejections).unwrap_or_default().iter();
        let of_document = of_document.filter(|rejection| !is_left_as_it_was(rejection));
        let mut mistakes: Vec<_> = of_document.flat_map(|rejection| rejection.mistakes.clone()).collect();
        if change.kind == POLICY {
            mistakes.extend(self.unfit_in(next, Some(&changed)));
        }
        mistakes.truncate(MAX_MISTAKES);
        mistakes
    }

    /// What is in force here and fits no longer in `next`, leaving one document out.
    pub(crate) fn unfit_in(&self, next: &Self, except: Option<&(Kind, Arc<str>)>) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for (document, rejections) in next.set_aside.iter().filter(|(document, _)| Some(*document) != except)
        {
            let known = self.set_aside.get(document).map(|rejections| &**rejections).unwrap_or_default();
            let new = rejections.iter().filter(|it| !it.is_without_policy && !known.contains(it));
            mistakes.extend(new.flat_map(|rejection| rejection.mistakes.clone()));
            if mistakes.len() >= MAX_MISTAKES {
                break;
            }
        }
        mistakes
    }

    fn resolve_all_overrides(&mut self) {
        let base = self.base.clone();
        let stored = self.documents.clone();
        let only_declared = base.declared.keys().filter(|client| stored.get(OVERRIDE, client).is_none());
        for client in only_declared.map(String::as_str) {
            self.resolve(client, None);
        }
        for document in stored.documents(OVERRIDE) {
            self.resolve(&document.name, Some(document));
        }
    }

    fn resolve_overrides_of(&mut self, client: &str) {
        let stored = self.documents.get(OVERRIDE, client).cloned();
        self.resolve(client, stored.as_ref());
    }

    /// Works out the numbers of one client.
    fn resolve(&mut self, client: &str, stored: Option<&Document>) {
        let Resolved { quotas, rejections } = self.base.resolve(client, stored);
        if quotas.is_empty() {
            self.overrides.remove_mut(client.as_bytes());
        } else {
            self.overrides.insert_mut(client.as_bytes().into(), quotas.into());
        }
        let document = (OVERRIDE, Arc::from(client));
        if !rejections.is_empty() {
            self.set_aside.insert_mut(document, rejections.into());
        } else if !self.set_aside.is_empty() {
            self.set_aside.remove_mut(&document);
        }
    }
}

/// A client's numbers, and what of its documents cannot be in force.
struct Resolved {
    quotas: Vec<(usize, Quota)>,
    rejections: Vec<Rejection>,
}

impl Base {
    fn assemble(
        file: Arc<FileLayer>,
        documents: &Snapshot,
        tallies: &Tallies,
        set_aside: &mut Rejections,
    ) -> Self {
        let mut policies: Vec<(Policy, Origin)> =
            file.policies.iter().map(|policy| (policy.clone(), Origin::File)).collect();
        if policies.is_empty() {
            policies.push((Policy::default_per_client(), Origin::BuiltIn));
        }
        let mut places: HashMap<Arc<str>, usize> =
            policies.iter().enumerate().map(|(place, (policy, _))| (policy.name.clone(), place)).collect();
        for document in documents.documents(POLICY) {
            let has_room = policies.len() < MAX_POLICIES || places.contains_key(&document.name);
            let policy = match stored_policy(document, has_room) {
                Ok(policy) => policy,
                Err(mistakes) => {
                    let rejection = Rejection { policy: None, is_without_policy: false, mistakes };
                    set_aside.insert_mut((POLICY, document.name.clone()), [rejection].into());
                    continue;
                }
            };
            let origin = Origin::Stored(document.revision);
            match places.get(&policy.name) {
                Some(place) => policies[*place] = (policy, origin),
                None => {
                    places.insert(policy.name.clone(), policies.len());
                    policies.push((policy, origin));
                }
            }
        }
        let index = MatchIndex::new(policies.iter().map(|(policy, _)| policy));
        let replacing = policies.iter().any(|(policy, _)| !policy.replaces.is_empty());
        let used = policies.iter().flat_map(|(policy, _)| policy.attributes()).map(Box::from).collect();
        let counted = tallies.prepare(policies.iter().map(|(policy, _)| &policy.name));
        let policies = policies.into_iter().zip(counted);
        let policies =
            policies.map(|((policy, origin), tally)| InForce::new(policy, origin, tally)).collect();
        let mut declared: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, (client, _, _)) in file.overrides.iter().enumerate() {
            declared.entry(client.clone()).or_default().push(place);
        }
        Self { file, declared, policies, places, index, replacing, used }
    }

    /// The file's numbers of a client with the stored ones put on them.
    fn resolve(&self, client: &str, stored: Option<&Document>) -> Resolved {
        let mut rejections = Vec::new();
        let mut layered: BTreeMap<String, (Value, String)> = BTreeMap::new();
        for place in self.declared.get(client).into_iter().flatten() {
            let (_, policy, numbers) = &self.file.overrides[*place];
            layered.insert(policy.clone(), (numbers.clone(), format!("/override/{place}")));
        }
        if let Some(document) = stored {
            let pointer = format!("/override/{client}");
            match numbers_by_policy(document) {
                Some(numbers) => layered.extend(numbers.into_iter().map(|(policy, numbers)| {
                    let pointer = format!("{pointer}/{policy}");
                    (policy, (numbers, pointer))
                })),
                None => rejections.push(Rejection {
                    policy: None,
                    is_without_policy: false,
                    mistakes: vec![Mistake {
                        pointer,
                        problem: "is not an object".to_owned(),
                        accepted: "an object: policy name to limit, window_seconds, burst ...".to_owned(),
                    }],
                }),
            }
        }
        let mut quotas = Vec::new();
        for (policy, (numbers, pointer)) in layered {
            let place = self.places.get(&*policy).copied();
            let parsed = match place {
                Some(place) => parse_quota(&numbers, &self.policies[place].policy.quota.spec, &pointer)
                    .map(|quota| (place, quota)),
                None => Err(vec![Mistake {
                    pointer,
                    problem: "names no policy in force".to_owned(),
                    accepted: "the name of a policy".to_owned(),
                }]),
            };
            match parsed {
                Ok(quota) => quotas.push(quota),
                Err(mistakes) => rejections.push(Rejection {
                    policy: Some(policy),
                    is_without_policy: place.is_none(),
                    mistakes,
                }),
            }
        }
        Resolved { quotas, rejections }
    }
}

fn stored_policy(document: &Document, has_room: bool) -> Result<Policy, Vec<Mistake>> {
    let pointer = format!("/policy/{}", document.name);
    let wrong = |problem: String, accepted: String| {
        Err(vec![Mistake { pointer: pointer.clone(), problem, accepted }])
    };
    let value: Value = match serde_json::from_str(&document.body) {
        Ok(value) => value,
        Err(error) => return wrong(error.to_string(), "a JSON document".to_owned()),
    };
    let policy = parse(&value, &pointer)?;
    if *policy.name != *document.name {
        return wrong(
            format!("calls itself {:?}", policy.name),
            "the name that it is stored under".to_owned(),
        );
    }
    if !has_room {
        return wrong("is one too many".to_owned(), format!("up to {MAX_POLICIES} policies"));
    }
    Ok(policy)
}

/// An override's document: policy to numbers.
fn numbers_by_policy(document: &Document) -> Option<Map<String, Value>> {
    match serde_json::from_str(&document.body) {
        Ok(Value::Object(numbers)) => Some(numbers),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use tidegate_algorithms::time::Wall;
    use tidegate_control::{Author, Control, Error, Limits};

    use super::*;

    const CLIENTS: [&str; 4] = ["a", "b", "c", "d"];
    const POLICIES: [&str; 3] = ["default", "p", "q"];

    fn author() -> Author {
        Author { actor: "test".to_owned(), at: Wall(1), from: None }
    }

    /// A document that may be good, may fit, may be gone.
    fn change() -> impl Strategy<Value = Change> {
        let numbers = prop_oneof![
            (0..9_u64).prop_map(|limit| json!({ "limit": limit })),
            Just(json!({ "window_seconds": 9 })),
            Just(json!({ "limit": -1 })),
        ];
        let policy = prop::sample::select(POLICIES.to_vec());
        let own = prop::collection::btree_map(policy.clone(), numbers, 0..3).prop_map(|it| json!(it));
        let body = prop_oneof![4 => own, 1 => Just(json!([]))];
        let client = prop::sample::select(CLIENTS.to_vec());
        let client =
            (client, prop::option::weighted(0.8, body)).prop_map(|(client, body)| (OVERRIDE, client, body));
        let algorithm = prop::sample::select(vec!["fixed_window", "concurrency", "no_such"]);
        let policy = (policy, prop::option::weighted(0.7, algorithm)).prop_map(|(name, algorithm)| {
            let window = |algorithm: &str| (algorithm != "concurrency").then_some(60);
            let body = |algorithm: &str| match window(algorithm) {
                Some(window) => {
                    json!({"name": name, "algorithm": algorithm, "limit": 5, "window_seconds": window})
                }
                None => json!({"name": name, "algorithm": algorithm, "limit": 5}),
            };
            (POLICY, name, algorithm.map(body))
        });
        prop_oneof![4 => client, 1 => policy].prop_map(|(kind, name, body)| match body {
            Some(body) => Change::put(kind, name, body.to_string()),
            None => Change::delete(kind, name),
        })
    }

    /// Everything that a decision or an operator can see of a set.
    fn seen(set: &PolicySet) -> (Vec<String>, Vec<String>) {
        let names: Vec<_> = set.policies().iter().map(|it| it.policy.name.clone()).collect();
        let pairs = CLIENTS.iter().flat_map(|client| names.iter().map(move |policy| (client, policy)));
        let quotas = pairs.map(|(client, policy)| {
            let (quota, is_own) = set.client_quota(client, policy).unwrap();
            format!("{client} {policy} {} {:?} {is_own}", quota.spec.limit, quota.spec.window_seconds)
        });
        let aside =
            set.set_aside().map(|it| format!("{} {} {:?} {:?}", it.kind, it.name, it.revision, it.mistakes));
        (quotas.collect(), aside.collect())
    }

    proptest! {
        #[test]
        fn the_next_set_is_the_one_that_assembling_gives(
            changes in prop::collection::vec((change(), any::<bool>()), 1..30),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let control = Control::open(folder.path(), Limits::default()).unwrap();
            let file = Arc::new(FileLayer {
                overrides: vec![
                    ("a".to_owned(), "default".to_owned(), json!({ "limit": 77 })),
                    ("b".to_owned(), "default".to_owned(), json!({ "window_seconds": 7 })),
                ],
                ..FileLayer::default()
            });
            let tallies = Tallies::default();
            let mut draft = control.draft();
            let mut set = PolicySet::assemble(file.clone(), draft.snapshot().clone(), &tallies);
            for (change, looks) in changes {
                // Deleting what is not there is refused.
                let _refused = draft.add(change, author(), |_| Ok::<_, Error>(()));
                // Some changes are looked at together.
                if looks {
                    set = set.after(draft.snapshot(), &tallies);
                    let anew = PolicySet::assemble(file.clone(), draft.snapshot().clone(), &tallies);
                    prop_assert_eq!(seen(&set), seen(&anew));
                }
            }
        }
    }

    #[test]
    fn a_change_of_one_override_leaves_the_rest_shared() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path(), Limits::default()).unwrap();
        let tallies = Tallies::default();
        let mut draft = control.draft();
        let set = PolicySet::assemble(Arc::default(), draft.snapshot().clone(), &tallies);
        let put = Change::put(OVERRIDE, "a", r#"{"default":{"limit":1}}"#);
        draft.add(put, author(), |_| Ok::<_, Error>(())).unwrap();
        let next = set.after(draft.snapshot(), &tallies);
        assert!(Arc::ptr_eq(&set.base, &next.base));
        assert_eq!((set.overrides.size(), next.overrides.size()), (0, 1));
    }
}
