//! The policies that are in force: assembled whole from three layers, swapped whole.
//!
//! ```text
//!   built in      file                control store
//!   "default" --> [[policy]]      --> documents of kind policy       a later layer's policy
//!                 [[override]]    --> documents of kind override     replaces an earlier one
//!                                                                    of the same name
//! ```
//!
//! The built-in policy is there only while the file declares none. Assembling is total: it gives a
//! set or every mistake, and a set never changes after it was made. Decisions hold on to the set
//! they started with, so a change in mid-request cannot mix two configurations.
//!
//! An override names a client, by the value of the attribute `client_id`, and gives it other
//! numbers under some policies. Overrides of policies that no longer exist stay stored and have no
//! effect: the policy may come back.
//!
//! Bounds: [`MAX_POLICIES`]; overrides are bounded by the control store's document limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::policy::{
    Algorithm, Attributes, MAX_VALUE_BYTES, Mistake, Policy, Quota, QuotaSpec, parse, parse_quota,
};
use tidegate_control::{Kind, Revision, Snapshot};

use crate::tally::Tallies;

/// Most policies in force.
pub const MAX_POLICIES: usize = 256;

/// The attribute that overrides go by.
pub const CLIENT_ID: &str = "client_id";

/// The name of the built-in policy, which the simple API configures.
pub const DEFAULT_POLICY: &str = "default";

/// What the configuration file declares.
#[derive(Clone, Debug, Default)]
pub struct FileLayer {
    /// Its policies, in order.
    pub policies: Vec<Policy>,
    /// Its overrides: (client, policy, numbers).
    pub overrides: Vec<(String, String, Value)>,
}

/// Where a policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of the program.
    BuiltIn,
    /// The configuration file.
    File,
    /// The control store, at this revision.
    Stored(Revision),
}

/// A policy in force.
#[derive(Debug)]
pub struct InForce {
    /// The policy.
    pub policy: Policy,
    /// Where it comes from.
    pub origin: Origin,
    /// What it decided so far.
    pub tally: Arc<crate::tally::Tally>,
}

/// All policies in force, at one revision of the control store.
#[derive(Debug)]
pub struct PolicySet {
    revision: Revision,
    policies: Vec<InForce>,
    /// Whether any policy replaces others.
    replacing: bool,
    overrides: HashMap<Box<[u8]>, Vec<(usize, Quota)>>,
}

/// A document that takes part in assembling: a stored one, or one that is about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What it describes.
    pub kind: Kind,
    /// Its name.
    pub name: &'a str,
    /// Its JSON text.
    pub body: &'a str,
    /// Its revision.
    pub revision: Revision,
}

impl InForce {
    /// Whether it hands out permits.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.policy.quota.spec.algorithm == Algorithm::Concurrency
    }
}

impl PolicySet {
    /// Assembles the set from the file's layer and the stored documents.
    ///
    /// # Errors
    /// Every mistake found; pointers start with the document's kind and name.
    pub fn assemble<'a>(
        file: &FileLayer,
        revision: Revision,
        documents: impl IntoIterator<Item = Candidate<'a>>,
        tallies: &Tallies,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mut layers = Layers::of_file(file);
        for document in documents {
            layers.add(document, &mut mistakes);
        }
        if layers.policies.len() > MAX_POLICIES {
            mistakes.push(Mistake {
                pointer: "/policy".to_owned(),
                problem: format!("there are {} policies", layers.policies.len()),
                accepted: format!("up to {MAX_POLICIES}"),
            });
        }
        let overrides = layers.resolve_overrides(&mut mistakes);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let policies: Vec<_> = layers
            .policies
            .into_iter()
            .map(|(policy, origin)| InForce { tally: tallies.of(&policy.name), policy, origin })
            .collect();
        let replacing = policies.iter().any(|in_force| !in_force.policy.replaces.is_empty());
        Ok(Self { revision, policies, replacing, overrides })
    }

    /// Takes out of `applying` what others in it replace; `index` is an item's policy, if it has one.
    /// One that is replaced still replaces, so the order does not matter.
    pub(crate) fn leave_out_replaced<T>(&self, applying: &mut Vec<T>, index: impl Fn(&T) -> Option<usize>) {
        if !self.replacing {
            return;
        }
        let policy = |item: &T| index(item).map(|index| &self.policies[index].policy);
        let replaced: Vec<&str> =
            applying.iter().filter_map(policy).flat_map(|it| &it.replaces).map(String::as_str).collect();
        applying.retain(|item| !policy(item).is_some_and(|it| replaced.contains(&&*it.name)));
    }

    /// The control store's revision that this set contains.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// All policies, in the order in which they are checked.
    #[must_use]
    pub fn policies(&self) -> &[InForce] {
        &self.policies
    }

    /// The policy of that name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&InForce> {
        self.policies.iter().find(|in_force| &*in_force.policy.name == name)
    }

    /// The numbers that hold for these attributes under the policy at `index`, and whether they are
    /// the client's own.
    #[must_use]
    pub fn quota(&self, index: usize, attributes: &Attributes<'_>) -> (&Quota, bool) {
        let own = || {
            let of_client = self.overrides.get(attributes.value(CLIENT_ID)?)?;
            of_client.iter().find(|(policy, _)| *policy == index).map(|(_, quota)| quota)
        };
        let general = &self.policies[index].policy.quota;
        match if self.overrides.is_empty() { None } else { own() } {
            Some(quota) => (quota, true),
            None => (general, false),
        }
    }

    /// The numbers of `client` under `policy`, and whether they are its own.
    #[must_use]
    pub fn client_quota(&self, client: &str, policy: &str) -> Option<(&Quota, bool)> {
        let index = self.policies.iter().position(|in_force| &*in_force.policy.name == policy)?;
        let pairs = [(CLIENT_ID, client.as_bytes())];
        Some(self.quota(index, &Attributes::new(&pairs)))
    }
}

