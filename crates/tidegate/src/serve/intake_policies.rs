//! The policies that `intake.policies` lists, as a part of the configuration that refers to them: a change that takes one of
//! them away is refused, as it is where a route lists it.
//!
//! It has no documents. The list is read at the start and does not change.

use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::policy::Mistake;
use tidegate_control::{Change, Kind, Origin, Parts, Service, SetAside, Snapshot};
use tidegate_limiter::policy_set::POLICY;

use crate::config::Settings;

/// The names that the intake lists.
pub(super) struct IntakePolicies(Vec<Arc<str>>);

impl IntakePolicies {
    /// The intake's policies of the settings; empty if there is no intake.
    pub(super) fn of(settings: &Settings) -> Self {
        let listed = settings.intake.listen.map(|_| &settings.intake.policies).into_iter().flatten();
        Self(listed.map(|name| name.to_string().into()).collect())
    }
}

impl Service for IntakePolicies {
    const KINDS: &'static [Kind] = &[];
    type Layer = ();
    type Set = ();

    fn assemble(&self, _layer: Arc<()>, _stored: &Snapshot) {}

    fn after(&self, (): &(), _stored: &Snapshot) {}

    fn objections(&self, (): &(), (): &(), _change: Option<&Change>) -> Vec<Mistake> {
        Vec::new()
    }

    fn dangling(&self, (): &(), parts: &Parts) -> Vec<Mistake> {
        let missing = self.0.iter().filter(|name| !parts.has(POLICY, name));
        missing
            .map(|name| Mistake {
                pointer: "/intake/policies".to_owned(),
                problem: format!("lists {name:?}, which is not the name of a policy"),
                accepted: "the name of a policy".to_owned(),
            })
            .collect()
    }

    fn document(&self, (): &(), _kind: Kind, _name: &str) -> Option<Value> {
        None
    }

    fn origin(&self, (): &(), _kind: Kind, _name: &str) -> Option<Origin> {
        None
    }

    fn names(&self, (): &(), _kind: Kind) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn set_aside(&self, (): &()) -> Vec<SetAside> {
        Vec::new()
    }

    fn set_aside_count(&self, (): &()) -> usize {
        0
    }

    fn announce(&self, _last: Option<&()>, (): &()) {}

    fn put_in_force(&self, _set: Arc<()>, _parts: &Parts) {}
}
