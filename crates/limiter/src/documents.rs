//! The decision service's part of the configuration: policies, and clients' own limits.
//!
//! A policy binds the doors of the decision service: its HTTP API, gRPC and RESP. It binds nothing else
//! unless that names it (decision 0076).

use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::policy::Mistake;
use tidegate_control::{Change, Kind, Origin, Parts, Service, SetAside, Snapshot};

use crate::announce;
use crate::engine::Engine;
use crate::policy_set::{FileLayer, InForce, OVERRIDE, POLICY, PolicySet};

/// The policies of an engine.
#[derive(Debug)]
pub struct Policies {
    engine: Arc<Engine>,
}

impl Policies {
    /// Those of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

impl Service for Policies {
    const KINDS: &'static [Kind] = &[POLICY, OVERRIDE];
    type Layer = FileLayer;
    type Set = PolicySet;

    fn assemble(&self, layer: Arc<FileLayer>, stored: &Snapshot) -> PolicySet {
        PolicySet::assemble(layer, stored.clone(), self.engine.tallies())
    }

    fn after(&self, last: &PolicySet, stored: &Snapshot) -> PolicySet {
        last.after(stored, self.engine.tallies())
    }

    fn objections(&self, last: &PolicySet, next: &PolicySet, change: Option<&Change>) -> Vec<Mistake> {
        match change {
            Some(change) if Self::KINDS.contains(&change.kind) => last.objections(next, change),
            Some(_) => Vec::new(),
            None => last.unfit_in(next, None),
        }
    }

    fn document(&self, set: &PolicySet, kind: Kind, name: &str) -> Option<Value> {
        if kind == POLICY {
            return set.policy(name).map(|in_force| in_force.policy.document());
        }
        set.documents().get(kind, name).and_then(|document| serde_json::from_str(&document.body).ok())
    }

    fn origin(&self, set: &PolicySet, kind: Kind, name: &str) -> Option<Origin> {
        if kind == POLICY {
            return set.policy(name).map(|in_force| in_force.origin);
        }
        set.documents().get(kind, name).map(|document| Origin::Stored(document.revision))
    }

    fn is_used(&self, set: &PolicySet, kind: Kind, name: &str) -> Option<bool> {
        if kind == POLICY { set.policy(name).map(InForce::is_asked) } else { None }
    }

    fn names(&self, set: &PolicySet, kind: Kind) -> Vec<Arc<str>> {
        if kind == POLICY {
            return set.policies().iter().map(|in_force| in_force.policy.name.clone()).collect();
        }
        set.documents().documents(kind).map(|document| document.name.clone()).collect()
    }

    fn set_aside(&self, set: &PolicySet) -> Vec<SetAside> {
        let aside = set.set_aside().map(|document| SetAside {
            kind: document.kind,
            name: document.name.to_owned(),
            revision: document.revision,
            mistakes: document.mistakes.into_iter().cloned().collect(),
        });
        aside.chain(set.candidate_aside()).collect()
    }

    fn set_aside_count(&self, set: &PolicySet) -> usize {
        set.set_aside_count() + usize::from(set.candidate_aside().is_some())
    }

    fn announce(&self, last: Option<&PolicySet>, next: &PolicySet) {
        match last {
            None => {
                announce::all_hidden(next);
                announce::all_concurrent(next);
            }
            Some(last) if !Arc::ptr_eq(last.file(), next.file()) => announce::file(last, next),
            Some(_) => {}
        }
        announce::set_aside(last, next);
    }

    fn put_in_force(&self, set: Arc<PolicySet>, _parts: &Parts) {
        self.engine.replace(set);
    }
}
