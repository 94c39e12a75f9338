//! The policies that are in force: assembled from three layers, swapped whole.
//!
//! ```text
//!   built in      file                control store
//!   "default" --> [[policy]]      --> documents of kind policy       a later layer's policy
//!                 [[override]]    --> documents of kind override     replaces an earlier one
//!                                                                    of the same name
//! ```
//!
//! The built-in policy is there only while the file declares none. A set never changes after it was
//! made. Decisions hold on to the set they started with, so a change in mid-request cannot mix two
//! configurations.
//!
//! Assembling always gives a set. A stored document, or a part of one, that cannot be in force is set
//! aside with its mistakes, and what remains holds ([`SetAside`], fault 57): a policy that does not
//! parse, an override of a policy that is not there, an override whose numbers do not go with its
//! policy. So the start never fails for what is stored. Whether a *change* may set something aside is
//! decided where changes are made ([`tidegate_control::Configuration`]).
//!
//! The next set is made from the last one ([`PolicySet::after`]). Where only overrides changed, it
//! shares all else with it, so one override among 100,000 costs what one among ten does.
//!
//! An override names a client, by the value of the attribute `client_id`, and gives it other
//! numbers under some policies.
//!
//! Bounds: [`MAX_POLICIES`]; overrides are bounded by the control store's document limit.

mod layers;
mod proposed;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rpds::{HashTrieMapSync, RedBlackTreeMapSync};
use serde_json::{Map, Value};
use smallvec::{Array, SmallVec};
use tidegate_algorithms::policy::{
    Algorithm, Attributes, MatchIndex, Mistake, Mode, Policy, Quota, SourceForm, Sources, counted,
};
use tidegate_control::{Kind, Origin, Revision, Snapshot};

use crate::tally::{Tallies, Tally};
pub(crate) use proposed::PolicyCandidate;
pub use proposed::with_candidate;

/// Documents that are policies; their names are the policies'.
pub const POLICY: Kind = Kind::new("policy");

/// Documents of clients' own limits; their names are the clients'.
pub const OVERRIDE: Kind = Kind::new("override");

/// Most policies in force.
pub const MAX_POLICIES: usize = 10_000;

/// The attribute that overrides go by.
pub const CLIENT_ID: &str = "client_id";

/// The name of the built-in policy, which the simple API configures.
pub const DEFAULT_POLICY: &str = "default";

/// The file's layer: what it declares for the limiter.
#[derive(Clone, Debug, Default)]
pub struct FileLayer {
    /// Its policies, in order.
    pub policies: Vec<Policy>,
    /// Its overrides: (client, policy, numbers).
    pub overrides: Vec<(String, String, Value)>,
    /// Where attributes come from that the request itself does not state.
    pub sources: AttributeSources,
}

impl FileLayer {
    /// Whether it declares a concurrency limit of this name.
    #[must_use]
    pub fn is_concurrent(&self, name: &str) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|it| *it.name == *name && it.quota.spec.algorithm == Algorithm::Concurrency)
    }

    /// Its declarations: kind, name and document, each once. Overrides are a client's, all together.
    #[must_use]
    pub fn documents(&self) -> Vec<(Kind, String, Value)> {
        let policies = self.policies.iter().map(|it| (POLICY, it.name.to_string(), it.document()));
        let mut of_clients: HashMap<&str, Value> = HashMap::new();
        for (client, policy, numbers) in &self.overrides {
            of_clients.entry(client).or_insert_with(|| Value::Object(Map::new()))[policy] = numbers.clone();
        }
        let overrides = of_clients.into_iter().map(|(client, limits)| (OVERRIDE, client.to_owned(), limits));
        policies.chain(overrides).collect()
    }
}

/// Where attributes come from, for each protocol that has more than the request states: decision 0065.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeSources {
    /// For requests that a proxy asks about: `/v1/check`.
    pub check: Sources,
    /// For calls of Envoy.
    pub grpc: Sources,
    /// For requests that a route of the gateway limits.
    pub gateway: Sources,
}

impl AttributeSources {
    /// The protocols by the names that the file uses, with the forms of sources that each has.
    pub const PROTOCOLS: [(&str, &[SourceForm]); 3] = [
        (
            "check",
            &[
                SourceForm::Header,
                SourceForm::Cookie,
                SourceForm::Query,
                SourceForm::PathPart,
                SourceForm::Address,
                SourceForm::TlsName,
            ],
        ),
        ("grpc", &[SourceForm::Header, SourceForm::Address, SourceForm::TlsName]),
        (
            "gateway",
            &[
                SourceForm::Header,
                SourceForm::Cookie,
                SourceForm::Query,
                SourceForm::PathPart,
                SourceForm::Address,
                SourceForm::TlsName,
            ],
        ),
    ];

