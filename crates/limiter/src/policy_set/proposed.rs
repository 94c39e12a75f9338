//! The policies of a candidate: what there would be, made of what is in force by the changes that a promotion makes.
//!
//! ```text
//!   document "candidate" ── policy, remove.policy ──> changes ── made on a copy of what is stored ──> a set beside the one in force
//!                       `── the policies that its routes list: a request of a route is judged under those
//! ```
//!
//! The document is the gateway's, which checks its form and promotes it; here it is read as far as it has policies. The set
//! stands in the set in force, so that a decision sees one pair of both, and costs a look at an `Option` without a candidate.
//!
//! Counters and counts begin anew when policies of either side change, and stay while only clients' own numbers do.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::policy::{MAX_MISTAKES, Mistake, Policy, parse};
use tidegate_control::{Change, Kind, Revision, SetAside as AsideDocument, Snapshot};
use tidegate_net::clock::wall;

use super::{Base, POLICY, PolicySet};
use crate::candidate::{CandidateLimits, JudgedLimits};
use crate::tally::Tallies;

/// The gateway's kind of the one document that is the candidate, and the document's name.
const CANDIDATE: Kind = Kind::new("candidate");
const CANDIDATE_NAME: &str = "candidate";

/// Where mistakes in it point.
const POINTER: &str = "/candidate/candidate";

/// The policies that routes would list, by the name of the route.
type RouteLists = HashMap<String, Vec<Arc<str>>>;

/// What a candidate changes of the policies.
struct PolicyProposal {
    changes: Vec<Change>,
    lists: RouteLists,
}

/// Policies that are judged beside those in force.
#[derive(Debug)]
pub(crate) struct PolicyCandidate {
    revision: Revision,
    /// The policies in force that it is compared with.
    base: Arc<Base>,
    changes: Vec<Change>,
    lists: Arc<RouteLists>,
    set: Result<PolicySet, Vec<Mistake>>,
    /// For each policy of `set`, whether it is in force as it is there.
    kept: Vec<bool>,
    judged: Arc<JudgedLimits>,
}

impl PolicyProposal {
    /// What a document has of policies; `None`: it has none.
    fn read(document: &Value) -> Result<Option<Self>, Vec<Mistake>> {
        let entries = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let (mut changes, mut mistakes) = (Vec::new(), Vec::new());
        for (index, value) in entries(&document["policy"]).iter().enumerate() {
            match parse(value, &format!("{POINTER}/policy/{index}")) {
                Ok(policy) => changes.push(Change::put(POLICY, &*policy.name, value.to_string())),
                Err(wrong) => mistakes.extend(wrong),
            }
        }
        let removed = entries(&document["remove"]["policy"]);
        changes.extend(removed.iter().filter_map(Value::as_str).map(|name| Change::delete(POLICY, name)));
        let list = |route: &Value| {
            let policies = entries(&route["policies"]);
            let policies: Vec<Arc<str>> = policies.iter().filter_map(Value::as_str).map(Arc::from).collect();
            Some((route["name"].as_str()?.to_owned(), policies))
        };
        let lists: RouteLists = entries(&document["route"]).iter().filter_map(list).collect();
        mistakes.truncate(MAX_MISTAKES);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let is_empty = changes.is_empty() && lists.values().all(Vec::is_empty);
        Ok((!is_empty).then_some(Self { changes, lists }))
    }
}

/// What `changes` make of `live`.
fn changed(live: &PolicySet, changes: &[Change], tallies: &Tallies) -> Result<PolicySet, Vec<Mistake>> {
    let documents = documents(live, changes)?;
    fitting(live, PolicySet::layered(Arc::clone(live.file()), documents, tallies))
}

fn documents(live: &PolicySet, changes: &[Change]) -> Result<Snapshot, Vec<Mistake>> {
    live.documents().changed(changes).map_err(|error| {
        let accepted = "a candidate that there is room for".to_owned();
        vec![Mistake { pointer: POINTER.to_owned(), problem: format!("cannot be: {error}"), accepted }]
    })
}

/// The set, if everything that is in force fits into it.
fn fitting(live: &PolicySet, next: PolicySet) -> Result<PolicySet, Vec<Mistake>> {
    let mistakes = live.unfit_in(&next, None);
    if mistakes.is_empty() { Ok(next) } else { Err(mistakes) }
}

/// Which policies of `set` are in force as they are there.
fn kept(base: &Base, set: &Result<PolicySet, Vec<Mistake>>) -> Vec<bool> {
    let in_force = |policy: &Policy| {
        let place = base.places.get(&policy.name);
        place.is_some_and(|place| base.policies[*place].policy == *policy)
    };
    set.iter().flat_map(PolicySet::policies).map(|it| in_force(&it.policy)).collect()
}

