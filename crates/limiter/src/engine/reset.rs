//! Forgetting what one client has used.

use std::sync::Arc;

use tidegate_algorithms::policy::{Attributes, counted};

use super::{Applying, Engine, charges, counter};
use crate::error::AskError;
use crate::policy_set::{CLIENT_ID, PolicySet};

/// What a reset did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// The policies under which the client starts anew.
    pub reset: Vec<Arc<str>>,
    /// Policies whose counter could not be found, each with the attribute that is missing.
    pub not_reset: Vec<(Arc<str>, String)>,
}

impl Reset {
    /// Whether no policy was meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reset.is_empty() && self.not_reset.is_empty()
    }
}

impl Engine {
    /// What [`Engine::reset`] would reset under the policies of `set`.
    #[must_use]
    pub fn resettable(&self, set: &PolicySet, attributes: &Attributes<'_>, only: Option<&str>) -> Reset {
        found(set, attributes, only, &mut Vec::new()).1
    }

    /// Forgets what was spent, and permits that are held, with these attributes, which were read as `set` uses them: under the policy
    /// of that name, or under all of `set`. Policies that are not keyed on the client are left alone, since others count there too. So it is with the
    /// counters of a candidate, which would else deny a client that has spent nothing.
    ///
    /// # Errors
    /// As [`Engine::decide`]. It can be repeated.
    pub async fn reset(
        &self,
        set: &PolicySet,
        attributes: &Attributes<'_>,
        only: Option<&str>,
    ) -> Result<Reset, AskError> {
        let mut keys = Vec::new();
        let (applying, outcome) = found(set, attributes, only, &mut keys);
        let charges = charges(set, &applying, &keys, 0);
        self.counters.reset(self.clock.now(), &charges).await?;
        self.reset_beside(set, attributes, only);
        if let Some(client) = attributes.value(CLIENT_ID) {
            self.nearest_clients.forget(&counted(client));
        }
        Ok(outcome)
    }

    /// Forgets the same under the candidate's own counters.
    fn reset_beside(&self, set: &PolicySet, attributes: &Attributes<'_>, only: Option<&str>) {
        let Some(candidate) = set.candidate() else { return };
        let (Some(set), mut keys) = (candidate.set(), Vec::new()) else { return };
        let (applying, _) = found(set, attributes, only, &mut keys);
        candidate.judged().memory().reset(self.clock.now(), &charges(set, &applying, &keys, 0));
    }
}

/// The counters of the client, with their keys in `keys`.
fn found<'s>(
    set: &'s PolicySet,
    attributes: &Attributes<'_>,
    only: Option<&str>,
    keys: &mut Vec<u8>,
) -> (Vec<Applying<'s>>, Reset) {
    let (mut applying, mut outcome) = (Vec::new(), Reset::default());
    for (index, in_force) in set.policies().iter().enumerate() {
        let policy = &in_force.policy;
        let meant = only.is_none_or(|name| *policy.name == *name);
        if !meant || !policy.key.iter().any(|name| name == CLIENT_ID) {
            continue;
        }
        if let Some(applies) = counter(set, index, attributes, keys) {
            applying.push(applies);
            outcome.reset.push(policy.name.clone());
        } else if let Some(missing) = policy.key.iter().find(|name| attributes.value(name).is_none()) {
            outcome.not_reset.push((policy.name.clone(), missing.clone()));
        }
    }
    (applying, outcome)
}