    /// The sources for one of [`Self::PROTOCOLS`].
    pub fn of_mut(&mut self, protocol: &str) -> &mut Sources {
        match protocol {
            "grpc" => &mut self.grpc,
            "gateway" => &mut self.gateway,
            _ => &mut self.check,
        }
    }
}

/// A policy in force.
#[derive(Debug)]
pub struct InForce {
    /// The policy.
    pub policy: Policy,
    /// Where it comes from.
    pub origin: Origin,
    /// Its decisions so far, over all its versions.
    pub tally: Arc<Tally>,
    /// Whether this version of it has decided anything. All cores read it, and one of them writes it once.
    asked: AtomicBool,
}

/// All policies in force, with the stored documents that they were made from. Cloning it copies a few
/// pointers.
#[derive(Clone, Debug)]
pub struct PolicySet {
    documents: Snapshot,
    base: Arc<Base>,
    overrides: Overrides,
    set_aside: Rejections,
    /// What is judged beside it, if something is.
    candidate: Option<Arc<PolicyCandidate>>,
}

/// The part that a change of overrides leaves as it is.
#[derive(Debug)]
struct Base {
    file: Arc<FileLayer>,
    /// The file's overrides of each client, as places in its list.
    declared: HashMap<String, Vec<usize>>,
    policies: Vec<InForce>,
    places: HashMap<Arc<str>, usize>,
    index: MatchIndex,
    /// Whether any policy replaces others.
    replacing: bool,
    /// The attributes that some policy looks at.
    used: HashSet<Box<str>>,
}

/// The numbers of each client: (place of the policy, numbers).
type Overrides = HashTrieMapSync<Box<[u8]>, Arc<[(usize, Quota)]>>;

/// What is set aside, by document.
type Rejections = RedBlackTreeMapSync<(Kind, Arc<str>), Arc<[Rejection]>>;

/// A part of a document that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rejection {
    /// The policy that the part is about, if the document is about several.
    policy: Option<String>,
    /// Whether the only mistake is that there is no policy of that name.
    is_without_policy: bool,
    mistakes: Vec<Mistake>,
}

/// A document that is not in force, or not as a whole.
#[derive(Clone, Debug)]
pub struct SetAside<'a> {
    /// What it describes.
    pub kind: Kind,
    /// Its name.
    pub name: &'a str,
    /// Its revision; `None` if it stands in the file.
    pub revision: Option<Revision>,
    /// What is wrong. Parts that are not named here are in force.
    pub mistakes: Vec<&'a Mistake>,
}

impl InForce {
    pub(crate) fn new(policy: Policy, origin: Origin, tally: Arc<Tally>) -> Self {
        Self { policy, origin, tally, asked: AtomicBool::new(false) }
    }

    /// Counts its verdict of a decision that spends.
    pub(crate) fn count(&self, allowed: bool, degraded: bool) {
        self.tally.count(allowed, self.policy.mode == Mode::Enforce, degraded);
        self.see();
    }

    /// Whether a request that spends has met this version of it: since its last change, or since the process began.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn see(&self) {
        if !self.is_asked() {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it hands out permits.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.policy.quota.spec.algorithm == Algorithm::Concurrency
    }
}

impl PolicySet {
    /// Removes from `applying` the policies that others in it replace; `index` gives an item's policy, if it has one.
    /// A policy that is replaced still replaces others, so the order does not matter.
    pub(crate) fn leave_out_replaced<A: Array>(
        &self,
        applying: &mut SmallVec<A>,
        index: impl Fn(&A::Item) -> Option<usize>,
    ) {
        if !self.base.replacing {
            return;
        }
        let policy = |item: &A::Item| index(item).map(|index| &self.base.policies[index].policy);
        let replaced: Vec<&str> =
            applying.iter().filter_map(policy).flat_map(|it| &it.replaces).map(String::as_str).collect();
        applying.retain(|item| !policy(item).is_some_and(|it| replaced.contains(&&*it.name)));
    }