/// The policies that there would be with the candidate in `document`.
///
/// # Errors
/// What is wrong with its policies.
pub fn with_candidate(live: &PolicySet, document: &Value) -> Result<PolicySet, Vec<Mistake>> {
    let changes = PolicyProposal::read(document)?.map(|proposal| proposal.changes).unwrap_or_default();
    changed(live, &changes, &Tallies::default())
}

impl PolicyCandidate {
    /// The one that is stored, beside `live`. The `last` one goes on if no policy of either side has changed; `clients` are those
    /// whose own numbers have.
    pub(super) fn beside(
        live: &PolicySet,
        last: Option<&Arc<Self>>,
        clients: &BTreeSet<&Arc<str>>,
        tallies: &Tallies,
    ) -> Option<Arc<Self>> {
        let document = live.documents.get(CANDIDATE, CANDIDATE_NAME)?;
        let last = last.filter(|it| it.revision == document.revision && Arc::ptr_eq(&it.base, &live.base));
        if let Some(last) = last {
            let same = if clients.is_empty() { Arc::clone(last) } else { last.following(live, clients) };
            return Some(same);
        }
        let body: Value = serde_json::from_str(&document.body).unwrap_or_default();
        let (changes, lists, set) = match PolicyProposal::read(&body) {
            Ok(None) => return None,
            Ok(Some(PolicyProposal { changes, lists })) => {
                let set = changed(live, &changes, tallies);
                (changes, lists, set)
            }
            Err(mistakes) => (Vec::new(), RouteLists::new(), Err(mistakes)),
        };
        let judged = Arc::new(JudgedLimits::new(wall()));
        let (base, lists) = (Arc::clone(&live.base), Arc::new(lists));
        let kept = kept(&base, &set);
        Some(Arc::new(Self { revision: document.revision, base, changes, lists, set, kept, judged }))
    }

    /// The same with other numbers of these clients.
    fn following(&self, live: &PolicySet, clients: &BTreeSet<&Arc<str>>) -> Arc<Self> {
        let set = match &self.set {
            Ok(set) => documents(live, &self.changes)
                .and_then(|documents| fitting(live, set.with_clients(documents, clients))),
            // The numbers of a client may have been what did not fit.
            Err(_) => changed(live, &self.changes, &Tallies::default()),
        };
        Arc::new(Self {
            revision: self.revision,
            base: Arc::clone(&self.base),
            changes: self.changes.clone(),
            lists: Arc::clone(&self.lists),
            kept: kept(&self.base, &set),
            set,
            judged: Arc::clone(&self.judged),
        })
    }

    /// The policies that there would be; `None`: they do not go with what is in force.
    pub(crate) fn set(&self) -> Option<&PolicySet> {
        self.set.as_ref().ok()
    }

    pub(crate) fn judged(&self) -> &JudgedLimits {
        &self.judged
    }

    /// The policies that a route would list, if the candidate changes the route.
    pub(crate) fn list(&self, route: &[u8]) -> Option<&[Arc<str>]> {
        self.lists.get(std::str::from_utf8(route).ok()?).map(Vec::as_slice)
    }

    /// Whether the policy at this place of its set is in force as it is there.
    pub(crate) fn keeps(&self, index: usize) -> bool {
        self.kept.get(index).is_some_and(|kept| *kept)
    }

    fn mistakes(&self) -> &[Mistake] {
        self.set.as_ref().err().map_or(&[], Vec::as_slice)
    }

    fn found(&self) -> Option<CandidateLimits> {
        let policies = self.set()?.policies().iter().enumerate();
        let not_judged = policies.filter(|(index, it)| it.is_concurrent() && !self.keeps(*index));
        let not_judged = not_judged.map(|(_, it)| Arc::clone(&it.policy.name)).collect();
        Some(self.judged.found(self.revision.0, not_judged))
    }
}

impl PolicySet {
    /// What is judged beside it, if something is.
    pub(crate) fn candidate(&self) -> Option<&Arc<PolicyCandidate>> {
        self.candidate.as_ref()
    }

    /// What was found of the policies that are judged beside these.
    #[must_use]
    pub fn candidate_limits(&self) -> Option<CandidateLimits> {
        self.candidate.as_ref()?.found()
    }

    /// Why the candidate's policies are not judged, if they are not.
    #[must_use]
    pub fn candidate_mistakes(&self) -> &[Mistake] {
        self.candidate.as_ref().map_or(&[], |candidate| candidate.mistakes())
    }

    /// The candidate, if its policies do not go with these.
    pub(crate) fn candidate_aside(&self) -> Option<AsideDocument> {
        let candidate = self.candidate.as_ref()?;
        let mistakes = candidate.mistakes().to_vec();
        let (name, revision) = (CANDIDATE_NAME.to_owned(), Some(candidate.revision));
        (!mistakes.is_empty()).then_some(AsideDocument { kind: CANDIDATE, name, revision, mistakes })
    }
}