/// The stored documents of a snapshot.
pub fn candidates(snapshot: &Snapshot) -> impl Iterator<Item = Candidate<'_>> {
    [Kind::Policy, Kind::Override].into_iter().flat_map(|kind| snapshot.documents(kind)).map(|document| {
        Candidate {
            kind: document.kind,
            name: &document.name,
            body: &document.body,
            revision: document.revision,
        }
    })
}

/// Whether `text` can be a client's name.
#[must_use]
pub fn is_client_id(text: &str) -> bool {
    (1..=MAX_VALUE_BYTES).contains(&text.len())
}

/// Policies and overrides while layers are put on one another.
struct Layers {
    policies: Vec<(Policy, Origin)>,
    /// (client, policy) -> (numbers, pointer).
    overrides: BTreeMap<(String, String), (Value, String)>,
}

impl Layers {
    fn of_file(file: &FileLayer) -> Self {
        let mut policies: Vec<_> =
            file.policies.iter().map(|policy| (policy.clone(), Origin::File)).collect();
        if policies.is_empty() {
            policies.push((Policy::default_per_client(), Origin::BuiltIn));
        }
        let mut overrides = BTreeMap::new();
        for (index, (client, policy, numbers)) in file.overrides.iter().enumerate() {
            overrides
                .insert((client.clone(), policy.clone()), (numbers.clone(), format!("/override/{index}")));
        }
        Self { policies, overrides }
    }

    fn add(&mut self, document: Candidate<'_>, mistakes: &mut Vec<Mistake>) {
        let pointer = format!("/{}/{}", document.kind, document.name);
        let value: Value = match serde_json::from_str(document.body) {
            Ok(value) => value,
            Err(error) => {
                let accepted = "a JSON document".to_owned();
                return mistakes.push(Mistake { pointer, problem: error.to_string(), accepted });
            }
        };
        match document.kind {
            Kind::Policy => match parse(&value, &pointer) {
                Ok(policy) => self.put(policy, Origin::Stored(document.revision)),
                Err(more) => mistakes.extend(more),
            },
            Kind::Override => {
                for (policy, numbers) in value.as_object().into_iter().flatten() {
                    let pointer = format!("{pointer}/{policy}");
                    self.overrides
                        .insert((document.name.to_owned(), policy.clone()), (numbers.clone(), pointer));
                }
            }
            Kind::Defaults => {}
        }
    }

    fn put(&mut self, policy: Policy, origin: Origin) {
        match self.policies.iter_mut().find(|(other, _)| other.name == policy.name) {
            Some(slot) => *slot = (policy, origin),
            None => self.policies.push((policy, origin)),
        }
    }

    fn resolve_overrides(&mut self, mistakes: &mut Vec<Mistake>) -> HashMap<Box<[u8]>, Vec<(usize, Quota)>> {
        let mut resolved: HashMap<Box<[u8]>, Vec<(usize, Quota)>> = HashMap::new();
        for ((client, policy), (numbers, pointer)) in std::mem::take(&mut self.overrides) {
            let Some(index) = self.policies.iter().position(|(other, _)| *other.name == *policy) else {
                continue;
            };
            let base: &QuotaSpec = &self.policies[index].0.quota.spec;
            match parse_quota(&numbers, base, &pointer) {
                Ok(quota) => {
                    resolved.entry(client.into_bytes().into_boxed_slice()).or_default().push((index, quota));
                }
                Err(more) => mistakes.extend(more),
            }
        }
        resolved
    }
}