    /// The control store's revision that this set contains.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.documents.revision()
    }

    /// The stored documents that this set contains.
    #[must_use]
    pub fn documents(&self) -> &Snapshot {
        &self.documents
    }

    /// The file's layer that this set contains.
    #[must_use]
    pub fn file(&self) -> &Arc<FileLayer> {
        &self.base.file
    }

    /// Where attributes come from that requests do not state.
    #[must_use]
    pub fn sources(&self) -> &AttributeSources {
        &self.base.file.sources
    }

    /// Whether some policy looks at the attribute `name`, be it in force or the candidate's.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        let of_candidate = || self.candidate.as_ref().and_then(|candidate| candidate.set());
        self.base.used.contains(name) || of_candidate().is_some_and(|set| set.base.used.contains(name))
    }

    /// All policies, in the order in which they are checked.
    #[must_use]
    pub fn policies(&self) -> &[InForce] {
        &self.base.policies
    }

    /// The policy of that name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&InForce> {
        self.base.places.get(name).map(|place| &self.base.policies[*place])
    }

    /// The first of these names that no policy has, if there is one: what is listed and not in force.
    #[must_use]
    pub(crate) fn first_missing<'n>(&self, names: &'n [Arc<str>]) -> Option<&'n Arc<str>> {
        names.iter().find(|name| self.policy(name).is_none())
    }

    /// The place of the policy of that name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.base.places.get(name).copied()
    }

    /// The places of the policies that could apply to a request, in order; `found` is where they are
    /// put together.
    pub(crate) fn candidates<'a>(
        &'a self,
        attributes: &Attributes<'_>,
        found: &'a mut Vec<u32>,
    ) -> impl Iterator<Item = (usize, &'a InForce)> {
        let places = self.base.index.candidates(attributes, found);
        places.iter().map(|place| {
            let place = *place as usize;
            (place, &self.base.policies[place])
        })
    }

    /// The numbers that hold for these attributes under the policy at `index`, and whether they are
    /// the client's own. A client's own numbers come before those of its tier.
    #[must_use]
    pub fn quota(&self, index: usize, attributes: &Attributes<'_>) -> (&Quota, bool) {
        let own = || {
            let of_client = self.overrides.get(&*counted(attributes.value(CLIENT_ID)?))?;
            of_client.iter().find(|(policy, _)| *policy == index).map(|(_, quota)| quota)
        };
        let general = || self.base.policies[index].policy.quota_of(attributes);
        match if self.overrides.is_empty() { None } else { own() } {
            Some(quota) => (quota, true),
            None => (general(), false),
        }
    }

    /// The numbers of `client` under `policy`, and whether they are its own.
    #[must_use]
    pub fn client_quota(&self, client: &str, policy: &str) -> Option<(&Quota, bool)> {
        let index = *self.base.places.get(policy)?;
        let pairs = [(CLIENT_ID, client.as_bytes())];
        Some(self.quota(index, &Attributes::new(&pairs)))
    }

    /// The number of documents that are set aside, as a whole or in part.
    #[must_use]
    pub fn set_aside_count(&self) -> usize {
        self.set_aside.size()
    }

    /// The documents that are set aside, as a whole or in part, by kind and name.
    pub fn set_aside(&self) -> impl Iterator<Item = SetAside<'_>> {
        self.set_aside.iter().map(|((kind, name), rejections)| SetAside {
            kind: *kind,
            name,
            revision: self.documents.get(*kind, name).map(|document| document.revision),
            mistakes: rejections.iter().flat_map(|rejection| &rejection.mistakes).collect(),
        })
    }

    /// Whether this set sets a document aside for the same mistakes as `other`.
    pub(crate) fn sets_aside_alike(&self, other: &Self, document: &SetAside<'_>) -> bool {
        let document = (document.kind, Arc::from(document.name));
        self.set_aside.get(&document) == other.set_aside.get(&document)
    }

    /// The policies that the file declares and that a stored one of the same name hides, with its
    /// revision.
    pub fn hidden(&self) -> impl Iterator<Item = (&Policy, Revision)> {
        self.base.file.policies.iter().filter_map(|policy| match self.policy(&policy.name)?.origin {
            Origin::Stored(revision) => Some((policy, revision)),
            Origin::BuiltIn | Origin::File => None,
        })
    }

    /// Takes over from the last set which policies were asked, for the policies that are unchanged in both.
    pub(crate) fn take_over_asked(&self, last: &Self) {
        if Arc::ptr_eq(&self.base, &last.base) {
            return;
        }
        for in_force in self.policies() {
            let before = last.policy(&in_force.policy.name).filter(|before| before.is_asked());
            if before.is_some_and(|before| before.policy == in_force.policy) {
                in_force.see();
            }
        }
    }

    /// Makes every policy of this set counted on the metrics page.
    pub(crate) fn count_in(&self, tallies: &Tallies) {
        tallies.adopt(self.base.policies.iter().map(|in_force| (&in_force.policy.name, &in_force.tally)));
    }
}
